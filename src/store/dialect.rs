//! The databases that this program supports.

/// A database that this program supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL, and servers that speak its protocol.
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
