//! An attempt at a step, in words for people.
//!
//! Owns: the words for an error, with the element of the fan-out where it happened. Never: colours.

use crate::step::verdict::OUTPUT_INVALID;
use crate::store::query::{ExecutionRow, Spread};
use crate::view;

use super::out::{clean, short};

/// The number of an error's characters that are shown.
const ROOM: usize = 200;

/// The error of an attempt on one line; nothing if it had none.
pub fn error(execution: &ExecutionRow) -> Option<String> {
    let result = execution.result?;
    let message = execution.error_message.as_deref().map(str::trim);
    let message = message.filter(|message| !message.is_empty());
    let class = execution.error_class.as_deref();
    Some(told(result.as_str(), class, message))
}

/// The advice at the end of an error's message, for a line of its own: a narrow terminal would cut it off.
pub fn advice(execution: &ExecutionRow) -> Option<&str> {
    let message = execution.error_message.as_deref()?;
    let output = execution.error_class.as_deref() == Some(OUTPUT_INVALID);
    view::attempt::parted(message).1.filter(|_| output)
}

/// An error in words, on one line.
pub fn told(result: &str, class: Option<&str>, message: Option<&str>) -> String {
    short(&view::attempt::error(result, class, message), ROOM)
}

/// The element of the fan-out: nothing on a run's root branch. For nested fan-outs, the nodes are named as
/// well, outermost first.
pub fn element(spreads: &[Spread]) -> String {
    // A path of a divide has a node of its own, whose name says enough.
    let expands = spreads.iter().rev().filter(|spread| spread.via == "expand");
    let expands: Vec<&Spread> = expands.collect();
    let one = |spread: &&Spread| {
        let place = format!("element {} of {}", spread.ordinal + 1, spread.width);
        match expands.len() {
            1 => place,
            _ => format!("{place} from {}", clean(&spread.node)),
        }
    };
    expands.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_counted_from_one_and_outermost_first() {
        let spread = |node: &str, ordinal, width, via: &str| Spread {
            node: node.to_owned(),
            via: via.to_owned(),
            ordinal,
            width,
        };
        let inner = spread("B", 2, 3, "expand");
        let path = spread("C", 0, 2, "divide");
        let outer = spread("A", 16, 56, "expand");
        assert_eq!(
            element(&[inner, path, outer]),
            "element 17 of 56 from A, element 3 of 3 from B"
        );
        let outer = spread("A", 16, 56, "expand");
        assert_eq!(element(&[outer]), "element 17 of 56");
        assert_eq!(element(&[]), "");
    }
}
