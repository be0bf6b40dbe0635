//! The chapter of the document.

use super::*;
use crate::machine::tests::table;

/// Cells whose plan is the edge's, without a plan of their own.
const AS_THE_EDGE_SAYS: &str = "as the edge says";

/// The rows of all edges and outputs, at every fan-out limit.
fn whatever_the_edge(cell: Cell, edges: &[EdgeCase], shapes: &[Shape]) -> String {
    let mut plans = BTreeSet::new();
    for edge in edges {
        for shape in shapes {
            for limit in LIMITS {
                let cell = Cell { limit, ..cell };
                plans.insert(actual(&edge.definition, &raw(&shape.json), cell));
            }
        }
    }
    match (plans.pop_first(), plans.is_empty()) {
        (Some(plan), true) => plan,
        _ => AS_THE_EDGE_SAYS.to_owned(),
    }
}

fn budgets(edges: &[EdgeCase], shapes: &[Shape]) -> String {
    let within = Cell {
        failed: None,
        retries: 0,
        crashes: 0,
        limit: None,
        begun: false,
    };
    let failed = HaltReason::ALL.iter().map(|reason| {
        let mut plans: Vec<String> = Vec::new();
        for retries in [0, MAX_RETRY, MAX_RETRY + 1] {
            for crashes in [0, MAX_CRASH, MAX_CRASH + 1] {
                let failed = Some(*reason);
                let cell = Cell {
                    failed,
                    retries,
                    crashes,
                    ..within
                };
                plans.push(whatever_the_edge(cell, edges, &shapes[..1]));
            }
        }
        plans.dedup();
        [format!("failed, {}", code(reason)), plans.join("; ")]
    });
    let failed = table(&["step", "the branch"], failed);
    let states = |max: u32| [("<", max - 1), ("=", max), (">", max + 1)];
    let rows = states(MAX_RETRY).map(|(sign, retries)| {
        let mut row = vec![format!("retries {sign} `max_retry`")];
        row.extend(states(MAX_CRASH).map(|(_, crashes)| {
            let cell = Cell {
                retries,
                crashes,
                ..within
            };
            whatever_the_edge(cell, edges, shapes)
        }));
        row
    });
    let head = [
        "step succeeded",
        "crashes < `max_crash`",
        "crashes = `max_crash`",
        "crashes > `max_crash`",
    ];
    format!("{failed}\n{}", table(&head, rows))
}

/// The plan of a step that succeeded, within the budgets.
fn plan(edge: &EdgeCase, shape: &Shape, limit: Option<u64>) -> String {
    let cell = Cell {
        failed: None,
        retries: 0,
        crashes: 0,
        limit,
        begun: false,
    };
    actual(&edge.definition, &raw(&shape.json), cell)
}

/// One row per plan, with all outputs that have it.
fn by_output(edge: &EdgeCase, shapes: &[Shape]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for shape in shapes {
        let told = plan(edge, shape, None);
        for limit in LIMITS {
            assert_eq!(plan(edge, shape, limit), told, "the limit matters");
        }
        match groups.iter_mut().find(|group| group.0 == told) {
            Some(group) => group.1.push(&shape.label),
            None => groups.push((told, vec![&shape.label])),
        }
    }
    let rows = groups
        .into_iter()
        .map(|(plan, labels)| [labels.join(", "), plan]);
    table(&["output", "the branch"], rows)
}

/// One row per edge and width of the fan-out, one column per limit.
fn by_width(edges: &[&EdgeCase], shapes: &[Shape]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for edge in edges {
        for shape in shapes {
            let width = match &edge.meaning {
                Meaning::Paths(width, _) => width.to_string(),
                _ => match &shape.elements {
                    Some(elements) => elements.len().to_string(),
                    None => "nothing to expand".to_owned(),
                },
            };
            let mut row = vec![edge.name.to_owned(), width];
            row.extend(LIMITS.map(|limit| {
                let plan = plan(edge, shape, limit);
                match (&edge.meaning, plan.split_once(" with ")) {
                    (Meaning::Elements(_), Some(("branches at `P`", _))) => {
                        "branches at `P`".to_owned()
                    }
                    _ => plan,
                }
            }));
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    let mut seen = BTreeSet::new();
    let alone = rows.iter().all(|row| seen.insert((&row[0], &row[1])));
    assert!(
        alone,
        "something else than edge, width and limit matters: {rows:#?}"
    );
    rows.sort_by_key(|row| {
        let place = edges.iter().position(|edge| edge.name == row[0]);
        (place, row[1].parse::<u64>().ok())
    });
    let mut head = vec!["edge".to_owned(), "width".to_owned()];
    head.extend(LIMITS.map(|limit| match limit {
        None => "no limit".to_owned(),
        Some(limit) => format!("at most {limit}"),
    }));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, rows)
}

/// The inputs of the branches of an expand, with every fan-in.
fn inputs(expands: &[&EdgeCase], shapes: &[Shape]) -> String {
    let mut nothing = Vec::new();
    let mut rows = Vec::new();
    for shape in shapes {
        let mut plans = BTreeSet::new();
        for edge in expands {
            if let Some(("branches at `P`", inputs)) = plan(edge, shape, None).split_once(" with ")
            {
                plans.insert(inputs.to_owned());
            }
        }
        match (plans.pop_first(), plans.is_empty()) {
            (None, _) if shape.elements.is_none() => nothing.push(shape.label.clone()),
            (None, _) => rows.push([shape.label.clone(), "none".to_owned()]),
            (Some(inputs), true) => {
                let inputs = match inputs.chars().count() {
                    ..=60 => inputs,
                    _ => format!("{}…`", inputs.chars().take(22).collect::<String>()),
                };
                rows.push([shape.label.clone(), inputs]);
            }
            (Some(_), false) => panic!("expands differ by what follows them"),
        }
    }
    rows.insert(0, [nothing.join(", "), "nothing to expand".to_owned()]);
    table(&["output", "inputs of the branches"], rows)
}

pub fn chapter() -> String {
    let (edges, shapes) = (edges(), shapes());
    let mut text = format!(
        "## 3. Advancing a branch\n\n\
         ### Whether there is anything to cross\n\n\
         A step that failed halts its branch, whatever the budgets, the edge and the limits. After a\n\
         step that succeeded the transition's own budgets are asked: `retries` and `crashes` are\n\
         earlier attempts at this transition that ended in an error, or whose process died. An expand\n\
         that has made some of its branches goes on to its end, whatever the budgets and the limit say.\n\n\
         {}\n\
         ### Edges\n\n\
         For a step that succeeded, within the budgets. `A` is the node that the branch leaves; a\n\
         limit is the largest allowed width of a fan-out.\n",
        budgets(&edges, &shapes)
    );
    let simple = |edge: &EdgeCase| {
        let output = raw("null");
        decide_simple(&output, node(&edge.definition), &edge.definition).is_some()
    };
    let always = edges
        .iter()
        .filter(|edge| matches!(edge.meaning, Meaning::Always(_)));
    let rows = always.map(|edge| {
        let plan = whatever_the_edge(
            Cell {
                failed: None,
                retries: 0,
                crashes: 0,
                limit: None,
                begun: false,
            },
            std::slice::from_ref(edge),
            &shapes,
        );
        [edge.name.to_owned(), plan]
    });
    text.push_str("\n**End, chain, converge, dampen**: whatever the output and the limit.\n\n");
    text.push_str(&table(&["edge", "the branch"], rows));
    let of = |wanted: fn(&Meaning) -> bool| -> Vec<&EdgeCase> {
        edges.iter().filter(|edge| wanted(&edge.meaning)).collect()
    };
    for edge in of(|meaning| matches!(meaning, Meaning::Key)) {
        let cases: Vec<String> = CASES
            .iter()
            .map(|(case, to)| format!("`{case}` to `{to}`"))
            .collect();
        text.push_str(&format!(
            "\n**Divert**, whatever the limit, with the cases {};\notherwise `O`.\n\n{}",
            cases.join(", "),
            by_output(edge, &shapes)
        ));
    }
    let divides = of(|meaning| matches!(meaning, Meaning::Paths(..)));
    let expands = of(|meaning| matches!(meaning, Meaning::Elements(_)));
    text.push_str(&format!(
        "\n**Divide**: whatever the output; its branches all get the whole of it.\n\n{}\n\
         **Expand**: of the output only its width matters.\n\n{}\n\
         The elements that an expand finds in an output, whatever follows it:\n\n{}",
        by_width(&divides, &shapes),
        by_width(&expands, &shapes),
        inputs(&expands, &shapes)
    ));
    let crossed = edges
        .iter()
        .filter(|edge| simple(edge))
        .map(|edge| edge.name);
    text.push_str(&format!(
        "\nA worker crosses these together with its result: {}.\n\
         (Of the ends that arrive at a barrier, all but the last.) All others take two phases,\n\
         through an advancer.\n\n\
         ### When a fan-out is over\n\n",
        crossed.collect::<Vec<_>>().join(", ")
    ));
    let rows = edges.iter().filter_map(|edge| {
        let then = then_of(&edge.definition, node(&edge.definition))?;
        let plan = words(&edge.definition, &after_fan_in(then, Value::Output));
        let plan = plan.replace("the output", "the array of the outputs");
        Some([edge.name.to_owned(), plan])
    });
    text.push_str(&table(&["fan-out", "the branch that waited"], rows));
    text
}
