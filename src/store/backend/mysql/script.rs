//! Text of several statements.
//!
//! Owns: splitting it into single statements, because a server is sent one at a time: when several share a
//! packet, the error of one may be lost. Never: sends them.

/// The statements of a text, without comments.
pub fn statements(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut one = String::new();
    let mut quote = None;
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        if quote.is_none() && rest.starts_with("--") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        match quote {
            Some(open) if open == char => quote = None,
            None if matches!(char, '\'' | '"' | '`') => quote = Some(char),
            _ => {}
        }
        match char == ';' && quote.is_none() {
            true => found.push(std::mem::take(&mut one)),
            false => one.push(char),
        }
        rest = &rest[char.len_utf8()..];
    }
    found.push(one);
    let trimmed = found.iter().map(|one| one.trim().to_owned());
    trimmed.filter(|one| !one.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_statement_unless_it_is_in_quotes_or_a_comment() {
        let text = "-- one; of them\nSELECT 1;\n SELECT ';''--', `;`, \";\" -- that; was it\n; ;";
        assert_eq!(statements(text), ["SELECT 1", "SELECT ';''--', `;`, \";\""]);
        assert_eq!(statements("COMMIT"), ["COMMIT"]);
        assert!(statements(" -- nothing").is_empty());
    }
}
