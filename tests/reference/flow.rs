//! A flow as a tree: its text, the order of its steps, and how it is built and shown.

use std::fmt::{self, Write};

use ductwork::definition::{Path, Pipeline};

use super::json::Json;

/// The name of every pipeline here: one worker serves them all.
pub const PIPELINE: &str = "Reference";

/// The question of a dampen that is to be resumed without a value.
pub const AS_IT_IS: &str = "go on";

pub type Step = &'static str;

/// A step and the items after it.
#[derive(Clone, PartialEq)]
pub struct Flow {
    pub first: Step,
    pub then: Vec<Item>,
}

/// A transition, with the steps between it and its fan-in.
#[derive(Clone, PartialEq)]
pub enum Item {
    Chain(Step),
    /// Resumed with this value, or as it is.
    Dampen(Option<Json>),
    Divide {
        paths: Vec<Flow>,
        combine: Option<Step>,
    },
    Expand {
        each: Flow,
        collapse: Option<Step>,
    },
    Divert {
        cases: Vec<(&'static str, Flow)>,
        otherwise: Flow,
        converge: Option<Step>,
    },
}

impl Flow {
    pub fn new(first: Step, then: impl IntoIterator<Item = Item>) -> Self {
        let then = then.into_iter().collect();
        Self { first, then }
    }

    /// The same with a fan-in wherever something follows: only the end of a list may be open.
    pub fn closed(mut self) -> Self {
        close(&mut self.then, true);
        self
    }

    pub fn pipeline(&self) -> Pipeline {
        on(Pipeline::named(PIPELINE).start(self.first), &self.then)
    }

    fn path(&self) -> Path {
        on(Path::to(self.first), &self.then)
    }
}

impl From<Step> for Flow {
    fn from(first: Step) -> Self {
        Self::new(first, [])
    }
}

fn close(items: &mut [Item], may_be_open: bool) {
    let last = items.len().saturating_sub(1);
    for (index, item) in items.iter_mut().enumerate() {
        let may_be_open = may_be_open && index == last;
        match item {
            Item::Chain(_) | Item::Dampen(_) => {}
            Item::Divide { paths, combine } => {
                paths
                    .iter_mut()
                    .for_each(|path| close(&mut path.then, true));
                if !may_be_open {
                    combine.get_or_insert("Same");
                }
            }
            Item::Expand { each, collapse } => {
                if !may_be_open {
                    collapse.get_or_insert("Same");
                }
                // Its content is written in the same list, before the collapse.
                close(&mut each.then, collapse.is_none());
            }
            Item::Divert {
                cases,
                otherwise,
                converge,
            } => {
                let paths = cases.iter_mut().map(|(_, path)| path);
                paths
                    .chain([otherwise])
                    .for_each(|path| close(&mut path.then, true));
                if !may_be_open {
                    converge.get_or_insert("Same");
                }
            }
        }
    }
}

/// The verbs that a pipeline and a path have in common.
trait Verbs: Sized {
    fn verb_chain(self, to: Step) -> Self;
    fn verb_dampen(self, prompt: &str) -> Self;
    fn verb_divide(self, paths: Vec<Path>) -> Self;
    fn verb_combine(self, to: Step) -> Self;
    fn verb_expand(self, to: Step) -> Self;
    fn verb_collapse(self, to: Step) -> Self;
    fn verb_divert(self, cases: Vec<(&'static str, Path)>, otherwise: Path) -> Self;
    fn verb_converge(self, to: Step) -> Self;
}

macro_rules! verbs {
    ($owner:ty) => {
        impl Verbs for $owner {
            fn verb_chain(self, to: Step) -> Self {
                self.chain(to)
            }
            fn verb_dampen(self, prompt: &str) -> Self {
                self.dampen(prompt)
            }
            fn verb_divide(self, paths: Vec<Path>) -> Self {
                self.divide(paths)
            }
            fn verb_combine(self, to: Step) -> Self {
                self.combine(to)
            }
            fn verb_expand(self, to: Step) -> Self {
                self.expand(to)
            }
            fn verb_collapse(self, to: Step) -> Self {
                self.collapse(to)
            }
            fn verb_divert(self, cases: Vec<(&'static str, Path)>, otherwise: Path) -> Self {
                self.divert(cases, otherwise)
            }
            fn verb_converge(self, to: Step) -> Self {
                self.converge(to)
            }
        }
    };
}

verbs!(Pipeline);
verbs!(Path);

fn on<T: Verbs>(written: T, items: &[Item]) -> T {
    items.iter().fold(written, |written, item| match item {
        Item::Chain(to) => written.verb_chain(to),
        Item::Dampen(value) => written.verb_dampen(&prompt(value.as_ref())),
        Item::Divide { paths, combine } => {
            let written = written.verb_divide(paths.iter().map(Flow::path).collect());
            match combine {
                Some(to) => written.verb_combine(to),
                None => written,
            }
        }
        Item::Expand { each, collapse } => {
            let written = on(written.verb_expand(each.first), &each.then);
            match collapse {
                Some(to) => written.verb_collapse(to),
                None => written,
            }
        }
        Item::Divert {
            cases,
            otherwise,
            converge,
        } => {
            let cases = cases.iter().map(|(when, path)| (*when, path.path()));
            let written = written.verb_divert(cases.collect(), otherwise.path());
            match converge {
                Some(to) => written.verb_converge(to),
                None => written,
            }
        }
    })
}

/// The person at a dampen does what its prompt asks.
fn prompt(value: Option<&Json>) -> String {
    value.map_or_else(|| AS_IT_IS.to_owned(), Json::to_string)
}

/// The flow in the syntax of a file.
impl fmt::Debug for Flow {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let _ = writeln!(text, "- start: {}", self.first);
        list(&self.then, "", &mut text);
        to.write_str(&text)
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        list(std::slice::from_ref(self), "", &mut text);
        to.write_str(&text)
    }
}

fn list(items: &[Item], indent: &str, to: &mut String) {
    let deeper = format!("{indent}      ");
    let way = |path: &Flow, to: &mut String| {
        let _ = writeln!(to, "{deeper}- {}", path.first);
        list(&path.then, &deeper, to);
    };
    let line = |verb: &str, step: &Option<Step>, to: &mut String| {
        if let Some(step) = step {
            let _ = writeln!(to, "{indent}- {verb}: {step}");
        }
    };
    for item in items {
        // Writing to a string cannot fail.
        let _ = match item {
            Item::Chain(step) => writeln!(to, "{indent}- chain: {step}"),
            Item::Dampen(value) => {
                let prompt = prompt(value.as_ref());
                writeln!(to, "{indent}- dampen: {prompt:?}")
            }
            Item::Divide { .. } => writeln!(to, "{indent}- divide:"),
            Item::Expand { each, .. } => writeln!(to, "{indent}- expand: {}", each.first),
            Item::Divert { .. } => writeln!(to, "{indent}- divert:"),
        };
        match item {
            Item::Chain(_) | Item::Dampen(_) => {}
            Item::Divide { paths, combine } => {
                for path in paths {
                    let _ = writeln!(to, "{indent}    -");
                    way(path, to);
                }
                line("combine", combine, to);
            }
            Item::Expand { each, collapse } => {
                list(&each.then, indent, to);
                line("collapse", collapse, to);
            }
            Item::Divert {
                cases,
                otherwise,
                converge,
            } => {
                let cases = cases.iter().map(|(when, path)| (*when, path));
                for (when, path) in cases.chain([("otherwise", otherwise)]) {
                    let _ = writeln!(to, "{indent}    {when:?}:");
                    way(path, to);
                }
                line("converge", converge, to);
            }
        }
    }
}
