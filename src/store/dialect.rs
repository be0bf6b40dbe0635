//! The databases that this program speaks.

/// A database this program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL, and what speaks its protocol.
    Postgres,
    /// SQLite, bundled.
    Sqlite,
    /// MySQL, MariaDB, and clusters of them.
    Mysql,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Sqlite, Self::Mysql];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}
