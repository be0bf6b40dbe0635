//! The table of the first action of a revived branch.

use super::{code, table};
use crate::definition::{Definition, Path, Pipeline};
use crate::machine::revive::{
    EndFact, FanOutFact, HaltedView, Left, Origin, Restart, Shape, StepFact, disagreements, restart,
};
use crate::model::StepStatus;

/// It was split; a person gave the output; the next transition can take the output.
const CASES: [(bool, bool, bool); 8] = [
    (false, false, true),
    (false, true, true),
    (false, false, false),
    (false, true, false),
    (true, false, true),
    (true, true, true),
    (true, false, false),
    (true, true, false),
];

#[test]
fn only_a_step_with_an_output_is_advanced_again() {
    for step in StepStatus::ALL.iter().copied() {
        for (split, asked, fits) in CASES {
            let expected = match (step.as_str(), split, fits, asked) {
                ("failed", false, _, true) => Some(Restart::Ask),
                ("failed", false, ..) => Some(Restart::Run),
                ("completed", true, ..) => Some(Restart::Arrive),
                ("completed", false, true, _) => Some(Restart::Advance),
                ("completed", false, false, true) => Some(Restart::Ask),
                ("completed", false, false, false) => Some(Restart::Run),
                _ => None,
            };
            let view = HaltedView {
                step,
                split,
                asked,
                fits,
            };
            assert_eq!(restart(view), expected, "{view:?}");
        }
    }
}

fn step(node: &str, via: &str, from: Origin) -> Shape {
    let step = StepFact {
        node: node.to_owned(),
        step: node.to_owned(),
        via: via.to_owned(),
        from,
    };
    Shape {
        steps: vec![step],
        ..Shape::default()
    }
}

fn after(node: &str, left: Left) -> Origin {
    let node = node.to_owned();
    Origin::Node { node, left }
}

fn of(node: &str, path: Option<i64>) -> Origin {
    let node = node.to_owned();
    Origin::FanOut { node, path }
}

fn fan_out(node: &str, paths: Option<i64>) -> Shape {
    let node = node.to_owned();
    Shape {
        fan_outs: vec![FanOutFact { node, paths }],
        ..Shape::default()
    }
}

fn end(node: &str, left: Left) -> Shape {
    let node = node.to_owned();
    Shape {
        ends: vec![EndFact { node, left }],
        ..Shape::default()
    }
}

fn definition() -> Definition {
    let diverted = [
        ("x", Path::to("Thin")),
        ("y", Path::from("Many").expand("Each")),
    ];
    Pipeline::named("P")
        .start("Read")
        .chain("Ask")
        .dampen("well?")
        .chain("Split")
        .divide([Path::to("Left"), Path::from("Right").chain("More")])
        .combine("List")
        .expand("Load")
        .collapse("Choose")
        .divert(diverted, "Else")
        .converge("Close")
        .build()
        .expect("it is well formed")
}

#[test]
fn a_run_agrees_with_a_definition_that_could_have_brought_it_there() {
    let definition = definition();
    let dampen = definition.nodes.iter().find(|node| node.step.is_none());
    let dampen = dampen.expect("somebody is asked").name.clone();
    let asked = |from| {
        let mut shape = step(&dampen, "dampen", from);
        shape.steps[0].step = "dampen".to_owned();
        shape
    };
    let agree = [
        step("Read", "start", Origin::Start),
        step("Ask", "chain", after("Read", Left::Whole)),
        // All transitions that pass an output on to one step count the same.
        step("Ask", "divert", after("Read", Left::Whole)),
        asked(after("Ask", Left::Whole)),
        step("Split", "chain", after(&dampen, Left::Whole)),
        step("Left", "divide", of("Split", Some(0))),
        step("Right", "divide", of("Split", Some(1))),
        step("More", "chain", after("Right", Left::Whole)),
        step("List", "combine", after("Split", Left::Split)),
        step("Load", "expand", of("List", None)),
        step("Choose", "collapse", after("List", Left::Split)),
        // There was nothing to expand.
        step("Choose", "collapse", after("List", Left::Empty)),
        step("Thin", "divert", after("Choose", Left::Whole)),
        step("Else", "divert", after("Choose", Left::Whole)),
        step("Each", "expand", of("Many", None)),
        step("Close", "converge", after("Thin", Left::Whole)),
        step("Close", "converge", after("Many", Left::Split)),
        fan_out("Split", Some(2)),
        fan_out("List", None),
        end("Left", Left::Whole),
        end("More", Left::Whole),
        end("Load", Left::Whole),
        end("Close", Left::Whole),
    ];
    for shape in agree {
        assert_eq!(disagreements(&definition, &shape), [], "{shape:?}");
    }
}

#[test]
fn a_run_that_a_definition_could_not_have_brought_there_is_told_by_its_node() {
    let definition = definition();
    let mut other = step("Read", "start", Origin::Start);
    other.steps[0].step = "Other".to_owned();
    let disagree = [
        (
            step("Gone", "chain", after("Read", Left::Whole)),
            "it has no `Gone`",
        ),
        (other, "`Read` is another step there"),
        (
            step("Ask", "start", Origin::Start),
            "it does not begin with `Ask`",
        ),
        (
            step("Split", "chain", after("Ask", Left::Whole)),
            "`Ask` does not lead to `Split` there as it did in the run",
        ),
        (
            step("Thin", "converge", after("Close", Left::Whole)),
            "`Close` does not lead to `Thin` there as it did in the run",
        ),
        (
            step("Choose", "chain", after("List", Left::Whole)),
            "`List` does not lead to `Choose` there as it did in the run",
        ),
        // It had elements, but nothing was run for them.
        (
            step("Choose", "collapse", after("List", Left::Whole)),
            "`List` does not lead to `Choose` there as it did in the run",
        ),
        (
            step("List", "combine", after("Split", Left::Whole)),
            "`Split` does not lead to `List` there as it did in the run",
        ),
        (
            step("Ask", "chain", after("Read", Left::Split)),
            "`Read` does not lead to `Ask` there as it did in the run",
        ),
        (
            step("Left", "divide", of("Split", Some(1))),
            "path 2 of the divide after `Split` does not begin with `Left` there",
        ),
        (
            step("Left", "divide", of("Split", Some(2))),
            "path 3 of the divide after `Split` does not begin with `Left` there",
        ),
        (
            step("Each", "expand", of("List", None)),
            "`List` does not expand to `Each` there",
        ),
        (
            fan_out("Split", Some(3)),
            "`Split` does not divide into 3 paths there",
        ),
        (
            fan_out("List", Some(2)),
            "`List` does not divide into 2 paths there",
        ),
        (fan_out("Split", None), "`Split` does not expand there"),
        (fan_out("Read", None), "`Read` does not expand there"),
        (
            end("Right", Left::Whole),
            "branches that ended after `Right` would have more to do there",
        ),
        (
            end("Split", Left::Split),
            "branches that ended after `Split` would have more to do there",
        ),
        (
            end("Load", Left::Split),
            "branches that ended after `Load` would have more to do there",
        ),
    ];
    for (shape, expected) in disagree {
        let found = disagreements(&definition, &shape);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, [expected], "{shape:?}");
    }
}

pub fn chapter() -> String {
    let told = |step, (split, asked, fits)| {
        match restart(HaltedView {
            step,
            split,
            asked,
            fits,
        }) {
            Some(Restart::Run) => "its step runs again, with the same input",
            Some(Restart::Ask) => "a person is asked again",
            Some(Restart::Advance) => "it is advanced again",
            Some(Restart::Arrive) => "its last branch arrives anew, the barrier fires again",
            None => "–",
        }
        .to_owned()
    };
    let rows = StepStatus::ALL.iter().map(|step| {
        for whatever in [[4, 5, 6], [4, 7, 7]] {
            let [one, two, three] = whatever.map(|case| told(*step, CASES[case]));
            assert_eq!((&one, &one), (&two, &three), "{step}");
        }
        let mut row = vec![code(step)];
        row.extend([0, 1, 2, 3, 4].map(|case| told(*step, CASES[case])));
        row
    });
    let head = [
        "its step is",
        "not split",
        "not split, and a person was asked there",
        "not split, and the next transition cannot take the output",
        "the same, and a person gave that output",
        "split, and all had arrived",
    ];
    format!(
        "## 5. Reviving a halted branch\n\n\
         For a branch that halted by itself; one that halted because branches of its fan-out did\n\
         waits for them again. The reason of the halt is not asked: what counts is whether the step\n\
         has an output, and whether that can be used: an expand takes nothing but a list or an object.\n\
         A dash is what no halt leaves behind.\n\n{}",
        table(&head, rows)
    )
}
