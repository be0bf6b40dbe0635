//! Whether two texts say the same, apart from the parts that differ each time: ids, times, spans,
//! pids.
//!
//! A line that is only `…` stands for any lines.

/// Stands for any lines.
const ANY: &str = "…";

/// A line in which a word replaces each part that differs, and the ids that it had.
pub fn settled(line: &str) -> (String, Vec<String>) {
    // The length of a cut value depends on how long a step took.
    let line = match line.trim_end().strip_suffix(ANY) {
        Some(cut) if !cut.trim().is_empty() => cut.split(['[', '{', '"']).next().unwrap_or(cut),
        _ => line,
    };
    let mut kept: Vec<String> = Vec::new();
    let mut ids = Vec::new();
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let start = word.find(|letter: char| letter.is_alphanumeric());
        let end = word.rfind(|letter: char| letter.is_alphanumeric());
        let (Some(start), Some(end)) = (start, end) else {
            // The cells of a bar depend on how long things took.
            if !word
                .chars()
                .all(|letter| ('\u{2580}'..='\u{259f}').contains(&letter))
            {
                kept.push(word.to_owned());
            }
            continue;
        };
        let end = end + word[end..].chars().next().map_or(1, char::len_utf8);
        let (before, inner, after) = (&word[..start], &word[start..end], &word[end..]);
        let is_number = inner.parse::<f64>().is_ok();
        let unit = words
            .peek()
            .map(|next| next.trim_end_matches([',', '.', ')', ';']));
        let what = if is_id(inner) {
            ids.push(inner.to_owned());
            "<id>"
        } else if is_time(inner) {
            "<time>"
        } else if is_span(inner) {
            "<span>"
        } else if is_number && before.is_empty() && unit.is_some_and(|unit| UNITS.contains(&unit)) {
            let unit = words.next().expect("it was seen");
            push(
                &mut kept,
                format!(
                    "<span>{}",
                    &unit[unit.trim_end_matches([',', '.', ')', ';']).len()..]
                ),
            );
            continue;
        } else if is_number && kept.last().is_some_and(|last| last.ends_with("pid")) {
            "<pid>"
        } else {
            kept.push(within(word, &mut ids));
            continue;
        };
        push(&mut kept, format!("{before}{what}{after}"));
    }
    (kept.join(" "), ids)
}

/// A word that contains ids, as in JSON.
fn within(word: &str, ids: &mut Vec<String>) -> String {
    let mut whole = String::new();
    for part in word.split_inclusive(['"', '`', ',', ':', '/']) {
        let end = part.trim_end_matches(['"', '`', ',', ':', '/']).len();
        let (part, mark) = part.split_at(end);
        match is_id(part) {
            true => {
                ids.push(part.to_owned());
                whole.push_str("<id>");
            }
            false => whole.push_str(part),
        }
        whole.push_str(mark);
    }
    whole
}

/// `1m 20s` is one span.
fn push(kept: &mut Vec<String>, word: String) {
    if !(word.starts_with("<span>") && kept.last().is_some_and(|last| last == "<span>")) {
        return kept.push(word);
    }
    kept.pop();
    kept.push(word);
}

const UNITS: [&str; 6] = ["ms", "s", "m", "h", "d", "µs"];

pub fn is_id(word: &str) -> bool {
    let hex = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let parts: Vec<&str> = word.split('-').collect();
    let is_whole = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]);
    let is_short = parts.len() == 1 && (8..=32).contains(&word.len());
    (is_whole || is_short) && parts.iter().all(|part| hex(part))
}

fn is_time(word: &str) -> bool {
    let is_shaped = |letter: char| letter.is_ascii_digit() || ":-TZ.".contains(letter);
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let parts = word.matches([':', '-']).count();
    digits >= 6 && parts >= 2 && word.chars().all(is_shaped)
}

fn is_span(word: &str) -> bool {
    UNITS.iter().any(|unit| {
        word.strip_suffix(unit)
            .is_some_and(|number| number.parse::<f64>().is_ok())
    })
}

/// The ids of `shown` with those of `printed` in their places; `None` if the texts differ.
pub fn pairs(shown: &[String], printed: &[String]) -> Option<Vec<(String, String)>> {
    let Some((first, rest)) = shown.split_first() else {
        return printed.is_empty().then(Vec::new);
    };
    if first.trim() == ANY {
        return (0..=printed.len()).find_map(|skipped| pairs(rest, &printed[skipped..]));
    }
    let (line, others) = printed.split_first()?;
    let ((says, ours), (said, theirs)) = (settled(first), settled(line));
    if says != said {
        return None;
    }
    let mut found: Vec<(String, String)> = ours.into_iter().zip(theirs).collect();
    found.extend(pairs(rest, others)?);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn two_texts_that_differ_only_in_times_and_ids_say_the_same() {
        let shown = lines(
            "run 01a20ab5-9ab3-7559-ba84-75825492c268 of Hello (pid 17)\n\
             ✓ Names  10ms  ███    \"Ada\"\n\
             completed  4 steps  1.2 s, 1m 20s ago",
        );
        let printed = lines(
            "run 01a20abc-65d7-7740-84db-5c59f55bffb7 of Hello (pid 4711)\n\
             ✓ Names  1.4s  ██████ \"Ada\"\n\
             completed  4 steps  80 ms, 3s ago",
        );
        let pairs = pairs(&shown, &printed).unwrap_or_else(|| {
            let settled =
                |lines: &[String]| lines.iter().map(|line| settled(line).0).collect::<Vec<_>>();
            panic!("{:#?} and {:#?}", settled(&shown), settled(&printed))
        });
        let ids = pairs.iter().map(|(old, new)| (&old[28..], &new[28..]));
        assert!(ids.eq([("5492c268", "f55bffb7")]));
    }

    #[test]
    fn another_word_or_number_is_a_difference() {
        for (shown, printed) in [
            ("4 steps  1.2 s", "5 steps  1.2 s"),
            ("completed 80 ms", "halted 80 ms"),
            ("[6, 3]", "[6, 4]"),
            ("a", "a\nb"),
            ("a\nb", "a"),
            ("", "a"),
        ] {
            assert!(pairs(&lines(shown), &lines(printed)).is_none(), "{shown}");
        }
    }

    #[test]
    fn a_line_of_dots_stands_for_any_lines() {
        for printed in ["a\nz", "a\nb\nz", "a\nb\nc\nz"] {
            assert!(pairs(&lines("a\n…\nz"), &lines(printed)).is_some());
        }
        assert!(pairs(&lines("a\n…\nz"), &lines("a\nb")).is_none());
    }
}
