//! `docs/state-machine.md`, written from the tables of the other tests.

use super::{advance, barrier, outcome, revive, transition};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/state-machine.md");

const INTRODUCTION: &str = "\
# The state machine

*This file is written by the tests of `src/machine`: `DUCTWORK_BLESS=1 cargo test --lib
machine`. Without that variable the same test fails when a table here is not what the code
does, so it cannot be out of date.*

Everything that is decided about a run is decided by pure functions: they see a *view* (a few
values, loaded under a lock or a fence) and give a *plan* (positions and values; no ids, no
times). They never wait, write, or ask a clock. `store` carries plans out.

| part | question | function |
|---|---|---|
| 1 | Which events may happen to a run, a branch, a step, an execution in a given status? | `transition::Lifecycle::next` |
| 2 | An execution has ended: what does that cost, and is there another attempt? | `outcome::decide`, `outcome::halt_reason` |
| 3 | A branch's step has ended: where does the branch go? | `advance::decide` |
| 4 | A branch has arrived at its barrier: does the barrier fire? | `barrier::arrive` |
| 5 | A halted run is revived: where does a halted branch take up its work? | `revive::restart` |

How to read it: a table has one row per case and says what follows from it. Cases with the same
consequence share a row. Where a table is said to hold *whatever* something else is, the test
has tried every combination with it and found no difference.
";

#[test]
fn the_document_says_what_the_machine_does() {
    let document = [
        INTRODUCTION.to_owned(),
        transition::chapter(),
        outcome::chapter(),
        advance::chapter(),
        barrier::chapter(),
        revive::chapter(),
    ]
    .join("\n");
    if std::env::var_os("DUCTWORK_BLESS").is_some() {
        std::fs::write(FILE, &document).expect("docs/ can be written");
    }
    let written = std::fs::read_to_string(FILE).unwrap_or_default();
    let drift = || {
        let mut lines = document.lines().zip(written.lines()).enumerate();
        let first = lines.find(|(_, (ours, theirs))| ours != theirs);
        first.map_or_else(
            || "one of them ends too early".to_owned(),
            |(line, (ours, theirs))| format!("line {}:\n  {theirs}\nnow:\n  {ours}", line + 1),
        )
    };
    assert!(
        document == written,
        "docs/state-machine.md has drifted from the code: run with DUCTWORK_BLESS=1\n{}",
        drift()
    );
}
