//! The workload: pipelines, and the output that each of them must have.
//!
//! A step's output is its nonce, or a list of its nonce with the places of a fan-out. So an input
//! shows the steps whose outputs it was made of, and their order.

/// The step that all nodes run.
pub const STEP: &str = include_str!("step.sh");

/// Retries of each step; a step that fails more often fails for good.
pub const MAX_RETRY: u32 = 2;

/// The source of a node's input.
#[derive(Debug)]
pub enum Input {
    /// The trigger of the run.
    Trigger,
    /// The output of this node.
    Of(&'static str),
    /// One element of this node's output.
    Element(&'static str),
    /// The list of these nodes' results, in this order.
    Both(&'static [&'static str]),
    /// The list of this node's results for each of this many elements.
    Gathered(&'static str, usize),
}

/// A node of a pipeline, and the step of the same name.
#[derive(Debug)]
pub struct Node {
    pub name: &'static str,
    pub input: Input,
    /// The number of elements of its output; 0: it is no list.
    pub fan: usize,
    /// The number of first attempts that fail.
    pub fails: u32,
    /// The number of revivals after which it succeeds; until then it fails for good. The reviving
    /// client fixes it first.
    pub sick: u32,
    /// The argument of `sleep`, in seconds.
    pub takes: &'static str,
}

/// A pipeline. Its nodes come after those that they depend on; the last one ends it.
#[derive(Debug)]
pub struct Shape {
    pub pipeline: &'static str,
    flow: &'static str,
    pub nodes: &'static [Node],
}

const fn node(
    name: &'static str,
    input: Input,
    fan: usize,
    fails: u32,
    takes: &'static str,
) -> Node {
    Node {
        name,
        input,
        fan,
        fails,
        sick: 0,
        takes,
    }
}

const fn sick(name: &'static str, input: Input, revivals: u32, takes: &'static str) -> Node {
    let mut node = node(name, input, 0, 0, takes);
    node.sick = revivals;
    node
}

/// All pipelines.
pub static SHAPES: &[Shape] = &[
    Shape {
        pipeline: "Line",
        flow: "[{ start: First }, { chain: Flaky }, { chain: Slow }, { chain: Last }]",
        nodes: &[
            node("First", Input::Trigger, 0, 0, "0"),
            node("Flaky", Input::Of("First"), 0, 1, "0"),
            node("Slow", Input::Of("Flaky"), 0, 0, "0.7"),
            node("Last", Input::Of("Slow"), 0, 0, "0.05"),
        ],
    },
    Shape {
        pipeline: "Diamond",
        flow: "[{ start: Top }, { divide: [East, West] }, { combine: Bottom }, { chain: Foot }]",
        nodes: &[
            node("Top", Input::Trigger, 0, 0, "0.02"),
            node("East", Input::Of("Top"), 0, 2, "0.01"),
            node("West", Input::Of("Top"), 0, 0, "0.2"),
            node("Bottom", Input::Both(&["East", "West"]), 0, 0, "0"),
            node("Foot", Input::Of("Bottom"), 0, 0, "0"),
        ],
    },
    Shape {
        pipeline: "Nested",
        flow: "[{ start: Split }, { expand: Work }, { divide: [Left, [Right, { chain: Tail }]] }, \
               { combine: Join }, { collapse: Sum }]",
        nodes: &[
            node("Split", Input::Trigger, 4, 0, "0"),
            node("Work", Input::Element("Split"), 0, 0, "0.03"),
            node("Left", Input::Of("Work"), 0, 0, "0"),
            node("Right", Input::Of("Work"), 0, 0, "0.03"),
            node("Tail", Input::Of("Right"), 0, 0, "0"),
            node("Join", Input::Both(&["Left", "Tail"]), 0, 0, "0.01"),
            node("Sum", Input::Gathered("Join", 4), 0, 0, "0"),
        ],
    },
    Shape {
        pipeline: "Doomed",
        flow: "[{ start: Hope }, { expand: Try }, { collapse: Never }]",
        nodes: &[
            node("Hope", Input::Trigger, 3, 0, "0"),
            sick("Try", Input::Element("Hope"), 1, "0.02"),
            node("Never", Input::Gathered("Try", 3), 0, 0, "0"),
        ],
    },
    Shape {
        pipeline: "Relapse",
        flow: "[{ start: Begin }, { divide: [Well, [Ill, { chain: Worse }]] }, \
               { combine: Cured }]",
        nodes: &[
            node("Begin", Input::Trigger, 0, 0, "0"),
            node("Well", Input::Of("Begin"), 0, 1, "0.1"),
            sick("Ill", Input::Of("Begin"), 1, "0"),
            sick("Worse", Input::Of("Ill"), 2, "0.02"),
            node("Cured", Input::Both(&["Well", "Worse"]), 0, 0, "0"),
        ],
    },
];

impl Node {
    /// True when it fails for good in a run with this many revivals.
    pub fn is_doomed(&self, revivals: u32) -> bool {
        self.sick > revivals
    }
}

impl Shape {
    /// The shape of this pipeline.
    pub fn of(pipeline: &str) -> &'static Self {
        let mut shapes = SHAPES.iter();
        let found = shapes.find(|shape| shape.pipeline == pipeline);
        found.unwrap_or_else(|| panic!("nobody has defined {pipeline}"))
    }

    /// The pipeline's node with this name.
    pub fn node(&self, name: &str) -> Option<&'static Node> {
        let nodes: &'static [Node] = self.nodes;
        nodes.iter().find(|node| node.name == name)
    }

    /// True when a run with this many revivals ends halted.
    pub fn is_doomed(&self, revivals: u32) -> bool {
        self.nodes.iter().any(|node| node.is_doomed(revivals))
    }

    /// The places in fan-outs, outermost first, at which a node runs; none after a node that fails.
    pub fn places(&self, node: &Node, revivals: u32) -> Vec<Vec<usize>> {
        let of = |name: &str| {
            let node = self.node(name).expect("a node of this shape");
            if node.is_doomed(revivals) {
                return Vec::new();
            }
            self.places(node, revivals)
        };
        match node.input {
            Input::Trigger => vec![Vec::new()],
            Input::Of(before) => of(before),
            Input::Both(before) => {
                let mut each = before.iter().map(|name| of(name));
                let first = each.next().unwrap_or_default();
                let all = each.all(|places| places == first);
                if all { first } else { Vec::new() }
            }
            Input::Element(before) => {
                let width = self.node(before).expect("a node of this shape").fan;
                let each = of(before).into_iter();
                each.flat_map(|place| (0..width).map(move |at| [&place[..], &[at]].concat()))
                    .collect()
            }
            Input::Gathered(before, _) => {
                let mut places = of(before);
                places.iter_mut().for_each(|place| {
                    place.pop();
                });
                places.dedup();
                places
            }
        }
    }

    /// The text of its file.
    pub fn yaml(&self) -> String {
        let mut text = format!("pipeline: {}\nsteps:\n", self.pipeline);
        for Node {
            name,
            fan,
            fails,
            sick,
            takes,
            ..
        } in self.nodes
        {
            let line = format!(
                "  {name}: {{ command: [sh, step.sh, '{fan}', '{fails}', '{takes}', '{sick}'] }}\n"
            );
            text.push_str(&line);
        }
        text.push_str(&format!("flow: {}\n", self.flow));
        text
    }
}
