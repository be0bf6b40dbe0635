//! The next move of a branch whose current step has ended.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::definition::{Definition, Edge, NodeIndex, Target, Then};
use crate::model::{HaltReason, Via};

/// A branch whose current step has ended, as loaded under its claim.
#[derive(Clone, Copy, Debug)]
pub struct BranchView<'a> {
    /// The node at which the branch stands.
    pub node: NodeIndex,
    /// How its current step ended.
    pub step: StepView<'a>,
    /// Earlier attempts at this transition that ended in an error.
    pub retries: u32,
    /// Earlier attempts at this transition whose process died.
    pub crashes: u32,
    /// Some of the branches of its expand already exist: a wide expand takes several transactions. It
    /// goes on to its end, whatever the budgets say, because those branches run.
    pub begun: bool,
}

/// How a step ended.
#[derive(Clone, Copy, Debug)]
pub enum StepView<'a> {
    /// It has an output.
    Succeeded(&'a RawValue),
    /// It is out of budget; this is the reason.
    Failed(HaltReason),
}

/// The limits of advancing.
#[derive(Clone, Copy, Debug)]
pub struct AdvanceLimits {
    /// Errors of one transition that do not halt its branch.
    pub max_retry: u32,
    /// The crash of one transition that halts its branch: the `max_crash`-th (the first, when
    /// this is 0).
    pub max_crash: u32,
    /// The widest fan-out allowed; `None` is without limit.
    pub max_fan_out: Option<u64>,
    /// The longest array that a fan-in may gather, in bytes.
    pub max_payload: usize,
}

/// The writes for a branch. Holds positions and values, no ids and no times.
#[derive(Clone, Debug)]
pub enum Advance<'a> {
    /// The branch ends with this value: it arrives at its barrier, or the run is complete.
    End {
        /// Its output.
        value: Value,
    },
    /// The next step, same branch.
    Continue {
        /// The next node.
        to: Target,
        /// The transition that leads there.
        via: Via,
        /// The step's input.
        value: Value,
    },
    /// One new branch per path, the same input to each.
    Split {
        /// The first node of each path, in listed order.
        paths: &'a [Target],
    },
    /// One new branch per element; there is at least one.
    Spread {
        /// The first node of each.
        to: Target,
        /// Their inputs.
        elements: Elements<'a>,
    },
    /// The branch waits for a person at this node.
    Hold {
        /// The step-less node.
        at: NodeIndex,
    },
    /// The branch stops for good.
    Halt {
        /// Why.
        reason: HaltReason,
    },
}

/// A value that a plan passes on without holding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The current step's output.
    Output,
    /// `[]`: the collapsed value of an expand of nothing.
    EmptyArray,
}

/// The elements of an expanded output, borrowed from it.
#[derive(Clone, Debug)]
pub enum Elements<'a> {
    /// Of an array.
    Array(Vec<&'a RawValue>),
    /// Of an object, in its order; each becomes `[key, value]`. Keys stay as written: JSON can
    /// spell a key that no string holds (half a surrogate pair), and a key that is only passed on
    /// need not be understood.
    Object(Vec<(&'a RawValue, &'a RawValue)>),
}

impl Elements<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Array(items) => items.len(),
            Self::Object(entries) => entries.len(),
        }
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long the text of the element at `index` is.
    pub fn bytes(&self, index: usize) -> usize {
        match self {
            Self::Array(items) => items[index].get().len(),
            Self::Object(entries) => {
                let (key, value) = &entries[index];
                "[,]".len() + key.get().len() + value.get().len()
            }
        }
    }

    /// The JSON text of the element at `index`.
    pub fn text(&self, index: usize) -> Cow<'_, str> {
        match self {
            Self::Array(items) => Cow::Borrowed(items[index].get()),
            Self::Object(entries) => {
                let (key, value) = &entries[index];
                Cow::Owned(format!("[{},{}]", key.get(), value.get()))
            }
        }
    }
}

/// Decides what a branch does next.
pub fn decide<'a>(
    view: &BranchView<'a>,
    definition: &'a Definition,
    limits: &AdvanceLimits,
) -> Advance<'a> {
    let output = match view.step {
        StepView::Failed(reason) => return Advance::Halt { reason },
        StepView::Succeeded(output) => output,
    };
    // As for a step: `max_retry` errors may be spent, and the `max_crash`-th crash (the first, when
    // this is 0) was the last.
    if !view.begun && view.crashes >= limits.max_crash.max(1) {
        let reason = HaltReason::AdvancerCrashesExhausted;
        return Advance::Halt { reason };
    }
    if !view.begun && view.retries > limits.max_retry {
        let reason = HaltReason::AdvancerRetriesExhausted;
        return Advance::Halt { reason };
    }
    let too_wide =
        |width: usize| !view.begun && limits.max_fan_out.is_some_and(|max| width as u64 > max);
    match &definition.node(view.node).next {
        Edge::End => Advance::End {
            value: Value::Output,
        },
        Edge::Chain(to) => go(*to, Via::Chain),
        Edge::Converge(to) => go(*to, Via::Converge),
        Edge::Dampen(at) => Advance::Hold { at: *at },
        Edge::Divide { paths, .. } if too_wide(paths.len()) => Advance::Halt {
            reason: HaltReason::MaxFanoutExceeded,
        },
        Edge::Divide { paths, .. } => Advance::Split { paths },
        Edge::Expand { to, then } => match elements(output) {
            None => Advance::Halt {
                reason: HaltReason::TransitionInvalid,
            },
            Some(elements) if too_wide(elements.len()) => Advance::Halt {
                reason: HaltReason::MaxFanoutExceeded,
            },
            Some(elements) if elements.is_empty() => after_fan_in(*then, Value::EmptyArray),
            Some(elements) => Advance::Spread { to: *to, elements },
        },
        Edge::Divert { cases, otherwise } => {
            let key = divert_key(output);
            let to = cases
                .iter()
                .find(|case| key.as_deref() == Some(case.when.as_str()))
                .map_or(*otherwise, |case| case.to);
            go(to, Via::Divert)
        }
    }
}

/// True when the output of its step decides where a branch goes from `node`. Otherwise [`decide`]
/// does not look at the output, and it need not be loaded.
pub fn reads_output(definition: &Definition, node: NodeIndex) -> bool {
    let next = &definition.node(node).next;
    matches!(next, Edge::Expand { .. } | Edge::Divert { .. })
}

/// True when the edge that leaves `node` can take an output that begins with this character; only an
/// expand requires a list or an object.
pub fn fits(definition: &Definition, node: NodeIndex, first: Option<char>) -> bool {
    match &definition.node(node).next {
        Edge::Expand { .. } => matches!(first, Some('[' | '{')),
        _ => true,
    }
}

/// The crossings that a worker may make together with its result: those that lead to one step on
/// the same branch, or end it. `None` for all crossings that need a barrier or a person.
pub fn decide_simple<'a>(
    output: &'a RawValue,
    node: NodeIndex,
    definition: &'a Definition,
) -> Option<Advance<'a>> {
    match &definition.node(node).next {
        Edge::End | Edge::Chain(_) | Edge::Converge(_) | Edge::Divert { .. } => {}
        Edge::Dampen(_) | Edge::Divide { .. } | Edge::Expand { .. } => return None,
    }
    let view = BranchView {
        node,
        step: StepView::Succeeded(output),
        retries: 0,
        crashes: 0,
        begun: false,
    };
    let limits = AdvanceLimits {
        max_retry: 0,
        max_crash: 0,
        max_fan_out: None,
        max_payload: 0,
    };
    Some(decide(&view, definition, &limits))
}

fn go<'a>(to: Target, via: Via) -> Advance<'a> {
    Advance::Continue {
        to,
        via,
        value: Value::Output,
    }
}

/// The next move of a waiting branch once its fan-out is over, with `value` as its value.
pub fn after_fan_in<'a>(then: Then, value: Value) -> Advance<'a> {
    let (to, via) = match then {
        Then::End => return Advance::End { value },
        Then::Combine(to) => (to, Via::Combine),
        Then::Collapse(to) => (to, Via::Collapse),
        Then::Converge(to) => (to, Via::Converge),
    };
    Advance::Continue { to, via, value }
}

/// The fan-in that follows the fan-out from `node`; `None` when none leaves it.
pub fn then_of(definition: &Definition, node: NodeIndex) -> Option<Then> {
    match &definition.node(node).next {
        Edge::Divide { then, .. } | Edge::Expand { then, .. } => Some(*then),
        _ => None,
    }
}

/// The elements of an array, or the entries of an object; `None` for anything else.
pub(super) fn elements(output: &RawValue) -> Option<Elements<'_>> {
    struct Split;

    impl<'de> Visitor<'de> for Split {
        type Value = Elements<'de>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("an array or an object")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::with_capacity(from.size_hint().unwrap_or_default());
            while let Some(item) = from.next_element()? {
                items.push(item);
            }
            Ok(Elements::Array(items))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = from.next_entry()? {
                entries.push(entry);
            }
            Ok(Elements::Object(entries))
        }
    }

    serde_json::Deserializer::from_str(output.get())
        .deserialize_any(Split)
        .ok()
}

/// The text that a divert compares with its keys; `None` when the output has none. If there are
/// several `divert` fields, the last one counts, as in nearly every reader of JSON.
fn divert_key(output: &RawValue) -> Option<Cow<'_, str>> {
    if !output.get().starts_with('{') {
        return scalar(output);
    }
    let Elements::Object(entries) = elements(output)? else {
        return None;
    };
    let is_divert = |key: &RawValue| scalar(key).as_deref() == Some("divert");
    let field = entries.iter().rev().find(|(key, _)| is_divert(key));
    scalar(field?.1)
}

/// A string without its quotes, a number or boolean as written.
fn scalar(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(text).ok().map(Cow::Owned),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(text)),
    }
}
