//! The cause of an error of the database, which decides what becomes of the work in hand.
//!
//! Owns: the causes. Each database's `error` module finds the cause of its driver's errors; the
//! tests of these modules and `tests/store/errors.rs`, which makes a server raise what can be
//! raised, hold them to that. Never: the errors themselves (`store::error`).

/// The cause of an error. A budget is spent for a value alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The connection, or the server at its other end: connect again and go on.
    Connection,
    /// Another transaction that got in the way: try the same again, at once.
    Contention,
    /// The environment of the server: its disk, its memory, its rights, its limits of time, or the
    /// person who cancelled the statement. Try the same again, later.
    Environment,
    /// The value that was to be written: it is refused whenever it is tried again.
    Value,
    /// A part of a joined statement that found less than it was to write.
    Part,
    /// This program, or whoever changed its schema.
    Program,
}
