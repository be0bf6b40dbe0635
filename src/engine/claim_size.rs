//! How many rows a claim takes, when claims fail because of a row.
//!
//! A claim takes all of its rows or none. If one of them is damaged, no claim with it succeeds: so the next claims take
//! fewer, until that row is alone and its process leaves it out. Owns: the number. Pure. Never: finds the row.

/// A claim that fails is followed by one with this fraction of its rows.
const FRACTION: usize = 8;

/// The number of rows of the next claim.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimSize {
    /// The number of rows of the last claim.
    last: usize,
    /// The most rows of the next one, if claims have failed.
    most: Option<usize>,
}

impl ClaimSize {
    /// The number of rows of the next claim, where there is room for this many.
    pub fn next(&mut self, room: usize) -> usize {
        self.last = self.most.unwrap_or(room).min(room);
        self.last
    }

    /// The last claim has failed because of a row.
    pub fn failed(&mut self) {
        self.most = Some((self.last / FRACTION).max(1));
    }

    /// The last claim has succeeded: the next one may take twice as many.
    pub fn worked(&mut self) {
        self.most = self.most.and_then(|most| most.checked_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_fail_become_smaller_until_a_row_is_alone_and_grow_again() {
        let mut size = ClaimSize::default();
        assert_eq!(size.next(100), 100);
        for left in [12, 1, 1] {
            size.failed();
            assert_eq!(size.next(100), left);
        }
        for grown in [2, 4, 8] {
            size.worked();
            assert_eq!(size.next(100), grown);
        }
        // Never more than there is room for.
        assert_eq!(size.next(3), 3);
        size.failed();
        assert_eq!(size.next(100), 1);
        (0..9).for_each(|_| size.worked());
        assert_eq!(size.next(100), 100);
    }
}
