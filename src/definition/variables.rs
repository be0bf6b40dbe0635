//! `${VAR}` and `${VAR:-default}` in the values that people write.
//!
//! Owns: the notation. `$$` is a dollar sign, and a dollar sign before anything except `{` or
//! another dollar sign is itself, so that shell snippets stay readable. Never: expands the result
//! of an expansion, or reads a variable by itself.

/// The variables by which a worker describes a step's work to it. A step's own `env` must not hide them.
pub const OF_THE_WORKER: [&str; 11] = [
    "DUCTWORK_ATTEMPT",
    "DUCTWORK_CONTEXT",
    "DUCTWORK_EXECUTION_ID",
    "DUCTWORK_FENCING_TOKEN",
    "DUCTWORK_IDEMPOTENCY_KEY",
    "DUCTWORK_OUTPUT",
    "DUCTWORK_PIPELINE",
    "DUCTWORK_PROCESS",
    "DUCTWORK_RUN_ID",
    "DUCTWORK_STEP",
    "DUCTWORK_STEP_ID",
];

/// The reason why a value cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpanded {
    /// Lowercase, no full stop.
    pub message: String,
    /// The remedy.
    pub help: String,
    /// The value refers to a variable that is not set, and that has no default.
    pub is_unset: bool,
}

/// A piece of a value.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Variable {
        name: &'a str,
        default: Option<&'a str>,
    },
}

/// True for a name that an environment variable can have on every system.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|char: char| char.is_ascii_digit())
        && name
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// `text` with all variables replaced, or everything that prevents that. `used` is called with each
/// name.
pub fn expand(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
    mut used: impl FnMut(&str),
) -> Result<String, Vec<Unexpanded>> {
    let (parts, mut wrong) = parts(text);
    let mut out = String::new();
    for part in parts {
        let (name, default) = match part {
            Part::Text(text) => {
                out.push_str(text);
                continue;
            }
            Part::Variable { name, default } => (name, default),
        };
        used(name);
        match (variable(name), default) {
            (Some(value), Some(default)) if value.is_empty() => out.push_str(default),
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => wrong.push(Unexpanded {
                message: format!("the environment variable `{name}` is not set"),
                help: format!("set it, or give a default: `${{{name}:-…}}`"),
                is_unset: true,
            }),
        }
    }
    match wrong.is_empty() {
        true => Ok(out),
        false => Err(wrong),
    }
}

/// Everything in `text` that violates the notation, whatever the variables are.
pub fn mistakes(text: &str) -> Vec<Unexpanded> {
    parts(text).1
}

fn parts(text: &str) -> (Vec<Part<'_>>, Vec<Unexpanded>) {
    let (mut parts, mut wrong) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        parts.push(Part::Text(&rest[..dollar]));
        let after = &rest[dollar + 1..];
        if let Some(after) = after.strip_prefix('$') {
            parts.push(Part::Text("$"));
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let Some((inside, after)) = after.split_once('}') else {
                wrong.push(Unexpanded {
                    message: "a `${` without its `}`".into(),
                    help: "write `$${` for the characters themselves".into(),
                    is_unset: false,
                });
                return (parts, wrong);
            };
            match variable(inside) {
                Ok(part) => parts.push(part),
                Err(why) => wrong.push(why),
            }
            rest = after;
        } else {
            parts.push(Part::Text("$"));
            rest = after;
        }
    }
    parts.push(Part::Text(rest));
    (parts, wrong)
}

fn variable(inside: &str) -> Result<Part<'_>, Unexpanded> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_name(name) {
        return Err(Unexpanded {
            message: format!("`${{{}}}` is not a variable", crate::yaml::shorten(inside)),
            help: "only `${VAR}` and `${VAR:-default}` are understood; `$$` is a dollar sign"
                .into(),
            is_unset: false,
        });
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(Unexpanded {
            message: format!("the default of `{name}` names a variable"),
            help: "a default is text, and ends at the first `}`".into(),
            is_unset: false,
        });
    }
    Ok(Part::Variable { name, default })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "EMPTY" => Some(String::new()),
            "DOLLAR" => Some("${A}$$".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_put_in_once() {
        for (text, expected) in [
            ("x${A}y", "x1y"),
            ("${A}${A}", "11"),
            ("${NONE:-d}", "d"),
            ("${NONE:-}", ""),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("$${A}", "${A}"),
            ("$HOME and $1 and $", "$HOME and $1 and $"),
            ("${DOLLAR}", "${A}$$"),
            ("none", "none"),
        ] {
            assert_eq!(
                expand(text, vars, |_| ()).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_put_in_is_refused() {
        for (text, expected) in [
            ("${A", "a `${` without its `}`"),
            ("${}", "`${}` is not a variable"),
            ("${A-x}", "`${A-x}` is not a variable"),
            ("${A\nB}", "`${A\\nB}` is not a variable"),
            ("${1A}", "`${1A}` is not a variable"),
            ("${NONE:-${A}}", "the default of `NONE` names a variable"),
        ] {
            assert_eq!(expand(text, vars, |_| ()).unwrap_err()[0].message, expected);
            assert_eq!(mistakes(text)[0].message, expected);
        }
        let unset = expand("${NONE}", vars, |_| ()).unwrap_err();
        assert_eq!(
            unset[0].message,
            "the environment variable `NONE` is not set"
        );
        assert_eq!(mistakes("${NONE} $ $$ ${A:-b}"), []);
    }

    #[test]
    fn the_names_that_were_used_are_told() {
        let mut used = Vec::new();
        expand("${A}:${NONE:-x}", vars, |name| used.push(name.to_owned())).unwrap();
        assert_eq!(used, ["A", "NONE"]);
    }
}
