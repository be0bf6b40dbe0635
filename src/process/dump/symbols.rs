//! The names of code addresses, for a person who reads a dump.
//!
//! Owns: finding the addresses in lines of a dump, and naming them from the program's own debug information.
//! Never: runs in a process that works: reading that information takes a hundred megabytes, which stay in use.
//! So a dump has addresses, and `ductworkd symbolize` names them in a process that ends.

use serde_json::Value;

use super::image::{Image, Mappings};

/// The addresses of one line, or of one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// The process, if the line names it.
    pub of: Option<String>,
    /// The thread; none for bare addresses.
    pub thread: Option<String>,
    /// The build that they are addresses of, where it is known.
    pub build_id: Option<String>,
    /// The places, innermost first.
    pub places: Vec<String>,
}

/// Finds the frames in a line of a log, in either of its forms, or in bare addresses. `None` if there are none.
pub fn frames(line: &str) -> Option<Frames> {
    let line = line.trim();
    // Other text may precede the line: a container's name, a time.
    let object = line
        .find('{')
        .and_then(|at| serde_json::from_str::<Value>(&line[at..]).ok());
    if let Some(object) = object {
        let text = |name: &str| object.get(name)?.as_str().map(str::to_owned);
        return Some(Frames {
            of: object_of(&object),
            thread: text("thread"),
            build_id: text("build_id"),
            places: places(&text("frames")?),
        });
    }
    let field = |name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}="))?;
        let value = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => rest.split(' ').next(),
        };
        value.map(str::to_owned)
    };
    if let Some(frames) = field("frames") {
        return Some(Frames {
            // Pretty lines name the process before the event: `worker[P] thread thread=…`.
            of: line
                .split_once(" thread ")
                .and_then(|(before, _)| before.split_whitespace().last())
                .map(str::to_owned),
            thread: field("thread"),
            build_id: field("build_id"),
            places: places(&frames),
        });
    }
    let bare = Frames {
        places: places(line),
        ..Frames::default()
    };
    let all = bare.places.iter().all(|place| number(place).is_some());
    (all && !bare.places.is_empty()).then_some(bare)
}

/// The process of a line that is JSON: `worker[P] pid 12`.
fn object_of(object: &Value) -> Option<String> {
    let role = object.get("role")?.as_str()?;
    let pipeline = object.get("pipeline").and_then(Value::as_str);
    let pipeline = pipeline.map_or(String::new(), |name| format!("[{name}]"));
    let pid = object.get("pid").and_then(Value::as_u64);
    let pid = pid.map_or(String::new(), |pid| format!(" pid {pid}"));
    Some(format!("{role}{pipeline}{pid}"))
}

fn places(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn number(place: &str) -> Option<u64> {
    u64::from_str_radix(place.strip_prefix("0x")?, 16).ok()
}

/// A function that was running at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its source file, and the line in it.
    pub source: Option<String>,
}

/// Names the places of the program that runs now.
pub struct Symbols {
    image: Image,
    mappings: Mappings,
}

impl Symbols {
    /// The symbols of this program.
    pub fn of_self() -> Self {
        Self {
            image: Image::of_self(),
            mappings: Mappings::of_self(),
        }
    }

    /// The id of this build; empty when the linker wrote none.
    pub fn build_id(&self) -> &str {
        &self.image.build_id
    }

    /// The functions at a place, the innermost first: several where they were inlined into one another. Empty if
    /// the place is not in the program's code.
    pub fn of(&self, place: &str) -> Vec<Function> {
        let address = number(place).and_then(|it| self.mappings.address(&self.image, it));
        let mut functions = Vec::new();
        let Some(address) = address else {
            return functions;
        };
        // The library takes the address for a return address, and looks at the one before.
        let address = address.saturating_add(1);
        backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
            // Without the hash at its end.
            let name = symbol.name().map(|name| format!("{name:#}"));
            let source = symbol.filename().zip(symbol.lineno());
            functions.push(Function {
                name: name.unwrap_or_else(|| "?".to_owned()),
                source: source.map(|(file, line)| {
                    let file = file.to_string_lossy();
                    format!("{}:{line}", shortened(&file))
                }),
            });
        });
        functions
    }
}

/// The path without the directories in which the standard library was built, and in which cargo keeps its
/// sources.
fn shortened(file: &str) -> &str {
    let below = |file: &'_ str, place: &str| {
        let (_, rest) = file.split_once(place)?;
        let (_, rest) = rest.split_once('/')?;
        Some(file.len() - rest.len())
    };
    let from = below(file, "/rustc/").or_else(|| below(file, "/registry/src/"));
    from.map_or(file, |from| &file[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_both_forms_of_a_line_and_in_bare_addresses() {
        let expected = |of: Option<&str>| Frames {
            of: of.map(str::to_owned),
            thread: Some("main".to_owned()),
            build_id: Some("ab12".to_owned()),
            places: vec!["libc.so.6+0x98".to_owned(), "0x1f".to_owned()],
        };
        for (line, of) in [
            (
                r#"{"role":"worker","pid":7,"pipeline":"P","thread":"main","build_id":"ab12","frames":"libc.so.6+0x98 0x1f"}"#,
                Some("worker[P] pid 7"),
            ),
            (
                r#"web-1 | {"thread":"main","frames":"libc.so.6+0x98 0x1f","build_id":"ab12"}"#,
                None,
            ),
            (
                r#"12:00:01.123 INFO  worker[P] thread thread=main tid=7 frames="libc.so.6+0x98 0x1f" build_id=ab12"#,
                Some("worker[P]"),
            ),
        ] {
            assert_eq!(frames(line), Some(expected(of)), "{line}");
        }
        assert_eq!(frames(" 0x1f 0x20 ").unwrap().places, ["0x1f", "0x20"]);
        for line in [
            "",
            "step ended",
            "0x1f then",
            "{\"msg\":\"x\"}",
            "{",
            "frames=0x1",
        ] {
            assert_eq!(frames(line), None, "{line}");
        }
    }

    #[test]
    fn the_source_of_somebody_elses_code_is_named_without_its_place_on_the_disk() {
        for (file, shown) in [
            ("src/main.rs", "src/main.rs"),
            ("/rustc/ab12/library/std/src/io.rs", "library/std/src/io.rs"),
            (
                "/cargo/registry/src/index-1/mio-1.2.4/src/poll.rs",
                "mio-1.2.4/src/poll.rs",
            ),
        ] {
            assert_eq!(shortened(file), shown);
        }
    }

    #[test]
    fn a_function_of_this_program_is_named_with_its_line() {
        let symbols = Symbols::of_self();
        let here = a_function_of_this_program_is_named_with_its_line as fn() as usize;
        let place = symbols.mappings.place(&symbols.image, here);
        let functions = symbols.of(&place);
        let last = functions.last().unwrap();
        assert!(
            last.name
                .ends_with("a_function_of_this_program_is_named_with_its_line"),
            "{last:?}"
        );
        assert!(
            last.source.as_ref().unwrap().contains("dump/symbols.rs:"),
            "{last:?}"
        );
        assert_eq!(symbols.of("libc.so.6+0x98"), []);
        assert_eq!(symbols.of("0xffffffffffffffff"), []);
    }
}
