//! Pipelines written in Rust, with the same verbs as in YAML.
//!
//! Owns: the draft of a pipeline, that is, the text of its author, in the author's order, right or
//! wrong. Never: judges it (`check`) or makes the graph (`canonical`); `Pipeline::definition` asks
//! them to. The YAML front end fills the same draft, so both have the same semantics.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::graph::{Backoff, Definition, RunTrace, StepRunner, StepSpec, Unanswered};
use super::tree::{self, Tree};
use super::{canonical, check};
use crate::model::Hook;
use crate::problem::{Problem, Problems};
use crate::yaml::Mark;

/// A name and the place where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Name {
    /// `None` stands for an unreadable name that has already been reported.
    pub text: Option<String>,
    pub place: Option<Mark>,
}

/// A pipeline as its author wrote it, before anybody judged it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub name: Name,
    pub hooks: BTreeMap<Hook, Name>,
    /// The schema of a run's input.
    pub input: Option<Tree>,
    pub trace: RunTrace,
    pub declared: Vec<Declared>,
    pub undeclared: Undeclared,
    /// `None` stands for a missing or unreadable flow that has been reported.
    pub flow: Option<Vec<Item>>,
}

/// The kind of a step that the flow names but does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undeclared {
    /// A native step, as in Rust.
    Native,
    /// A mistake, as in YAML.
    Unknown,
    /// Unknown, because the declarations could not be read.
    Unjudged,
}

/// A step and how it runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    pub name: Name,
    pub spec: StepSpec,
    /// Where each setting of the step was written, by its key.
    pub places: Vec<(String, Mark)>,
}

impl Declared {
    /// The place of the setting `key`, or else the place of the step.
    pub fn place(&self, key: &str) -> Option<Mark> {
        let found = self.places.iter().find(|(name, _)| name == key);
        found.map(|(_, place)| *place).or(self.name.place)
    }
}

/// One transition, as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub place: Option<Mark>,
    pub kind: Kind,
}

/// The transitions, and a placeholder for one that could not be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Start(To),
    Chain(To),
    Divide(Vec<Path>),
    Combine(To),
    Expand(To),
    Collapse(To),
    Divert {
        cases: Vec<(Name, Path)>,
        otherwise: Option<Path>,
    },
    Converge(To),
    Dampen(Question),
    /// Unreadable and reported; its neighbours are not judged by it.
    Broken,
}

/// The target of a transition: a step, and optionally a wait before it.
#[derive(Clone, Debug, PartialEq)]
pub struct To {
    pub(super) step: Name,
    pub(super) delay: Option<Duration>,
}

impl To {
    /// The step of that name.
    pub fn step(name: impl Into<String>) -> Self {
        let text = Some(name.into());
        let step = Name { text, place: None };
        Self { step, delay: None }
    }

    /// Waits this long before the step may be claimed, whatever the step's own `delay` says.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }
}

impl From<&str> for To {
    fn from(name: &str) -> Self {
        Self::step(name)
    }
}

impl From<String> for To {
    fn from(name: String) -> Self {
        Self::step(name)
    }
}

impl From<(&str, Duration)> for To {
    fn from((name, delay): (&str, Duration)) -> Self {
        Self::step(name).delay(delay)
    }
}

/// A question to a person, for whom a branch waits, and the time within which it must be answered.
///
/// ```
/// use std::time::Duration;
///
/// use ductwork::{Pipeline, Question, Unanswered};
///
/// let three_days = Duration::from_secs(3 * 24 * 3600);
/// let pipeline = Pipeline::named("Invoice")
///     .start("Draft")
///     .dampen(Question::new("Is the sum right?").within(three_days, Unanswered::Halt))
///     .chain("Send");
/// pipeline.check()?;
/// # Ok::<(), ductwork::Problems>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    pub(super) prompt: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) then: Option<Unanswered>,
    /// The place where the timeout was written.
    pub(super) place: Option<Mark>,
}

impl Question {
    /// Asks `prompt`, and waits for the answer without limit; an empty prompt asks nothing in particular.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: Some(prompt.into()),
            ..Self::default()
        }
    }

    /// Waits this long, by the database's clock; then the branch makes the move `then`.
    pub fn within(mut self, timeout: Duration, then: Unanswered) -> Self {
        (self.timeout, self.then) = (Some(timeout), Some(then));
        self
    }
}

impl From<&str> for Question {
    fn from(prompt: &str) -> Self {
        Self::new(prompt)
    }
}

impl From<String> for Question {
    fn from(prompt: String) -> Self {
        Self::new(prompt)
    }
}

/// One path of a divide or divert: a step, and the steps that follow it on this path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub(super) first: To,
    pub(super) items: Vec<Item>,
}

impl Path {
    /// A path that begins with the step `to`; without further verbs it has only this step.
    pub fn to(to: impl Into<To>) -> Self {
        let first = to.into();
        let items = Vec::new();
        Self { first, items }
    }

    /// The same as [`Path::to`]; it reads better when verbs follow.
    pub fn from(first: impl Into<To>) -> Self {
        Self::to(first)
    }
}

impl From<&str> for Path {
    fn from(name: &str) -> Self {
        Self::to(name)
    }
}

impl From<To> for Path {
    fn from(to: To) -> Self {
        Self::to(to)
    }
}

/// A pipeline under construction, with the same verbs as in YAML.
///
/// ```
/// use ductwork::{Path, Pipeline, StepSpec};
///
/// let pipeline = Pipeline::named("EnrichUserData")
///     .step("Collate", StepSpec::command(["jq", "-c", "add"]))
///     .start("QueryUsers")
///     .expand("LoadUser")
///     .divide([Path::to("FetchA"), Path::from("FetchB").chain("CleanB")])
///     .combine("Collate")
///     .collapse("Report");
/// pipeline.check()?;
/// # Ok::<(), ductwork::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    draft: Draft,
    items: Vec<Item>,
    /// The mistakes in a value that was passed as a whole.
    unread: Vec<check::Finding>,
}

impl Pipeline {
    /// Begins a pipeline.
    pub fn named(name: impl Into<String>) -> Self {
        let draft = Draft {
            name: To::step(name).step,
            hooks: BTreeMap::new(),
            input: None,
            trace: RunTrace::default(),
            declared: Vec::new(),
            undeclared: Undeclared::Native,
            flow: None,
        };
        Self {
            draft,
            items: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Says how a step runs. A step that is named without this call is native.
    pub fn step(mut self, name: impl Into<String>, spec: StepSpec) -> Self {
        self.draft.declared.push(Declared {
            name: To::step(name).step,
            spec,
            places: Vec::new(),
        });
        self
    }

    /// The step that runs once, durably, for each run that halts.
    pub fn on_halt(self, step: impl Into<String>) -> Self {
        self.hook(Hook::Halt, step)
    }

    /// The step that runs once, durably, for each run that completes.
    pub fn on_complete(self, step: impl Into<String>) -> Self {
        self.hook(Hook::Complete, step)
    }

    /// The step that runs once, durably, for each wait for a person.
    pub fn on_wait(self, step: impl Into<String>) -> Self {
        self.hook(Hook::Wait, step)
    }

    fn hook(mut self, hook: Hook, step: impl Into<String>) -> Self {
        self.draft.hooks.insert(hook, To::step(step).step);
        self
    }

    /// The input of a run, as a schema: the subset of JSON Schema that `input:` has in YAML. A run is started
    /// only with an input that matches it. Takes anything that serialises as a schema, such as the result of
    /// `serde_json::json!`.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use ductwork::Pipeline;
    ///
    /// let text = BTreeMap::from([("type", "string"), ("format", "email")]);
    /// Pipeline::named("Hello").input(text).start("Greet").check()?;
    /// # Ok::<(), ductwork::Problems>(())
    /// ```
    pub fn input(mut self, schema: impl Serialize) -> Self {
        // JSON is YAML. A value that does not serialise yields nothing, which `check` refuses.
        let text = serde_json::to_string(&schema).unwrap_or_default();
        let (tree, findings) = tree::read(&text);
        self.draft.input = tree;
        self.unread.extend(findings);
        self
    }

    /// The trace that its runs are in; without this call each run has a trace of its own.
    ///
    /// ```
    /// use ductwork::{Pipeline, RunTrace};
    ///
    /// Pipeline::named("Hello").trace(RunTrace::Parent).start("Greet").check()?;
    /// # Ok::<(), ductwork::Problems>(())
    /// ```
    pub fn trace(mut self, trace: RunTrace) -> Self {
        self.draft.trace = trace;
        self
    }

    /// The first step.
    pub fn start(self, to: impl Into<To>) -> Self {
        self.then(Kind::Start(to.into()))
    }

    /// Fails with everything that is wrong with the pipeline; runs nothing.
    pub fn check(&self) -> Result<(), Problems> {
        self.clone().definition().map(drop)
    }

    /// The definition, or everything that is wrong with the pipeline.
    #[cfg(feature = "internals")]
    pub fn build(self) -> Result<Definition, Problems> {
        self.definition()
    }

    pub(crate) fn definition(self) -> Result<Definition, Problems> {
        let mut draft = self.draft;
        draft.flow = Some(self.items);
        let mut findings = self.unread;
        findings.extend(check::check(&draft));
        if findings.is_empty() {
            return Ok(canonical::lower(&draft));
        }
        let problem = |finding: check::Finding| Problem {
            file: None,
            at: None,
            message: finding.message,
            help: finding.help,
        };
        Err(Problems(findings.into_iter().map(problem).collect()))
    }
}

/// The verbs that a pipeline and a path share.
macro_rules! verbs {
    ($owner:ty) => {
        impl $owner {
            fn then(mut self, kind: Kind) -> Self {
                let place = None;
                self.items.push(Item { place, kind });
                self
            }

            /// The next step, on the same branch.
            pub fn chain(self, to: impl Into<To>) -> Self {
                self.then(Kind::Chain(to.into()))
            }

            /// One new branch per path, the same input to each.
            pub fn divide(self, paths: impl IntoIterator<Item = impl Into<Path>>) -> Self {
                let paths = paths.into_iter().map(Into::into).collect();
                self.then(Kind::Divide(paths))
            }

            /// Waits for all branches of the divide directly before it.
            pub fn combine(self, to: impl Into<To>) -> Self {
                self.then(Kind::Combine(to.into()))
            }

            /// One new branch per element of the output.
            pub fn expand(self, to: impl Into<To>) -> Self {
                self.then(Kind::Expand(to.into()))
            }

            /// Waits for all branches of the innermost open expand of this list.
            pub fn collapse(self, to: impl Into<To>) -> Self {
                self.then(Kind::Collapse(to.into()))
            }

            /// The output chooses the path; an output that matches no case takes `otherwise`.
            pub fn divert<Case: Into<String>, To: Into<Path>>(
                self,
                cases: impl IntoIterator<Item = (Case, To)>,
                otherwise: impl Into<Path>,
            ) -> Self {
                let case = |(when, path): (Case, To)| {
                    let text = Some(when.into());
                    (Name { text, place: None }, path.into())
                };
                let cases = cases.into_iter().map(case).collect();
                let otherwise = Some(otherwise.into());
                self.then(Kind::Divert { cases, otherwise })
            }

            /// The paths of the divert directly before it meet.
            pub fn converge(self, to: impl Into<To>) -> Self {
                self.then(Kind::Converge(to.into()))
            }

            /// The branch waits for a person, who is asked this question: a text, or a [`Question`]
            /// with a deadline.
            pub fn dampen(self, question: impl Into<Question>) -> Self {
                self.then(Kind::Dampen(question.into()))
            }
        }
    };
}

verbs!(Pipeline);
verbs!(Path);

/// How a step runs, one setting at a time.
impl StepSpec {
    /// A program and its arguments, without a shell.
    pub fn command(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self::new(StepRunner::Command(argv))
    }

    /// A function of the program that embeds the library.
    pub fn native() -> Self {
        Self::new(StepRunner::Native)
    }

    /// The longest that an attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The wait before the step may be claimed, unless the transition says otherwise.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// How many attempts after the first may be spent on errors.
    pub fn max_retry(mut self, retries: u32) -> Self {
        self.max_retry = Some(retries);
        self
    }

    /// The number of crashes at which the step fails.
    pub fn max_crash(mut self, crashes: u32) -> Self {
        self.max_crash = Some(crashes);
        self
    }

    /// The wait between attempts.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Adds a variable to the environment of a command. The worker that starts the command replaces
    /// `${VAR}` and `${VAR:-default}` with its own variables; `$$` is a dollar sign.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.secrets.remove(&name);
        self.env.insert(name, value.into());
        self
    }

    /// Adds a variable to the environment of a command: the secret of this name. The worker that starts
    /// the command finds the secret in its environment, or in the file that the variable `NAME_FILE`
    /// names. The definition holds only the name, and the command's log shows `***` in place of the
    /// secret.
    pub fn secret(mut self, variable: impl Into<String>, name: impl Into<String>) -> Self {
        let variable = variable.into();
        self.env.remove(&variable);
        self.secrets.insert(variable, name.into());
        self
    }

    /// The working directory of a command, relative to the configuration's.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.cwd = Some(directory.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(pipeline: Pipeline) -> Vec<String> {
        match pipeline.build() {
            Ok(definition) => panic!("no problem in {}", definition.canonical()),
            Err(Problems(problems)) => problems.into_iter().map(|found| found.message).collect(),
        }
    }

    #[test]
    fn a_step_that_is_not_declared_is_native() {
        let definition = Pipeline::named("P")
            .on_halt("Tell")
            .start("A")
            .build()
            .expect("a definition");
        assert_eq!(definition.steps["A"].run, StepRunner::Native);
        assert_eq!(definition.steps["Tell"].run, StepRunner::Native);
        assert_eq!(definition.nodes.len(), 1);
    }

    #[test]
    fn mistakes_are_found_all_at_once() {
        let long = StepSpec::command(["a"])
            .timeout(Duration::from_nanos(1))
            .delay(Duration::MAX)
            .max_retry(2_000_000)
            .backoff(Backoff {
                initial: Duration::MAX,
                factor: f64::NAN,
                max: Duration::from_secs(1),
                jitter: -0.1,
            });
        let none: [&str; 0] = [];
        let found = messages(
            Pipeline::named("P.1")
                .step("A", StepSpec::command(none))
                .step("A", StepSpec::native())
                .step("Unused", long)
                .chain("A")
                .divert([("otherwise", "A"), ("x", "A"), ("x", "A")], "A")
                .divide(none)
                .combine(("dampen", Duration::MAX))
                .chain("B C"),
        );
        assert_eq!(
            found,
            [
                "`P.1` is not a name for a pipeline",
                "the command is empty",
                "step `A` is declared twice",
                "`timeout` is zero",
                "`delay` is longer than 100 years",
                "`max_retry` is above 1000000",
                "`initial` is longer than 100 years",
                "`factor` is NaN",
                "`jitter` is -0.1",
                "`initial` is longer than `max`",
                "the flow does not begin with `start`",
                "`otherwise` is the fallback, and cannot be a case",
                "the divert has the key `x` twice",
                "`divide` cannot follow a divert: only `converge` can, or nothing",
                "the divide has no paths",
                "`delay` is longer than 100 years",
                "`dampen` is the transition, and cannot be a step's name",
                "`B C` is not a name for a step",
                "step `Unused` is not used",
            ]
        );
    }

    #[test]
    fn nothing_has_the_name_under_which_metrics_count_the_rest() {
        let other = crate::metrics::OTHER;
        let found = messages(Pipeline::named(other).start(other));
        assert_eq!(
            found,
            [
                "`_other` cannot be the name of a pipeline",
                "`_other` cannot be the name of a step",
            ]
        );
    }

    #[test]
    fn an_empty_flow_is_refused() {
        assert_eq!(messages(Pipeline::named("P")), ["the flow is empty"]);
    }

    #[test]
    fn paths_nest_up_to_the_limit() {
        let nested = |depth: usize| {
            let inner = (1..depth).fold(Path::to("A"), |path, _| Path::from("A").divide([path]));
            Pipeline::named("P").start("A").divide([inner])
        };
        assert!(nested(check::MAX_DEPTH).build().is_ok());
        assert_eq!(
            messages(nested(check::MAX_DEPTH + 1)),
            ["transitions are nested more than 64 deep"]
        );
        // Far more levels than any stack would hold if they were followed to their end.
        assert_eq!(messages(nested(2_000)).len(), 1);
    }

    #[test]
    fn nodes_are_limited() {
        let chain = |nodes: usize| {
            let pipeline = Pipeline::named("P").start("A");
            (1..nodes).fold(pipeline, |pipeline, _| pipeline.chain("A"))
        };
        let most = chain(check::MAX_NODES).build().expect("a definition");
        assert_eq!(
            most.nodes.last().map(|node| node.name.as_str()),
            Some("A.10000")
        );
        assert_eq!(
            messages(chain(check::MAX_NODES + 2)),
            ["the pipeline has more than 10000 nodes"]
        );
    }
}
