//! The differences between two definitions of one pipeline, in people's words and line by line.
//!
//! Owns: the comparison, by the names of steps and nodes, and of the canonical forms. Never: judges whether a run may change from
//! the one to the other (`machine::revive` does).

use std::collections::BTreeSet;

use super::graph::{Definition, Edge, Node, Target, Then};
use crate::model::Hook;

/// The differences between `old` and `new`, each as a few words.
pub fn differences(old: &Definition, new: &Definition) -> Vec<String> {
    let mut found = Vec::new();
    let steps: BTreeSet<&String> = old.steps.keys().chain(new.steps.keys()).collect();
    for step in steps {
        match (old.steps.get(step), new.steps.get(step)) {
            (Some(_), None) => found.push(format!("the step `{step}` is gone")),
            (None, Some(_)) => found.push(format!("the step `{step}` is new")),
            (old, new) if old != new => found.push(format!("the step `{step}` has changed")),
            _ => {}
        }
    }
    for node in &old.nodes {
        let (name, old) = (&node.name, spelled(old, node));
        let there = new.find(name).map(|index| spelled(new, new.node(index)));
        match there {
            Some(new) if new != old => found.push(format!("what follows `{name}` has changed")),
            None if node.step.as_ref() != Some(name) => found.push(format!("`{name}` is gone")),
            _ => {}
        }
    }
    for hook in Hook::ALL {
        if old.hook(*hook) != new.hook(*hook) {
            found.push(format!("`{hook}` has changed"));
        }
    }
    if old.input != new.input {
        found.push("`input` has changed".to_owned());
    }
    if old.trace != new.trace {
        found.push("`trace` has changed".to_owned());
    }
    if found.is_empty() && old != new {
        found.push("its order or a delay has changed".to_owned());
    }
    found
}

/// A node's question and edge, with names in place of positions.
fn spelled(definition: &Definition, node: &Node) -> String {
    let name = |to: &Target| {
        let name = &definition.node(to.node).name;
        format!("{name} {:?}", to.delay)
    };
    let then = |then: &Then| match then {
        Then::End => "end".to_owned(),
        Then::Combine(to) => format!("combine {}", name(to)),
        Then::Collapse(to) => format!("collapse {}", name(to)),
        Then::Converge(to) => format!("converge {}", name(to)),
    };
    let edge = match &node.next {
        Edge::End => "end".to_owned(),
        Edge::Chain(to) => format!("chain {}", name(to)),
        Edge::Converge(to) => format!("converge {}", name(to)),
        Edge::Dampen(at) => format!("dampen {}", definition.node(*at).name),
        Edge::Divide { paths, then: after } => {
            let paths: Vec<String> = paths.iter().map(name).collect();
            format!("divide {paths:?} {}", then(after))
        }
        Edge::Expand { to, then: after } => format!("expand {} {}", name(to), then(after)),
        Edge::Divert { cases, otherwise } => {
            let cases = cases.iter().map(|case| (&case.when, name(&case.to)));
            let cases: Vec<(&String, String)> = cases.collect();
            format!("divert {cases:?} {}", name(otherwise))
        }
    };
    format!("{:?} {:?} {edge}", node.prompt, node.deadline)
}

/// The most lines that are shown, and the most letters of a line.
const LINES: usize = 1_000;
const LETTERS: usize = 200;

/// The number of equal lines that are shown before a change and after it.
const AROUND: usize = 3;

/// Two texts of so many different lines that the product is larger are not compared line by line: all of the old ones
/// are gone, and all of the others are new.
const PAIRS: usize = 1_000_000;

/// The canonical forms of two definitions, compared line by line: a line that is gone begins with `-`, a new one with `+`.
pub fn by_line(old: &Definition, new: &Definition) -> String {
    let (old, new) = (pretty(old), pretty(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    drawn(&marked(&old, &new))
}

fn pretty(definition: &Definition) -> String {
    let canonical: serde_json::Value =
        serde_json::from_str(&definition.canonical()).expect("the canonical form is JSON");
    serde_json::to_string_pretty(&canonical).expect("JSON can be written")
}

/// All lines of both texts, each with its mark.
fn marked<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let before = old.iter().zip(new).take_while(|(old, new)| old == new);
    let before = before.count();
    let ends = old[before..].iter().rev().zip(new[before..].iter().rev());
    let after = ends.take_while(|(old, new)| old == new).count();
    let (kept, last) = (&old[..before], &old[old.len() - after..]);
    let equal = |line: &&'a str| (' ', *line);
    let mut marked: Vec<(char, &str)> = kept.iter().map(equal).collect();
    between(
        &old[before..old.len() - after],
        &new[before..new.len() - after],
        &mut marked,
    );
    marked.extend(last.iter().map(equal));
    marked
}

/// The same for texts that begin and end differently, by their longest common subsequence (the textbook's table, from the
/// end of both texts).
fn between<'a>(old: &[&'a str], new: &[&'a str], marked: &mut Vec<(char, &'a str)>) {
    let is_large = old.len().saturating_mul(new.len()) > PAIRS;
    let width = new.len() + 1;
    // The length of what `old[i..]` and `new[j..]` have in common.
    let mut common = vec![0_u32; if is_large { 0 } else { (old.len() + 1) * width }];
    if !is_large {
        for i in (0..old.len()).rev() {
            for j in (0..new.len()).rev() {
                common[i * width + j] = match old[i] == new[j] {
                    true => common[(i + 1) * width + j + 1] + 1,
                    false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
                };
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let both = i < old.len() && j < new.len();
        if both && !is_large && old[i] == new[j] {
            marked.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || both && (is_large || common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            marked.push(('-', old[i]));
            i += 1;
        } else {
            marked.push(('+', new[j]));
            j += 1;
        }
    }
}

/// The changed lines and those around them.
fn drawn(marked: &[(char, &str)]) -> String {
    let mut near = vec![false; marked.len()];
    for at in (0..marked.len()).filter(|at| marked[*at].0 != ' ') {
        let end = marked.len().min(at + AROUND + 1);
        near[at.saturating_sub(AROUND)..end].fill(true);
    }
    let (mut text, mut shown, mut last) = (String::new(), 0, None);
    for (at, (mark, line)) in marked.iter().enumerate().filter(|(at, _)| near[*at]) {
        if shown == LINES {
            text.push_str("… and more\n");
            break;
        }
        if last.map_or(at > 0, |last| at > last + 1) {
            text.push_str("…\n");
        }
        let mut letters = line.chars();
        let begin: String = letters.by_ref().take(LETTERS).collect();
        let cut = if letters.next().is_some() { "…" } else { "" };
        text.push_str(&format!("{mark} {begin}{cut}\n"));
        (shown, last) = (shown + 1, Some(at));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::definition::{Pipeline, RunTrace, StepSpec};

    fn built(pipeline: Pipeline) -> Definition {
        pipeline.build().expect("it is well formed")
    }

    #[test]
    fn what_differs_is_named() {
        let pipeline = || Pipeline::named("P").start("A").chain("B").chain("C");
        let old = built(pipeline());
        assert_eq!(differences(&old, &old), [""; 0]);
        let slow = StepSpec::command(["b"]).timeout(Duration::from_secs(9));
        let new = built(pipeline().step("B", slow));
        assert_eq!(differences(&old, &new), ["the step `B` has changed"]);
        let new = built(pipeline().on_halt("A"));
        assert_eq!(differences(&old, &new), ["`on_halt` has changed"]);
        let new = built(pipeline().input(BTreeMap::from([("type", "string")])));
        assert_eq!(differences(&old, &new), ["`input` has changed"]);
        let new = built(pipeline().trace(RunTrace::Parent));
        assert_eq!(differences(&old, &new), ["`trace` has changed"]);
        let new = built(Pipeline::named("P").start("A").chain("X").chain("C"));
        assert_eq!(
            differences(&old, &new),
            [
                "the step `B` is gone",
                "the step `X` is new",
                "what follows `A` has changed",
            ]
        );
        let new = built(Pipeline::named("P").start("A").chain("B").expand("C"));
        assert_eq!(differences(&old, &new), ["what follows `B` has changed"]);
    }

    #[test]
    fn changed_lines_are_shown_with_those_around_them() {
        let told = |old: &str, new: &str| {
            let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
            drawn(&marked(&old, &new))
        };
        assert_eq!(told("a\nb\nc", "a\nb\nc"), "");
        assert_eq!(told("a\nb\nc", "a\nx\nc"), "  a\n- b\n+ x\n  c\n");
        assert_eq!(told("a\na", "a\na\na"), "  a\n  a\n+ a\n");
        assert_eq!(told("", "a"), "+ a\n");
        // Equal lines in the middle are found there, and lines far from any change are left out.
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\nx\n10";
        let new = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10";
        let seen = "+ 0\n  1\n  2\n  3\n…\n  7\n  8\n  9\n- x\n  10\n";
        assert_eq!(told(old, new), seen);
        // However long they are.
        let many = |from: usize| {
            (from..from + 3_000)
                .map(|n| format!("{n}\n"))
                .collect::<String>()
        };
        let long = told(&many(0), &many(9_000));
        assert!(
            long.starts_with("- 0\n") && long.ends_with("… and more\n"),
            "{long}"
        );
        assert_eq!(long.lines().count(), LINES + 1);
        assert!(told("", &"é".repeat(5_000)).chars().count() < 250);
    }

    #[test]
    fn definitions_are_compared_in_their_canonical_form() {
        let pipeline = |program: &str| {
            let pipeline = Pipeline::named("P").start("A").chain("B");
            built(pipeline.step("B", StepSpec::command([program])))
        };
        let told = by_line(&pipeline("old"), &pipeline("new"));
        let changed: Vec<&str> = told.lines().filter(|line| !line.starts_with(' ')).collect();
        let lines = |mark: &str, word: &str| {
            changed
                .iter()
                .any(|it| it.starts_with(mark) && it.contains(word))
        };
        assert!(lines("-", "\"old\"") && lines("+", "\"new\""), "{told}");
    }
}
