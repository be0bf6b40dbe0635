//! The errors that a server can be made to raise, each raised by a real one: what each is taken for.
