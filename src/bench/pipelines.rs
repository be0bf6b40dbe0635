//! The pipelines of a benchmark: native steps that do nothing, so that the benchmark measures the
//! engine and the database.
//!
//! Owns: the pipelines that a benchmark's daemon runs instead of a user's.

use std::sync::Arc;
use std::time::Duration;

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

/// A step for each number below the input, and one that counts them.
pub(super) const WIDE: &str = "Wide";
/// Two branches that meet.
pub(super) const DIAMOND: &str = "Diamond";
/// One command that does nothing.
pub(super) const COMMAND: &str = "Command";
/// One step that takes a while.
pub(super) const NAP: &str = "Nap";

/// The command.
pub(super) const TRUE: &str = "/bin/true";

/// The length of a nap.
pub(super) const NAP_TIME: Duration = Duration::from_millis(50);

/// The number of crashes that a held step survives without a wait before its next attempt: many
/// more than the workload causes.
const CRASHES: u32 = 1_000;

/// The pipelines and steps of a benchmark's daemon, if this process is one or a child of one:
/// `main` then uses them in place of its own.
pub fn embedded() -> Option<Embedded> {
    std::env::var_os(VARIABLE)?;
    // The definitions are constants, and a test builds them.
    let pipelines = definitions().ok()?;
    let registry = Registry::new()
        .step("Noop", noop)
        .step("Hold", hold)
        .step("Nap", nap)
        .step("Numbers", numbers)
        .step("Count", count);
    Some(Embedded {
        hooks: Default::default(),
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
    let wide = Pipeline::named(WIDE)
        .start("Numbers")
        .expand("Noop")
        .collapse("Count");
    let diamond = Pipeline::named(DIAMOND)
        .start("Noop")
        .divide(["Noop", "Noop"])
        .combine("Noop");
    let command = Pipeline::named(COMMAND)
        .step("True", StepSpec::command([TRUE]))
        .start("True");
    let nap = Pipeline::named(NAP)
        .step("Nap", StepSpec::native().max_crash(CRASHES))
        .start("Nap");
    [chain, flat, hold, wide, diamond, command, nap]
        .into_iter()
        .map(Pipeline::definition)
        .collect()
}

async fn noop(_: StepContext, input: Box<RawValue>) -> Result<Box<RawValue>, StepError> {
    Ok(input)
}

/// Ends at once on request, so that the daemon can stop.
async fn hold(context: StepContext, _: Box<RawValue>) -> Result<Box<RawValue>, StepError> {
    context.cancelled().await;
    Err(StepError::new("stopped", "the benchmark is over"))
}

async fn nap(_: StepContext, input: Box<RawValue>) -> Result<Box<RawValue>, StepError> {
    tokio::time::sleep(NAP_TIME).await;
    Ok(input)
}

async fn numbers(_: StepContext, below: u64) -> Result<Vec<u64>, StepError> {
    Ok((0..below).collect())
}

/// The values are not parsed: parsing them all would measure the step's cost, not the engine's.
async fn count(_: StepContext, _: Box<RawValue>) -> Result<(), StepError> {
    Ok(())
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
        let expected = [
            (CHAIN, 5),
            (FLAT, 1),
            (HOLD, 1),
            (WIDE, 3),
            (DIAMOND, 4),
            (COMMAND, 1),
            (NAP, 1),
        ];
        assert_eq!(nodes, expected);
    }
}
