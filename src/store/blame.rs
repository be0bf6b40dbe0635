//! The cause of an error of the database, which decides what happens to the work in hand.
//!
//! Owns: the causes. Each database's `error` module finds the cause of its driver's errors; the
//! tests of these modules, and `tests/store/errors.rs`, which makes a server raise the errors that
//! can be raised, check this. Never: the errors themselves (`store::error`).

/// The cause of an error. Only a value spends a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The connection, or the server at its other end: connect again and continue.
    Connection,
    /// Another transaction in conflict with this one: try the same again, at once.
    Contention,
    /// The environment of the server: its disk, its memory, its rights, its limits of time, or the
    /// person who cancelled the statement. Try the same again, later.
    Environment,
    /// The value that was to be written: every further try is refused, too.
    Value,
    /// A part of a joined statement that found fewer rows than it has to write.
    Part,
    /// This program, or a person who changed its schema.
    Program,
}
