//! The pipelines of a benchmark: native steps that do nothing, so that what is measured is
//! the engine and the database.
//!
//! Owns: what the daemon of a benchmark runs instead of anybody's pipelines.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::definition::{Definition, Pipeline, StepSpec};
use crate::problem::Problems;
use crate::process::start::Embedded;
use crate::step::StepError;
use crate::step::context::StepContext;
use crate::step::registry::Registry;

/// Set for the daemon of a benchmark and, by inheritance, for its children.
pub(super) const VARIABLE: &str = "DUCTWORK_BENCH";

/// Five steps, one after the other.
pub(super) const CHAIN: &str = "Chain5";
/// One step.
pub(super) const FLAT: &str = "Flat";
/// One step that does not end.
pub(super) const HOLD: &str = "Hold";

/// How many crashes a held step survives without a wait before its next attempt: many more
/// than the workload causes.
const CRASHES: u32 = 1_000;

/// What the daemon of a benchmark brings along, when this process is one or a child of one:
/// `main` uses it in place of its own.
pub fn embedded() -> Option<Embedded> {
    std::env::var_os(VARIABLE)?;
    // The definitions are constants, and a test builds them.
    let pipelines = definitions().ok()?;
    let registry = Registry::new().step("Noop", noop).step("Hold", hold);
    Some(Embedded {
        pipelines,
        registry: Arc::new(registry),
    })
}

/// All of them.
pub(super) fn definitions() -> Result<Vec<Definition>, Problems> {
    let chain = Pipeline::named(CHAIN).start("Noop");
    let chain = (1..5).fold(chain, |pipeline, _| pipeline.chain("Noop"));
    let hold = Pipeline::named(HOLD)
        .step("Hold", StepSpec::native().max_crash(CRASHES))
        .start("Hold");
    let flat = Pipeline::named(FLAT).start("Noop");
    [chain, flat, hold]
        .into_iter()
        .map(Pipeline::build)
        .collect()
}

async fn noop(_: StepContext, input: Box<RawValue>) -> Result<Box<RawValue>, StepError> {
    Ok(input)
}

/// Ends at once when it is asked to, so that the daemon can stop.
async fn hold(context: StepContext, _: Box<RawValue>) -> Result<Box<RawValue>, StepError> {
    context.cancelled().await;
    Err(StepError::new("stopped", "the benchmark is over"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipelines_of_a_benchmark_are_valid() {
        let definitions = definitions().unwrap();
        let nodes: Vec<(&str, usize)> = definitions
            .iter()
            .map(|definition| (definition.pipeline.as_str(), definition.nodes.len()))
            .collect();
        assert_eq!(nodes, [(CHAIN, 5), (FLAT, 1), (HOLD, 1)]);
    }
}
