//! How many of several values go into one message or one transaction.
//!
//! Owns: the bound on bytes, in addition to the one on rows. A value is held several times over on
//! its way: by the sender, in the message, and by the database. Pure. Never: cuts a value; one that
//! is larger than the bound goes alone.

/// The bytes of values that go together, unless a single value has more.
pub const BYTES_MAX: usize = 16 << 20;

/// How many of the first values, of these sizes, go together: at least one if there are any, no more
/// than `rows`, and no more bytes than [`BYTES_MAX`], unless the first one alone has more.
pub fn first(rows: usize, sizes: impl IntoIterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fits = |size: &usize| {
        bytes = bytes.saturating_add(*size);
        bytes <= BYTES_MAX
    };
    let mut sizes = sizes.into_iter().take(rows).peekable();
    let least = usize::from(sizes.peek().is_some());
    sizes.take_while(fits).count().max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_go_together_as_fit() {
        const HALF: usize = BYTES_MAX / 2;
        for (rows, sizes, fit) in [
            (9, &[][..], 0),
            (0, &[1][..], 0),
            (9, &[0, 0, 0][..], 3),
            (2, &[0, 0, 0][..], 2),
            (9, &[HALF, HALF, 0, 1, 0][..], 3),
            (9, &[1, BYTES_MAX][..], 1),
            (9, &[BYTES_MAX, 0, 1][..], 2),
            (9, &[usize::MAX, 0, usize::MAX][..], 1),
            (9, &[1, usize::MAX, 1][..], 1),
        ] {
            assert_eq!(first(rows, sizes.iter().copied()), fit, "{rows} {sizes:?}");
        }
    }
}
