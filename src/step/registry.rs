//! The native steps of a program that embeds the library.
//!
//! Owns: names joined to functions, with their inputs and outputs as JSON. Never: runs them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::StepError;
use super::context::{BoxFuture, StepContext};
use crate::problem::Problem;

/// The answer of a native step.
pub(super) type Answer = Result<Box<RawValue>, StepError>;

/// A native step with its types erased.
pub(super) enum Body {
    Async(Box<dyn Fn(StepContext) -> BoxFuture<'static, Answer> + Send + Sync>),
    Blocking(Arc<dyn Fn(StepContext) -> Answer + Send + Sync>),
}

/// The native steps that a program offers.
#[derive(Default)]
pub struct Registry {
    steps: HashMap<String, Body>,
    twice: Vec<String>,
}

impl Registry {
    /// A registry without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an async step. It is dropped at its timeout, at its next `await`.
    pub fn step<F, Fut, I, O, E>(self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(StepContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: Into<StepError> + 'static,
    {
        let function = Arc::new(function);
        self.add(
            name.into(),
            Body::Async(Box::new(move |context| {
                let function = Arc::clone(&function);
                // The function is called by the task, not here: its first lines may do anything.
                Box::pin(async move {
                    let running = function(context.clone(), input(&context)?);
                    answer(running.await)
                })
            })),
        )
    }

    /// Adds a step that blocks its thread. It cannot be ended from outside: at its timeout
    /// [`StepContext::is_cancelled`] becomes true, and if the step then does not return in time, it
    /// has timed out, but its thread goes on. It may run beside its own next attempt: guard its side
    /// effects with the fencing token.
    pub fn blocking_step<F, I, O, E>(self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(StepContext, I) -> Result<O, E> + Send + Sync + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: Into<StepError> + 'static,
    {
        self.add(
            name.into(),
            Body::Blocking(Arc::new(move |context| {
                let input = input(&context)?;
                answer(function(context, input))
            })),
        )
    }

    fn add(mut self, name: String, body: Body) -> Self {
        match self.steps.entry(name) {
            Entry::Occupied(first) => self.twice.push(first.key().clone()),
            Entry::Vacant(place) => {
                place.insert(body);
            }
        }
        self
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.keys().map(String::as_str)
    }

    /// The mistakes in the registration itself.
    pub fn problems(&self) -> Vec<Problem> {
        self.twice
            .iter()
            .map(|name| Problem::new(format!("two native steps are called `{name}`")))
            .collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Body> {
        self.steps.get(name)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_set().entries(self.steps.keys()).finish()
    }
}

fn input<I: DeserializeOwned>(context: &StepContext) -> Result<I, StepError> {
    serde_json::from_str(context.assignment().input.get()).map_err(|error| {
        let wanted = short_name(std::any::type_name::<I>());
        StepError::new(
            "input_invalid",
            format!("the input is no `{wanted}`: {error}"),
        )
        .no_retry()
    })
}

fn answer<O: Serialize, E: Into<StepError>>(answer: Result<O, E>) -> Answer {
    let output = answer.map_err(Into::into)?;
    serde_json::value::to_raw_value(&output).map_err(|error| {
        StepError::new("output_invalid", format!("the output is not JSON: {error}"))
    })
}

/// A type's name without the modules that its parts are in.
fn short_name(name: &str) -> String {
    let mut short = String::new();
    for part in name.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
        short.push_str(part.rsplit("::").next().unwrap_or(part));
    }
    short
}

#[cfg(test)]
mod tests {
    #[test]
    fn types_are_named_without_their_modules() {
        for (name, short) in [
            ("alloc::string::String", "String"),
            ("alloc::vec::Vec<(my_app::Row, u32)>", "Vec<(Row, u32)>"),
            ("&str", "&str"),
        ] {
            assert_eq!(super::short_name(name), short);
        }
    }
}
