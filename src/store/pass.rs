//! A pass over many rows, some per transaction, that no bad row stops.
//!
//! Owns: the number of rows of the next transaction, and the decision what follows one that fails: a part of its
//! rows at first; a row that fails alone is passed over, and its error is returned at the end. Pure. Never: knows the
//! rows, or where the pass is (`prune`, `resume`).

use std::time::Duration;

use super::error::Error;

/// A transaction that fails is followed by one with this fraction of its rows.
const FRACTION: usize = 8;

/// When this many rows in a row have failed, each alone, the pass ends: the cause is something else, or each of them
/// takes long to fail. A later pass goes on behind them.
const TOO_MANY: u32 = 10;

/// How long a transaction of a pass waits for rows that others have locked, all its tries together: the pass goes on
/// with fewer rows, and then with others.
pub(super) const CONTENDED: Duration = Duration::from_millis(500);

/// A pass under way.
#[derive(Debug)]
pub(super) struct Pass {
    size: usize,
    passed_over: u32,
    error: Option<Error>,
}

/// The reaction to a transaction that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The same rows again, fewer at once.
    Fewer,
    /// The only row of the transaction is passed over.
    PassOver,
}

impl Pass {
    /// A pass whose first transaction handles this many rows.
    pub(super) fn by(size: usize) -> Self {
        Self {
            size: size.max(1),
            passed_over: 0,
            error: None,
        }
    }

    /// How many rows the next transaction handles.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// A transaction has succeeded; the next one handles this many rows.
    pub(super) fn worked(&mut self, next: usize) {
        self.passed_over = 0;
        self.size = next.max(1);
    }

    /// A transaction has failed. Returns an error where the pass is over.
    pub(super) fn failed(&mut self, error: Error) -> Result<Then, Error> {
        if error.is_unavailable() {
            return Err(error);
        }
        if self.size > 1 {
            self.size = (self.size / FRACTION).max(1);
            return Ok(Then::Fewer);
        }
        self.passed_over += 1;
        let error = self.error.get_or_insert(error);
        match self.passed_over < TOO_MANY {
            true => Ok(Then::PassOver),
            false => Err(error.clone()),
        }
    }

    /// The pass has reached the end of the rows. Returns the first error of a row that was passed over.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.error.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::error::Source;

    fn refused(statement: &'static str) -> Error {
        Error::Retryable {
            statement,
            source: Arc::new(Source::Gone),
        }
    }

    fn named(error: Error) -> &'static str {
        match error {
            Error::Retryable { statement, .. } => statement,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_transaction_that_fails_is_taken_apart_and_a_row_that_fails_alone_is_passed_over() {
        let mut pass = Pass::by(100);
        for left in [12, 1] {
            assert_eq!(pass.failed(refused("A")).unwrap(), Then::Fewer);
            assert_eq!(pass.size(), left);
        }
        assert_eq!(pass.failed(refused("B")).unwrap(), Then::PassOver);
        pass.worked(2);
        assert_eq!(pass.failed(refused("C")).unwrap(), Then::Fewer);
        assert_eq!(pass.failed(refused("D")).unwrap(), Then::PassOver);
        // The error of the first row that was passed over, once.
        assert_eq!(named(pass.end().unwrap_err()), "B");
        assert!(pass.end().is_ok());
    }

    #[test]
    fn a_pass_ends_when_nothing_succeeds_any_more_or_the_database_is_away() {
        let mut pass = Pass::by(1);
        for _ in 1..TOO_MANY {
            assert_eq!(pass.failed(refused("A")).unwrap(), Then::PassOver);
        }
        pass.worked(1);
        for _ in 1..TOO_MANY {
            assert_eq!(pass.failed(refused("B")).unwrap(), Then::PassOver);
        }
        assert_eq!(named(pass.failed(refused("C")).unwrap_err()), "A");
        let mut pass = Pass::by(100);
        assert!(pass.failed(Error::unavailable(Source::Gone)).is_err());
    }
}
