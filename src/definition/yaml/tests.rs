//! The front end, tested with correct files and with faulty ones.

use super::*;

mod files;
mod graphs;
mod inputs;
mod mistakes;

/// Six lines before the flow's first item, in line 7.
const HEAD: &str = "pipeline: P\nsteps:\n  A: { command: [a] }\n  B: { command: [b] }\n  \
                    C: { command: [c] }\nflow:\n";

fn file() -> &'static FilePath {
    FilePath::new("pipelines/p.yml")
}

fn in_flow(flow: &str) -> String {
    format!("{HEAD}{flow}")
}
