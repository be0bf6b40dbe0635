//! Several statements as one: MariaDB's `BEGIN NOT ATOMIC … END`.
//!
//! Owns: the text of such a statement. The server and the protocol treat it as one statement, so it has one
//! answer, also for an error; several statements in one packet may lose theirs. Its parts return no rows.
//! Their values are in variables, or in their text (`inline`), and `literal` writes both. Never: sends
//! anything.

use std::fmt::Write;

use super::{inline, literal};
use crate::store::dialect::Dialect;
use crate::store::statement::{Arg, Args, Rows, Statement, find};

/// A batch that would make the text longer than this is sent ahead of it, as a value and not as text. The values that
/// `inline` writes come on top of it: they are few (`commit`).
pub const LONGEST: usize = 1 << 20;

/// Refuses to go on without a transaction, with the error of one that was rolled back to let another one through.
const UNDONE: &str = "IF NOT @@in_transaction THEN
    SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the transaction was rolled back without an error';
END IF";

/// True of a statement that consists of several, none of which returns rows.
pub fn is_fit(statement: &Statement) -> bool {
    let parts = statement.parts(Dialect::Mysql);
    // Callers may want the count of a statement that is a single one elsewhere; a compound statement
    // has no count.
    !statement.in_row().is_empty() && parts.iter().all(|one| writes(one))
}

/// True of a statement that returns no rows.
pub fn writes(statement: &Statement) -> bool {
    let sql = statement.sql(Dialect::Mysql).trim_start();
    let words = ["INSERT ", "UPDATE ", "DELETE ", super::WHOLE];
    words.iter().any(|word| sql.starts_with(word))
}

/// The text of a compound statement.
pub struct Compound(String);

impl Compound {
    /// An empty one.
    pub fn begin() -> Self {
        Self("BEGIN NOT ATOMIC\n".to_owned())
    }

    /// Adds a statement without values.
    pub fn then(&mut self, sql: &str) {
        self.0.push_str(sql.trim());
        self.0.push_str(";\n");
    }

    /// Sets the variables of a statement.
    pub fn set(&mut self, statement: &Statement, args: Args<'_>) {
        let mut names: Vec<&str> = Vec::new();
        for name in &statement.rendered(Dialect::Mysql).parameters {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for (index, name) in names.iter().enumerate() {
            let mark = if index == 0 { "SET" } else { "," };
            write!(self.0, "{mark} @d_{name} = ").expect("a string takes all");
            literal::write(&mut self.0, find(statement, args, name));
        }
        if !names.is_empty() {
            self.0.push_str(";\n");
        }
    }

    /// Fills the table of a declared batch.
    pub fn stage(&mut self, batch: &str, rows: &Rows<'_>) {
        self.then(&emptying(batch));
        if rows.len() > 0 {
            self.then(&filling(batch, rows));
        }
    }

    /// Adds the statements that `statement` consists of. Within a transaction, nothing is done after one that has
    /// ended the transaction.
    pub fn run(&mut self, statement: &Statement, args: Args<'_>, is_within: bool) {
        for (at, one) in statement.parts(Dialect::Mysql).into_iter().enumerate() {
            // A count that is checked is that of the statement before.
            let counts = one
                .sql(Dialect::Mysql)
                .trim_start()
                .starts_with(super::WHOLE);
            if is_within && at > 0 && !counts {
                self.then(UNDONE);
            }
            let text = &one.rendered(Dialect::Mysql).compound;
            match inline::is_marked(text) {
                true => self.then(&inline::filled(one, text, args)),
                false => self.then(text),
            }
        }
        if is_within {
            self.then(UNDONE);
        }
    }

    /// The length so far.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The whole text.
    pub fn end(mut self) -> String {
        self.0.push_str("END");
        self.0
    }
}

/// The statement that empties the table of a declared batch.
pub fn emptying(batch: &str) -> String {
    format!("DELETE FROM {}", super::staged(batch))
}

/// The statement that fills it with these rows, of which there is one at least.
pub fn filling(batch: &str, rows: &Rows<'_>) -> String {
    let mut to = format!("INSERT INTO {} VALUES ", super::staged(batch));
    for at in 0..rows.len() {
        if at > 0 {
            to.push_str(",\n");
        }
        literal::row(&mut to, rows, at);
    }
    to
}

/// About how many bytes the literals of some arguments take.
pub fn weight(args: Args<'_>) -> usize {
    let of = |arg: &Arg<'_>| match arg {
        Arg::Id(_) | Arg::Int(_) => 32,
        Arg::Text(text) => text.map_or(4, |text| text.len() * 2 + 16),
        Arg::Rows(rows) => weight_of(rows),
    };
    args.iter().map(|(_, arg)| of(arg)).sum()
}

/// The same of a batch.
pub fn weight_of(rows: &Rows<'_>) -> usize {
    rows.weight() * 2
}
