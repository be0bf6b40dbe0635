//! The audit's invariants in one statement, so that a state costs only one.
//!
//! Owns: joining the product's own queries, and a check that these omit: that nothing refers to a
//! missing row.

use super::local::Local;
use crate::store::Dialect;
use crate::store::audit::{INVARIANTS, Kind};
use crate::store::catalogue::catalogue;

/// The references of rows: each a table, its column, and the referenced table.
const BELONGS: &[(&str, &str, &str)] = &[
    (
        "ductwork_advancements",
        "transition_id",
        "ductwork_transitions",
    ),
    ("ductwork_transitions", "branch_id", "ductwork_branches"),
    ("ductwork_executions", "step_id", "ductwork_steps"),
    ("ductwork_steps", "branch_id", "ductwork_branches"),
    ("ductwork_steps", "source_step_id", "ductwork_steps"),
    ("ductwork_branches", "step_id", "ductwork_steps"),
    ("ductwork_fan_outs", "branch_id", "ductwork_branches"),
    ("ductwork_runs", "revived_from", "ductwork_runs"),
];

/// The invariants that hold in every committed snapshot, as one query of name, key and detail.
pub fn joined() -> String {
    let statements = catalogue();
    let always = INVARIANTS.iter().filter(|i| i.kind == Kind::Always);
    // An invariant with several statements is checked by all of them.
    let parts = always.flat_map(|invariant| {
        let of = move |name: &str| name.split('_').next() == Some(invariant.name);
        let found = statements.iter().filter(move |found| of(found.name));
        found.map(move |statement| (invariant, *statement))
    });
    let queries = parts.map(|(invariant, statement)| {
        let mut sql = statement.sql(Dialect::Sqlite).to_owned();
        let parameters = &statement.rendered(Dialect::Sqlite).parameters;
        for (index, name) in parameters.iter().enumerate().rev() {
            // The clock stands still, so there is no slack.
            let value = match name.as_str() {
                "rows" => "2",
                "slack" | "grace" => "0",
                name => panic!("{} asks for {name}", invariant.name),
            };
            sql = sql.replace(&format!("?{}", index + 1), value);
        }
        format!(
            "SELECT '{}' AS name, entity, id, detail FROM ({sql})",
            invariant.name
        )
    });
    let belongs = BELONGS.iter().map(|(table, column, meant)| {
        format!(
            "SELECT '{table}', '{column}', id, 'refers to what is not there' FROM {table} AS own
              WHERE {column} IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM {meant} AS other WHERE other.id = own.{column})"
        )
    });
    let all: Vec<String> = queries.chain(belongs).collect();
    all.join("\nUNION ALL\n")
}

/// The defect of the present state, if it has one.
pub fn broken(local: &Local, joined: &str) -> Option<String> {
    let mut statement = local
        .session
        .db
        .prepare_cached(joined)
        .expect("the audit's own text");
    let mut rows = statement.raw_query();
    let mut broken = Vec::new();
    while let Some(row) = rows.next().expect("a row") {
        let name: String = row.get(0).expect("a text");
        let entity: String = row.get(1).expect("a text");
        let detail: String = row.get(3).expect("a text");
        broken.push(format!("{name}: a {entity} {detail}"));
    }
    (!broken.is_empty()).then(|| broken.join("; "))
}
