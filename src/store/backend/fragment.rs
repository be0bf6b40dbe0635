//! The arguments of fragments that every database has in its own words.

/// The alias, and the names and types of the columns, of `alias(name type, …)`.
pub(super) fn columns(argument: &str) -> (&str, Vec<(&str, &str)>) {
    let (alias, columns) = argument.split_once('(').expect("rows have columns");
    let columns = columns.trim_end_matches(')').split(',');
    let columns = columns.map(|column| column.trim().split_once(' ').expect("a column has a type"));
    (alias, columns.collect())
}

/// The four parts of a `{fingerprint:…}`.
pub(super) fn fingerprint(argument: &str) -> [&str; 4] {
    let mut parts = argument.splitn(4, ';');
    [(); 4].map(|()| parts.next().expect("a fingerprint has four parts"))
}

/// The kind and the number of a `{made:…}`.
pub(super) fn made(argument: &str) -> (u16, &str) {
    let (kind, n) = argument.split_once(';').expect("made has a number");
    (kind.parse().expect("its kind is one"), n)
}
