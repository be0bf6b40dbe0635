//! Pictures as they are written: some to look at, and the properties of each of them.

use std::path::Path as File;

use super::*;
use crate::definition::{Definition, NodeIndex, yaml};
use crate::model::Hook;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Pipelines that are drawn into `tests/svg`.
const DRAWN: [(&str, &str); 5] = [
    (
        "chain",
        "{ start: Fetch }, { chain: Store }, { dampen: 'Publish it?' }, { chain: Publish }",
    ),
    (
        "divide",
        "{ start: Query }, { expand: LoadUser }, { divide: [Orders, Visits] }, { combine: Merge }, { collapse: Report }",
    ),
    (
        "divert",
        "{ start: Classify }, { divert: { invoice: [ReadInvoice, { chain: Book }], 'a letter': [Scan, \
         { divide: [Archive, Answer] }], otherwise: Refuse } }, { converge: Close }",
    ),
    (
        "nested",
        "{ start: Years }, { expand: Months }, { expand: Days }, { divert: { holiday: Skip, otherwise: [Load, \
         { divide: [Clean, [Check, { chain: Sign }]] }, { combine: Save }] } }, { converge: Count }, \
         { collapse: SumMonth }, { collapse: SumYear }",
    ),
    (
        "open",
        "{ start: Split }, { divide: [A, [B, { expand: C }], [D, { divide: [E, F] }]] }",
    ),
];

/// A pipeline of these transitions.
fn pipeline(flow: &str) -> Definition {
    let mut names: Vec<&str> = flow
        .split(|char: char| !char.is_ascii_alphanumeric())
        .filter(|word| {
            word.starts_with(|first: char| first.is_ascii_uppercase()) && *word != "Publish it"
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    let steps: Vec<String> = names
        .iter()
        .chain(&["Notify"])
        .map(|name| format!("{name}: {{ command: [x] }}"))
        .collect();
    let steps = steps.join(", ");
    let text = format!("pipeline: P\non_halt: Notify\nsteps: {{ {steps} }}\nflow: [{flow}]\n");
    let read = yaml::parse(&text, File::new("p.yml"));
    read.unwrap_or_else(|problems| panic!("{problems}"))
}

/// A halfway finished run: each node has a state of its own.
fn states(definition: &Definition, layout: &Layout) -> BTreeMap<Part, NodeState> {
    let all = NodeState {
        total: 1,
        completed: 1,
        ..NodeState::default()
    };
    let wide = NodeState {
        total: 1_000_000,
        completed: 734_000,
        running: 20,
        failed: 38,
        ..NodeState::default()
    };
    let inside = |at: usize| layout.frames.iter().any(|frame| frame.nodes.contains(&at));
    let half = definition.nodes.len() / 2;
    let of_node = |at: usize| match at {
        at if inside(at) && at <= half => wide,
        at if inside(at) => NodeState {
            failed: 0,
            running: 4_012,
            ..wide
        },
        at if at < half => all,
        at if at == half => match definition.nodes[at].step {
            Some(_) => NodeState {
                completed: 0,
                retrying: 1,
                ..all
            },
            None => NodeState {
                completed: 0,
                waiting: 1,
                ..all
            },
        },
        _ => NodeState::default(),
    };
    let nodes = (0..definition.nodes.len()).map(|at| (Part::Node(NodeIndex(at)), of_node(at)));
    let frames = layout
        .frames
        .iter()
        .map(|frame| (Part::Fan(frame.opener), wide));
    let hooks = [(Part::Hook(Hook::Halt), NodeState::default())];
    nodes.chain(frames).chain(hooks).collect()
}

/// The elements of a picture by their names, after a check that each is closed in its turn, and that
/// text and values are escaped.
fn elements(svg: &str) -> Vec<String> {
    let (mut found, mut open): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let visible = |char: char| {
        char == '\n' || !char.is_control() && !('\u{202a}'..='\u{202e}').contains(&char)
    };
    assert!(svg.chars().all(visible));
    let mut rest = svg;
    while let Some(begin) = rest.find('<') {
        let text = &rest[..begin];
        assert!(
            open.is_empty() == text.trim().is_empty() || text.trim().is_empty(),
            "{text:?}"
        );
        assert!(
            !text.contains('>') || open.last().is_some_and(|it| it == "style"),
            "{text:?}"
        );
        entities(text);
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let (tag, closed) = tag
            .strip_suffix('/')
            .map_or((tag, false), |tag| (tag, true));
        let (name, mut values) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut keys = Vec::new();
        while !values.trim().is_empty() {
            let (key, value) = values.split_once("=\"").expect("key=\"value\"");
            let (value, more) = value.split_once('"').expect("a quote ends");
            assert!(more.is_empty() || more.starts_with(' '), "{tag}");
            entities(value);
            keys.push(key.trim().to_owned());
            values = more;
        }
        let forbidden = |key: &String| key == "style" || key.starts_with("on");
        assert!(!keys.iter().any(forbidden), "{tag}");
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count, "{tag}");
        found.push(name.to_owned());
        if !closed {
            open.push(name.to_owned());
        }
    }
    assert!(
        open.is_empty() && rest.trim().is_empty(),
        "{open:?} {rest:?}"
    );
    assert!(!found.iter().any(|name| name == "script"));
    found
}

fn entities(text: &str) {
    for part in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(
            known.iter().any(|entity| part.starts_with(entity)),
            "{text:?}"
        );
    }
}

fn count(elements: &[String], name: &str) -> usize {
    elements.iter().filter(|element| *element == name).count()
}

#[test]
fn pictures_are_as_they_were_looked_at() {
    let airports =
        std::fs::read_to_string(format!("{ROOT}/examples/airports/pipelines/airports.yml"));
    let airports = yaml::parse(&airports.expect("the example"), File::new("airports.yml"));
    let airports = airports.unwrap_or_else(|problems| panic!("{problems}"));
    let drawn = DRAWN.iter().map(|(name, flow)| (*name, pipeline(flow)));
    let mut drifted = Vec::new();
    for (name, definition) in drawn.chain([("airports", airports)]) {
        let layout = Layout::of(&definition).expect("it can be drawn");
        let states = match name {
            // As before a run.
            "open" => BTreeMap::new(),
            _ => states(&definition, &layout),
        };
        let picture = Picture {
            title: name,
            layout: &layout,
            states: &states,
            link: None,
            style: Some("@import url(../../src/svg.css);\n"),
        };
        let svg = picture.svg();
        let elements = elements(&svg);
        assert_eq!(count(&elements, "marker"), 2);
        let lines = layout.lines.len() + 2;
        assert_eq!(
            count(&elements, "path"),
            lines,
            "an edge each, and two arrows"
        );
        assert_eq!(
            count(&elements, "g"),
            layout.boxes.len() + layout.frames.len()
        );
        let file = format!("{ROOT}/tests/svg/{name}.svg");
        if std::env::var_os("DUCTWORK_BLESS").is_some() {
            std::fs::write(&file, &svg).expect("tests/svg can be written");
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != svg {
            drifted.push(file);
        }
    }
    assert!(
        drifted.is_empty(),
        "look at them, with DUCTWORK_BLESS=1: {drifted:?}"
    );
}

#[test]
fn names_that_would_be_markup_or_steer_a_reader_are_text() {
    let hostile = [
        "</text></svg><script>alert(1)</script>".to_owned(),
        "\" onload=\"alert(1)\" x='".to_owned(),
        "]]>&lt;&#x3c;".to_owned(),
        "a\u{202e}txt.exe\u{2066}\u{feff}".to_owned(),
        "\u{1b}[31mred\u{0}\u{7}\r\n\t\u{9b}31m".to_owned(),
        "漢字🎉\u{301}\u{301}\u{301}".to_owned(),
        "javascript:alert(1)".to_owned(),
        "<".repeat(10_000),
        String::new(),
    ];
    for name in &hostile {
        let mut definition = pipeline("{ start: A }, { divert: { x: B, otherwise: C } }");
        // A database may hold names that the checks of a pipeline refuse.
        definition.nodes[1].name = name.clone();
        definition.on_halt = Some(name.clone());
        let crate::definition::Edge::Divert { cases, .. } = &mut definition.nodes[0].next else {
            panic!("a divert");
        };
        cases[0].when = name.clone();
        let layout = Layout::of(&definition).expect("it can be drawn");
        let states = states(&definition, &layout);
        let picture = Picture {
            title: name,
            layout: &layout,
            states: &states,
            link: Some("/runs/1/steps?a=\"&node={}"),
            style: None,
        };
        let svg = picture.svg();
        let elements = elements(&svg);
        assert_eq!((count(&elements, "a"), count(&elements, "g")), (4, 0));
        assert!(
            svg.contains("&amp;node=%28on_halt%29\""),
            "a hook's step has a node of its own"
        );
        assert_eq!(count(&elements, "style"), 0);
        assert!(svg.len() < 150_000, "{}", svg.len());
        let addresses = svg.split("href=\"").skip(1);
        for address in addresses.filter_map(|rest| rest.split('"').next()) {
            let name = address.strip_prefix("/runs/1/steps?a=&quot;&amp;node=");
            let name = name.expect("the beginning of every address");
            let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
            assert!(name.bytes().all(safe), "{name}");
        }
    }
}

#[test]
fn a_node_says_its_state_by_sign_word_and_colour() {
    let steps = |total, completed, running| NodeState {
        total,
        completed,
        running,
        ..NodeState::default()
    };
    for (state, sign, told) in [
        (
            steps(0, 0, 0),
            "<tspan class=\"word\">·</tspan> not reached",
            "not reached",
        ),
        (
            steps(1, 0, 0),
            "<tspan class=\"busy\">○</tspan> queued",
            "queued",
        ),
        (
            steps(1, 0, 1),
            "<tspan class=\"busy\">●</tspan> running",
            "running",
        ),
        (
            steps(1, 1, 0),
            "<tspan class=\"good\">✓</tspan> completed",
            "completed",
        ),
        (
            NodeState {
                failed: 1,
                ..steps(1, 0, 0)
            },
            "<tspan class=\"bad\">✗</tspan> failed",
            "failed",
        ),
        (
            NodeState {
                waiting: 1,
                ..steps(1, 0, 0)
            },
            "<tspan class=\"asks\">?</tspan> waiting",
            "waiting",
        ),
        (
            NodeState {
                retrying: 1,
                ..steps(1, 0, 1)
            },
            "<tspan class=\"busy\">↻</tspan> retrying",
            "retrying",
        ),
        (
            NodeState {
                cancelled: 1,
                ..steps(1, 0, 0)
            },
            "<tspan class=\"word\">–</tspan> cancelled",
            "cancelled",
        ),
        (
            steps(5, 0, 0),
            "<tspan class=\"busy\">○</tspan> queued",
            "queued; of 5 steps none has begun",
        ),
        (
            steps(1_000_000, 734_999, 20),
            "<tspan class=\"good\">✓</tspan> 734k\u{a0} <tspan class=\"busy\">●</tspan> 20",
            "running; of 1,000,000 steps 734,999 completed, 20 running",
        ),
        (
            // The least important is left out where there is no room.
            NodeState {
                failed: 1_200,
                waiting: 1_200,
                ..steps(99_999, 30_000, 2_400)
            },
            "<tspan class=\"asks\">?</tspan> 1.2k\u{a0} <tspan class=\"bad\">✗</tspan> 1.2k",
            "failed; of 99,999 steps 30,000 completed, 2,400 running, 1,200 waiting, 1,200 failed",
        ),
    ] {
        assert_eq!(state.signs(COUNTS), sign);
        assert_eq!(state.told("steps"), told);
    }
}

#[test]
fn numbers_are_short_and_never_more_than_they_are() {
    for (number, text) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1k"),
        (1_999, "1.9k"),
        (12_402, "12k"),
        (999_999, "999k"),
        (1_000_000, "1M"),
        (u64::MAX, "18E"),
    ] {
        assert_eq!(short(number), text);
        assert!(short(number).len() <= 4);
    }
}
