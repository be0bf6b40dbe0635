//! The ways in which programs write a text between quotation marks.
//!
//! Owns: the escapes of JSON, as different programs write it, and of Python, in which errors are reported.
//! Never: reads them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The forms in which this text may appear in a log, without the quotation marks.
pub fn forms(text: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    for upper in [false, true] {
        for ascii in [false, true] {
            let json = json(text, ascii, upper);
            forms.insert(json.replace('/', r"\/"));
            forms.insert(json);
        }
    }
    for ascii in [Ascii::No, Ascii::Characters, Ascii::Bytes] {
        let python = python(text, ascii);
        // Only where the text has both kinds of quotation marks.
        forms.insert(python.replace('\'', r"\'"));
        forms.insert(python);
    }
    forms
}

/// As a JSON string. PHP escapes the slash as well.
fn json(text: &str, ascii: bool, upper: bool) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '"' => out.push_str(r#"\""#),
            '\\' => out.push_str(r"\\"),
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            '\t' => out.push_str(r"\t"),
            '\u{8}' => out.push_str(r"\b"),
            '\u{c}' => out.push_str(r"\f"),
            _ if character < ' ' || (ascii && !character.is_ascii()) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = match upper {
                        true => write!(out, "\\u{unit:04X}"),
                        false => write!(out, "\\u{unit:04x}"),
                    };
                }
            }
            _ => out.push(character),
        }
    }
    out
}

/// How Python writes the characters that are not ASCII.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ascii {
    /// As they are.
    No,
    /// Each by its number, as `ascii` does.
    Characters,
    /// Each of their bytes, as `repr` of bytes does.
    Bytes,
}

/// As Python's `repr`.
fn python(text: &str, ascii: Ascii) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let number = u32::from(character);
        let _ = match character {
            '\\' => write!(out, r"\\"),
            '\n' => write!(out, r"\n"),
            '\r' => write!(out, r"\r"),
            '\t' => write!(out, r"\t"),
            _ if character.is_ascii_control() => write!(out, "\\x{number:02x}"),
            _ if character.is_ascii() || ascii == Ascii::No => write!(out, "{character}"),
            _ if ascii == Ascii::Bytes => {
                let mut buffer = [0; 4];
                let mut bytes = character.encode_utf8(&mut buffer).bytes();
                bytes.try_for_each(|byte| write!(out, "\\x{byte:02x}"))
            }
            _ => match number {
                0..=0xff => write!(out, "\\x{number:02x}"),
                0x100..=0xffff => write!(out, "\\u{number:04x}"),
                _ => write!(out, "\\U{number:08x}"),
            },
        };
    }
    out
}
