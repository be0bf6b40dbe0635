//! From copied registers and stack bytes to a list of code addresses. Pure.

use super::image::Mappings;

/// The longest list; nobody reads beyond it.
const FRAMES_MAX: usize = 256;

/// One word of the stack.
const WORD: usize = size_of::<usize>();

/// A thread's copy of itself.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The address at which it was.
    pub pc: usize,
    /// The end of its stack; `stack` begins here.
    pub sp: usize,
    /// Its frame pointer.
    pub fp: usize,
    /// The address to which it returns, on machines that keep it in a register.
    pub link: Option<usize>,
    /// The bytes from `sp` on.
    pub stack: Vec<u8>,
}

impl Snapshot {
    /// The word at this address of the copied stack.
    fn word(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.sp)?;
        let bytes = self.stack.get(offset..offset.checked_add(WORD)?)?;
        Some(usize::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The frame record at this address: the caller's frame, and the return address.
    fn record(&self, address: usize) -> Option<(usize, usize)> {
        if !address.is_multiple_of(WORD) {
            return None;
        }
        Some((self.word(address)?, self.word(address.checked_add(WORD)?)?))
    }

    fn end(&self) -> usize {
        self.sp.saturating_add(self.stack.len())
    }
}

/// The way back out of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Code addresses, innermost first.
    pub frames: Vec<usize>,
    /// True when the stack goes on beyond the copy, or beyond what anybody reads.
    pub cut: bool,
}

/// Follows the frame pointers.
///
/// The C library is built without them, so that register of a thread inside the C library may hold
/// anything. The walk then starts at the first place of the stack that looks like a chain of frames.
pub fn walk(snapshot: &Snapshot, mappings: &Mappings) -> Walk {
    let mut walk = Walk {
        frames: vec![snapshot.pc],
        cut: false,
    };
    // A leaf such as `syscall` makes no frame: its caller is in the link register or at the very end
    // of the stack.
    let caller = snapshot.link.or_else(|| snapshot.word(snapshot.sp));
    let first = if is_chained(snapshot, mappings, snapshot.fp) {
        Some(snapshot.fp)
    } else {
        (snapshot.sp..snapshot.end())
            .step_by(WORD)
            .find(|address| begins_chain(snapshot, mappings, *address))
    };
    if let Some(caller) = caller.filter(|caller| mappings.is_code(*caller)) {
        let next = first.and_then(|frame| snapshot.record(frame));
        if next.is_none_or(|(_, back)| back != caller) {
            walk.frames.push(caller);
        }
    }
    let mut frame = first.unwrap_or(0);
    while let Some((outer, back)) = snapshot.record(frame) {
        if !mappings.is_code(back) {
            return walk;
        }
        if walk.frames.len() >= FRAMES_MAX {
            walk.cut = true;
            return walk;
        }
        walk.frames.push(back);
        // Frames lie ever further up; any other address belongs to the outermost frame, or to none.
        if outer <= frame {
            return walk;
        }
        frame = outer;
    }
    // The last record pointed out of the copy: either the stack goes on there, or the first function
    // used the register for something else.
    walk.cut = first.is_some() && frame >= snapshot.end() && frame < snapshot.end() + (8 << 20);
    walk
}

fn is_chained(snapshot: &Snapshot, mappings: &Mappings, frame: usize) -> bool {
    snapshot
        .record(frame)
        .is_some_and(|(_, back)| mappings.is_code(back))
}

/// Two records, one behind the other: a coincidence is unlikely.
fn begins_chain(snapshot: &Snapshot, mappings: &Mappings, address: usize) -> bool {
    snapshot.record(address).is_some_and(|(outer, back)| {
        outer > address && mappings.is_code(back) && is_chained(snapshot, mappings, outer)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SP: usize = 0x7000;

    fn mappings() -> Mappings {
        Mappings::parse(
            "1000-2000 r-xp 00000000 08:01 1 /bin/x\n\
             2000-3000 rw-p 00001000 08:01 1 /bin/x\n\
             garbage\n",
        )
    }

    fn snapshot(fp: usize, words: &[usize]) -> Snapshot {
        Snapshot {
            pc: 0x1000,
            sp: SP,
            fp,
            link: None,
            stack: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
        }
    }

    #[test]
    fn frames_are_followed_to_the_outermost() {
        let words = [0, SP + 24, 0x1100, 0, 0x1200];
        let walk = walk(&snapshot(SP + 8, &words), &mappings());
        assert_eq!(walk.frames, [0x1000, 0x1100, 0x1200]);
        assert!(!walk.cut);
    }

    #[test]
    fn the_caller_of_a_leaf_is_found_at_the_end_of_the_stack() {
        let words = [0x1010, SP + 24, 0x1100, 0, 0x1200];
        let walk = walk(&snapshot(SP + 8, &words), &mappings());
        assert_eq!(walk.frames, [0x1000, 0x1010, 0x1100, 0x1200]);
    }

    #[test]
    fn a_register_used_for_something_else_does_not_end_the_walk() {
        let words = [0, 0x2100, 7, SP + 40, 0x1100, 0, 0x1200];
        let walk = walk(&snapshot(12_345, &words), &mappings());
        assert_eq!(walk.frames, [0x1000, 0x1100, 0x1200]);
    }

    #[test]
    fn a_stack_that_goes_on_beyond_the_copy_says_so() {
        let words = [0, SP + 4096, 0x1100];
        let walk = walk(&snapshot(SP + 8, &words), &mappings());
        assert_eq!(walk.frames, [0x1000, 0x1100]);
        assert!(walk.cut);
    }

    #[test]
    fn a_circle_ends() {
        let words = [0, SP + 8, 0x1100];
        let walk = walk(&snapshot(SP + 8, &words), &mappings());
        assert_eq!(walk.frames, [0x1000, 0x1100]);
    }

    #[test]
    fn nothing_copied_still_tells_where_it_was() {
        assert_eq!(walk(&snapshot(0, &[]), &mappings()).frames, [0x1000]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_end_or_panic(
            stack in prop::collection::vec(prop_oneof![
                any::<usize>(), SP..SP + 400, 0x1000usize..0x2000], 0..64),
            fp in prop_oneof![any::<usize>(), SP..SP + 400],
            torn in 0usize..8,
        ) {
            let mut snapshot = snapshot(fp, &stack);
            snapshot.stack.truncate(snapshot.stack.len().saturating_sub(torn));
            let walk = walk(&snapshot, &mappings());
            prop_assert!(!walk.frames.is_empty() && walk.frames.len() <= FRAMES_MAX + 1);
        }
    }
}
