//! A run: the reason why it does not move, its graph, its steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;

use crate::definition::{Definition, NodeIndex};
use crate::machine::layout::{Layout, Part};
use crate::machine::timeline::{self, Facts as Times, Timeline};
use crate::machine::why::{self, Facts, Why};
use crate::model::{FanOutId, RunId, RunStatus, StepStatus};
use crate::number::grouped;
use crate::percent::encoded;
use crate::store::Error;
use crate::store::action::{self, Action};
use crate::store::conn::Conn;
use crate::store::definition::{Definitions, short};
use crate::store::fan_out::{self, FanOut};
use crate::store::page::{self as store, Holder, Payload, RunHead, StepHead};
use crate::store::query::{self, NodeProgress};
use crate::store::timeline as times;
use crate::store::why as facts;
use crate::svg::{self, NodeState, Picture};
use crate::view::{self, graph};
use crate::web::Site;
use crate::web::refusal::{Refusal, no_run};
use crate::web::visitor;

use super::acts::Acted;
use super::asked::{self, Asked, wrong};
use super::parts::{self, Moment, Place, RunLink, State};
use super::text::{Value, clip};
use super::{Frame, elsewhere, page, waiting};

/// The number of steps that are listed.
const STEPS: usize = 200;

/// The same beside a timeline, which has a row for each step.
const STEPS_IN_TIME: usize = 100;

/// The number of fan-outs that are listed.
const FAN_OUTS: usize = 50;

/// The number of halted branches that are shown first.
const HALTED: usize = 5;

/// The number of actions that are listed.
const ACTIONS: usize = 20;

/// The longest line, of an error or a key, in characters.
const LETTERS: usize = 200;

/// The longest reason why a run does not move, in characters.
const FACT: usize = 4_000;

#[derive(Template)]
#[template(path = "run.html")]
struct Page {
    frame: Frame,
    id: RunId,
    short: String,
    pipeline: String,
    encoded: String,
    /// The visitor may see the input with which a form would begin.
    shows_payloads: bool,
    definition: String,
    state: State,
    /// The time at which its first step is due, if that is still to come.
    due: Option<Moment>,
    is_open: bool,
    triggered: Moment,
    took: String,
    key: Option<String>,
    revived_from: Option<RunLink>,
    revived_as: Option<RunLink>,
    why: Option<Told>,
    halted: Vec<Halted>,
    more_halted: bool,
    input: Option<Value>,
    output: Option<Value>,
    /// The addresses of the two views.
    views: [Filter; 2],
    /// Its timeline, if it was requested.
    times: Option<String>,
    is_by_node: bool,
    graph: Option<String>,
    /// Present for a visitor who may act on it.
    proof: Option<String>,
    is_halted: bool,
    actions: Vec<Acted>,
    more_actions: bool,
    /// The reason why there is no graph.
    unreadable: String,
    is_wide: bool,
    /// The steps are those that failed.
    is_failed: bool,
    fan_outs: Vec<Fan>,
    more_fan_outs: usize,
    steps: Vec<Row>,
    is_cut: bool,
    /// The address of its questions, at the first step that waits for a person.
    answer: String,
    /// The configuration's definition differs from the run's.
    is_redefined: bool,
    node: Option<String>,
    /// The other filters of the steps: their names and addresses.
    filters: Vec<Filter>,
}

struct Told {
    fact: String,
    remedy: Option<String>,
}

/// A step at which a branch has halted.
struct Halted {
    address: String,
    node: String,
    element: Option<(String, String)>,
    reason: String,
    /// Its last attempt: one that a process has made has left a log, or a word on why there is none.
    attempt: Option<u32>,
    error: String,
}

struct Filter {
    text: &'static str,
    address: String,
    is_chosen: bool,
}

struct Fan {
    address: String,
    node: String,
    width: String,
    arrived: String,
    halted: String,
    /// Out of 200.
    done: u64,
    failed: u64,
    fired: Option<Moment>,
}

struct Row {
    address: String,
    node: String,
    step: Option<String>,
    /// The place of its branch in a fan-out, for people.
    element: Option<(String, String)>,
    state: State,
    attempts: u32,
    took: String,
    place: Option<Place>,
    remark: String,
    copied: bool,
    started: Option<Moment>,
}

/// The answer of the database.
struct Read {
    head: RunHead,
    input: Option<Payload>,
    output: Option<Payload>,
    definition: Result<Arc<Definition>, String>,
    facts: Option<Facts>,
    times: Option<Times>,
    revived_as: Option<RunId>,
    is_wide: bool,
    progress: Vec<NodeProgress>,
    fan_outs: Vec<FanOut>,
    steps: Vec<StepHead>,
    halted: Vec<(StepHead, String)>,
    holders: Vec<Holder>,
    actions: Vec<Action>,
}

/// `GET /runs/{id}`
pub async fn run(
    Extract(site): Extract<Arc<Site>>,
    Path(given): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["node", "status", "view"])?;
    let id: RunId = match asked::id(&given, "a run") {
        Ok(id) => id,
        // A few digits of an id also lead to the run.
        Err(_) if query::digits(&given).is_some() => {
            return Ok(elsewhere(&format!("/runs?id={}", encoded(&given))));
        }
        Err(refused) => return Err(refused),
    };
    let node = asked.one("node")?.map(str::to_owned);
    let status = asked.one("status")?.map(step_status).transpose()?;
    let is_timeline = match asked.one("view")? {
        None | Some("graph") => false,
        Some("timeline") => true,
        Some(other) => {
            return Err(wrong(format!(
                "`{other}` is not a view of a run: there are `graph` and `timeline`"
            )));
        }
    };
    let definitions = Arc::clone(&site.definitions);
    let (of, asker) = (node.clone(), Arc::clone(&site));
    let may_see_payloads = visitor::may_see_payloads();
    let read = site.source.read(async move |conn| {
        let Some(head) = store::run(conn, id).await? else {
            return Ok(None);
        };
        let read = read(conn, head, &definitions, of.as_deref(), status).await?;
        // A damaged payload prevents nobody from reading the rest.
        let facts = match asker.facts(conn, id, may_see_payloads).await {
            Ok(facts) => facts,
            Err(Error::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        let times = match is_timeline {
            true => Some(times::facts(conn, &read.head).await?),
            false => None,
        };
        Ok(Some(Read {
            facts,
            times,
            ..read
        }))
    });
    let Some(read) = read.await? else {
        return Err(no_run(id));
    };
    let newest = site.terms.definition_of(&read.head.pipeline);
    let is_redefined = read.head.status == RunStatus::Halted
        && newest.is_some_and(|it| it.digest() != read.head.definition);
    let mut shown = shown(&read, node, status);
    shown.is_redefined = is_redefined;
    page(&shown)
}

async fn read(
    conn: &mut Conn,
    head: RunHead,
    definitions: &Definitions,
    node: Option<&str>,
    status: Option<StepStatus>,
) -> Result<Read, Error> {
    let id = head.id;
    let is_wide = facts::is_wide(conn, id).await?;
    let (input, output) = store::payloads(conn, id).await?;
    let definition = definitions.read(conn, &head.definition).await?;
    // Then the branches that a fan-out counts as halted are found.
    let fan_outs = fan_out::of_root(conn, id).await?;
    let halted = match (head.status, status) {
        (RunStatus::Completed, _) => Vec::new(),
        (_, Some(StepStatus::Failed)) if is_wide => {
            store::steps_of_halted(conn, id, STEPS + 1).await?
        }
        _ => store::steps_of_halted(conn, id, HALTED + 1).await?,
    };
    let (steps, progress) = match is_wide {
        true => {
            let steps = store::steps_of_root(conn, id, STEPS + 1).await?;
            (steps, Vec::new())
        }
        false => (
            store::steps(conn, id, node, status, STEPS + 1).await?,
            query::progress(conn, id).await?,
        ),
    };
    let ids = steps
        .iter()
        .filter_map(|step| step.latest.as_ref()?.process_id);
    Ok(Read {
        input,
        output,
        definition: definition.map_err(|it| format!("{it}; {}", it.remedy())),
        facts: None,
        times: None,
        revived_as: match head.status {
            RunStatus::Halted => facts::revived_as(conn, id).await?,
            _ => None,
        },
        is_wide,
        progress,
        fan_outs,
        holders: store::holders(conn, ids.collect::<Vec<_>>()).await?,
        steps,
        halted,
        actions: action::latest(conn, action::Of::Run(id), None, ACTIONS + 1).await?,
        head,
    })
}

fn step_status(text: &str) -> Result<StepStatus, Refusal> {
    view::step_status(text).ok_or_else(|| {
        let words: Vec<&str> = StepStatus::ALL.iter().map(|it| it.as_str()).collect();
        wrong(format!(
            "`{text}` is not a state of a step: the states are {}",
            words.join(", ")
        ))
    })
}

fn shown(read: &Read, node: Option<String>, status: Option<StepStatus>) -> Page {
    let head = &read.head;
    let (id, now) = (head.id, head.now);
    let address = format!("/runs/{id}");
    let times = read.times.as_ref().map(timeline::place);
    let (graph, unreadable) = match &read.definition {
        _ if times.is_some() => (None, String::new()),
        Ok(definition) => match drawn(read, definition) {
            Some(graph) => (Some(graph), String::new()),
            None => (None, "its definition does not form a graph".to_owned()),
        },
        Err(unreadable) => (None, format!("its {unreadable}")),
    };
    let due = read.facts.as_ref().and_then(why::scheduled);
    let is_failed = status == Some(StepStatus::Failed);
    let mut listed = match read.is_wide && is_failed {
        true => read.halted.iter().map(|(step, _)| step.clone()).collect(),
        false => read.steps.clone(),
    };
    if read.is_wide {
        // The database was asked for the root's steps.
        listed.retain(|step| node.as_ref().is_none_or(|node| *node == step.node));
        listed.retain(|step| status.is_none_or(|status| status == step.status));
        listed.sort_by_key(|step| {
            (
                step.status != StepStatus::Failed,
                step.status != StepStatus::Waiting,
            )
        });
    }
    let most = match read.times {
        Some(_) => STEPS_IN_TIME,
        None => STEPS,
    };
    let is_cut = listed.len() > most;
    let widths: FanOuts<'_> = read.fan_outs.iter().map(|it| (it.id, it)).collect();
    let frame = Frame::of("runs", now);
    Page {
        proof: frame.proof_on(&head.pipeline),
        is_halted: head.status == RunStatus::Halted,
        is_redefined: false,
        answer: waiting::address_of(
            id,
            read.steps
                .iter()
                .find(|step| step.status == StepStatus::Waiting)
                .map(|step| step.id),
        ),
        actions: read
            .actions
            .iter()
            .take(ACTIONS)
            .map(|action| Acted::of(action, now))
            .collect(),
        more_actions: read.actions.len() > ACTIONS,
        frame,
        id,
        short: crate::model::short(id),
        encoded: encoded(&head.pipeline),
        shows_payloads: visitor::may_see_payloads(),
        pipeline: head.pipeline.clone(),
        definition: short(&head.definition).to_owned(),
        state: match due {
            Some(_) => parts::SCHEDULED,
            None => parts::of_run(head.status),
        },
        due: due.map(|at| parts::ago(at, now)),
        is_open: !head.status.is_terminal(),
        triggered: parts::ago(head.triggered_at, now),
        took: view::took(head.triggered_at, head.ended_at, now),
        key: head.trigger_key.as_deref().map(|key| clip(key, LETTERS)),
        revived_from: head.revived_from.map(parts::run),
        revived_as: read.revived_as.map(parts::run),
        why: read
            .facts
            .as_ref()
            .map(why::why)
            .and_then(|why| told(head, why)),
        halted: read
            .halted
            .iter()
            .take(HALTED)
            .map(|(step, reason)| halted(id, step, reason, &widths))
            .collect(),
        more_halted: read.halted.len() > HALTED,
        input: read
            .input
            .as_ref()
            .map(|it| Value::of(it, format!("{address}/input"))),
        output: read
            .output
            .as_ref()
            .map(|it| Value::of(it, format!("{address}/output"))),
        views: [("Graph", None), ("Timeline", Some("timeline"))].map(|(text, view)| Filter {
            text,
            address: filtered(id, node.as_deref(), status, view),
            is_chosen: view.is_some() == times.is_some(),
        }),
        is_by_node: times.as_ref().is_some_and(|it| it.is_by_node),
        filters: filters(
            id,
            node.as_deref(),
            status,
            times.as_ref().map(|_| "timeline"),
        ),
        times: times.as_ref().map(|it| timed(head, it)),
        graph,
        unreadable,
        is_wide: read.is_wide,
        is_failed,
        more_fan_outs: expands(read).count().saturating_sub(FAN_OUTS),
        fan_outs: expands(read)
            .take(FAN_OUTS)
            .map(|it| fan(id, it, now))
            .collect(),
        steps: listed
            .iter()
            .take(most)
            .map(|step| row(id, step, &widths, &read.holders, now))
            .collect(),
        is_cut,
        node,
    }
}

/// The fan-outs that have elements: a path of a divide has a node of its own.
fn expands(read: &Read) -> impl Iterator<Item = &FanOut> {
    read.fan_outs.iter().filter(|it| it.via == "expand")
}

/// The reason why a run does not move; a run that has ended well needs none, unless there is something left to do.
fn told(head: &RunHead, why: Why) -> Option<Told> {
    let needs = head.status != RunStatus::Completed || why.remedy.is_some();
    needs.then_some(Told {
        fact: clip(&why.fact, FACT),
        remedy: why.remedy.map(|remedy| clip(&remedy, FACT)),
    })
}

fn drawn(read: &Read, definition: &Definition) -> Option<String> {
    let layout = Layout::of(definition)?;
    let states = match read.is_wide {
        true => of_root(read, definition, &layout),
        false => graph::states(definition, &layout, &read.progress),
    };
    let head = &read.head;
    let picture = Picture {
        title: &format!("The graph of run {} of {}", head.id, head.pipeline),
        layout: &layout,
        states: &states,
        link: Some(&format!("/runs/{}?node={{}}#steps", head.id)),
        style: None,
    };
    Some(picture.svg())
}

fn timed(head: &RunHead, timeline: &Timeline) -> String {
    let picture = svg::timeline::Picture {
        title: &format!("The times of run {} of {}", head.id, head.pipeline),
        timeline,
        link: Some(&format!("/runs/{}/steps/", head.id)),
        style: None,
    };
    picture.svg()
}

/// The states of a wide run's parts, as far as its root knows them: its own steps, and the counts of its
/// fan-outs.
fn of_root(read: &Read, definition: &Definition, layout: &Layout) -> BTreeMap<Part, NodeState> {
    let mut states = BTreeMap::new();
    for placed in &layout.boxes {
        let name = match placed.part {
            // The steps of elements are not counted.
            Part::Node(NodeIndex(at)) if layout.frames.iter().any(|it| it.nodes.contains(&at)) => {
                continue;
            }
            Part::Node(index) => definition.node(index).name.as_str(),
            Part::Hook(hook) => hook.node(),
            Part::Fan(_) => continue,
        };
        let step = read.steps.iter().find(|step| step.node == name);
        states.insert(placed.part, step.map_or(NodeState::default(), of_step));
    }
    for fan_out in &read.fan_outs {
        let opener: Option<NodeIndex> = definition.find(&fan_out.node);
        if let Some(opener) = opener {
            let state = NodeState {
                total: fan_out.width,
                completed: fan_out.arrived.saturating_sub(fan_out.halted),
                failed: fan_out.halted,
                ..NodeState::default()
            };
            states.insert(Part::Fan(opener), state);
        }
    }
    states
}

fn of_step(step: &StepHead) -> NodeState {
    let is = |status: bool| u64::from(status);
    let open = step.latest.as_ref().filter(|it| it.result.is_none());
    NodeState {
        total: 1,
        completed: is(matches!(
            step.status,
            StepStatus::Advancing | StepStatus::Completed
        )),
        running: is(open.is_some_and(|it| it.process_id.is_some())),
        retrying: is(open.is_some_and(|it| it.number > 1)),
        waiting: is(step.status == StepStatus::Waiting),
        failed: is(step.status == StepStatus::Failed),
        cancelled: is(step.status == StepStatus::Cancelled),
    }
}

/// The fan-outs of a run's root branch.
type FanOuts<'a> = BTreeMap<FanOutId, &'a FanOut>;

fn fan(run: RunId, it: &FanOut, now: i64) -> Fan {
    let of = |n: u64| n.min(it.width).saturating_mul(200) / it.width.max(1);
    let failed = of(it.halted).max(2 * u64::from(it.halted > 0));
    Fan {
        address: format!("/runs/{run}/fan-outs/{}", it.id),
        node: it.node.clone(),
        width: grouped(it.width),
        arrived: grouped(it.arrived.saturating_sub(it.halted)),
        halted: match it.halted {
            0 => String::new(),
            halted => grouped(halted),
        },
        done: of(it.arrived).max(failed),
        failed,
        // If every branch halted, nothing went on.
        fired: it
            .fired_at
            .filter(|_| it.halted == 0 || it.arrived > it.halted)
            .map(|at| parts::ago(at, now)),
    }
}

/// The place of a step's branch in a fan-out, as an address and as text.
fn element(run: RunId, step: &StepHead, fan_outs: &FanOuts<'_>) -> Option<(String, String)> {
    let (fan_out, place) = step.place?;
    let text = match fan_outs.get(&fan_out) {
        Some(found) if found.via == "divide" => format!("path {}", place + 1),
        _ => grouped(place + 1),
    };
    Some((format!("/runs/{run}/fan-outs/{fan_out}?from={place}"), text))
}

fn halted(run: RunId, step: &StepHead, reason: &str, fan_outs: &FanOuts<'_>) -> Halted {
    let latest = step.latest.as_ref();
    Halted {
        address: format!("/runs/{run}/steps/{}", step.id),
        node: step.node.clone(),
        element: element(run, step, fan_outs).map(|(address, text)| {
            let is_number = text.starts_with(|first: char| first.is_ascii_digit());
            let what = if is_number { "element " } else { "" };
            (address, format!("{what}{text}"))
        }),
        reason: clip(reason, LETTERS),
        attempt: latest
            .filter(|it| it.claimed_at.is_some())
            .map(|it| it.number),
        error: clip(&latest.and_then(parts::error).unwrap_or_default(), LETTERS),
    }
}

fn row(run: RunId, step: &StepHead, fan_outs: &FanOuts<'_>, holders: &[Holder], now: i64) -> Row {
    let latest = step.latest.as_ref();
    let ended = step.completed_at;
    let claimed = latest.and_then(|it| it.claimed_at);
    let due = latest
        .filter(|it| it.process_id.is_none() && it.result.is_none())
        .and_then(|it| it.due_at)
        .filter(|at| *at > now)
        .map(|at| format!("due {}", crate::time::relative(at, now)));
    let answered = step
        .answered_by
        .as_ref()
        .map(|by| format!("answered by {by}"));
    let remark = latest.and_then(parts::error).or(due).or(answered);
    Row {
        address: format!("/runs/{run}/steps/{}", step.id),
        node: step.node.clone(),
        step: (step.step != step.node).then(|| step.step.clone()),
        element: element(run, step, fan_outs),
        state: parts::of_step(step),
        attempts: latest.map_or(0, |it| {
            parts::attempts(it.number, it.claimed_at.is_some(), it.result)
        }),
        took: match claimed {
            Some(claimed) => view::took(claimed, ended, now),
            None => String::new(),
        },
        place: latest.and_then(|it| parts::place(it.process_id, holders)),
        remark: clip(&remark.unwrap_or_default(), LETTERS),
        copied: step.source_step_id.is_some(),
        started: claimed.map(|at| parts::ago(at, now)),
    }
}

fn filters(
    run: RunId,
    node: Option<&str>,
    status: Option<StepStatus>,
    view: Option<&str>,
) -> Vec<Filter> {
    let of = |text, wanted: Option<StepStatus>| Filter {
        text,
        address: format!("{}#steps", filtered(run, node, wanted, view)),
        is_chosen: wanted == status,
    };
    vec![
        of("all", None),
        of("failed", Some(StepStatus::Failed)),
        of("in progress", Some(StepStatus::InProgress)),
        of("waiting", Some(StepStatus::Waiting)),
        of("completed", Some(StepStatus::Completed)),
    ]
}

/// The address of a run's page with these steps and in this view.
fn filtered(
    run: RunId,
    node: Option<&str>,
    status: Option<StepStatus>,
    view: Option<&str>,
) -> String {
    let node = node.map(|node| format!("node={}", encoded(node)));
    let state = status.map(|it| format!("status={}", it.as_str()));
    let view = view.map(|view| format!("view={view}"));
    let pairs: Vec<String> = node.into_iter().chain(state).chain(view).collect();
    match pairs.is_empty() {
        true => format!("/runs/{run}"),
        false => format!("/runs/{run}?{}", pairs.join("&")),
    }
}
