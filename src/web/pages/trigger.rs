//! Starting a run: the form, and the deed.
//!
//! Owns: the two ways to write an input, by fields and as JSON, and the errors beside the typed texts. No
//! typed text is lost, whichever way the form comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State as Extract};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::definition::Definition;
use crate::definition::input::{Format, Json, VIOLATIONS_MAX, Violation};
use crate::duration;
use crate::machine::why::trigger_by_show;
use crate::model::*;
use crate::percent::encoded;
use crate::step::output::parse_json;
use crate::store::page as store;
use crate::web::guard::BODY_MAX;
use crate::web::refusal::{Refusal, no_run, with_own_words};
use crate::web::visitor::{Visitor, may_see_payloads};
use crate::web::{Site, deeds};

use super::asked::{self, Asked, wrong};
use super::fields::{Part, Shape, Values, choice};
use super::form::Form;
use super::{Frame, elsewhere, page};

/// The bytes of a form that remain for everything but the input, in the form's encoding.
const BESIDE: usize = 8 << 10;

/// A text of more characters than this gets several lines.
const LINE: u64 = 200;

#[derive(Template)]
#[template(path = "trigger.html")]
struct Page {
    frame: Frame,
    pipeline: String,
    encoded: String,
    title: String,
    about: String,
    /// The fields; none if the form asks for the input as JSON.
    rows: Vec<Row>,
    /// The input as JSON, if the form asks for it as JSON.
    input: Option<String>,
    /// There is another way to write the input.
    has_both: bool,
    /// The schema, beside an input as JSON.
    schema: Option<String>,
    note: String,
    key: String,
    delay: String,
    /// All errors that belong to no field.
    errors: Vec<String>,
    /// Faults of the input, if it is written as JSON, and the fault of the delay.
    input_errors: Vec<String>,
    delay_error: Option<String>,
    /// The number of fields with errors of their own.
    marked: usize,
}

/// A line of the form.
enum Row {
    Open { legend: String, about: String },
    Close,
    Field(Box<Field>),
}

struct Field {
    /// Its place, from which its id is made.
    at: usize,
    name: String,
    label: String,
    is_required: bool,
    about: String,
    hint: String,
    errors: Vec<String>,
    value: String,
    control: Control,
}

enum Control {
    Line {
        kind: &'static str,
    },
    Lines {
        rows: usize,
    },
    Check,
    Select {
        choices: Vec<(String, String)>,
        has_none: bool,
    },
}

impl Field {
    /// Its description and its rules, in one line.
    fn help(&self) -> String {
        let parts = [self.about.trim(), self.hint.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|it| !it.is_empty()).collect();
        parts.join(" · ")
    }

    /// The attributes by which a screen reader finds its help and its errors.
    fn described(&self) -> String {
        let at = self.at;
        let help = (!self.help().is_empty()).then(|| format!("f{at}-help"));
        let wrong = (!self.errors.is_empty()).then(|| format!("f{at}-wrong"));
        let invalid = if wrong.is_some() {
            " aria-invalid=\"true\""
        } else {
            ""
        };
        match help.into_iter().chain(wrong).collect::<Vec<_>>() {
            ids if ids.is_empty() => String::new(),
            ids => format!("{invalid} aria-describedby=\"{}\"", ids.join(" ")),
        }
    }
}

/// The texts that a visitor has typed, or with which the form begins.
#[derive(Default)]
struct Typed {
    /// The input as JSON; otherwise it is in fields.
    json: Option<String>,
    values: Values,
    key: String,
    delay: String,
    note: String,
}

/// Faults that are not violations of the input's rules.
#[derive(Default)]
struct Faults {
    /// Faults of the input, if it is written as JSON.
    input_errors: Vec<String>,
    /// The fault of the delay.
    delay_error: Option<String>,
    /// Faults of something that has no field.
    errors: Vec<String>,
}

impl Faults {
    fn is_none(&self) -> bool {
        self.input_errors.is_empty() && self.delay_error.is_none() && self.errors.is_empty()
    }
}

fn form(
    pipeline: &str,
    definition: &Definition,
    typed: Typed,
    violations: &[Violation],
    faults: Faults,
) -> Result<Response, Refusal> {
    let schema = definition.input.as_deref();
    let whole = schema.and_then(Part::of);
    let Faults {
        mut input_errors,
        delay_error,
        mut errors,
    } = faults;
    let mut rows = Vec::new();
    let by_fields = typed.json.is_none().then_some(whole.as_ref()).flatten();
    let mut marked = BTreeSet::new();
    let mut of_fields = Vec::new();
    for violation in violations {
        match by_fields.and_then(|whole| whole.blamed(violation)) {
            Some(pointer) => {
                let detail = match violation.pointer == pointer {
                    true => format!("This {}.", violation.detail),
                    false => format!("{violation}."),
                };
                marked.insert(pointer.clone());
                of_fields.push((pointer, detail));
            }
            None if by_fields.is_none() => input_errors.push(sentence(&violation.to_string())),
            None => errors.push(sentence(&violation.to_string())),
        }
    }
    if violations.len() >= VIOLATIONS_MAX {
        errors.push(format!(
            "These are the first {}; there may be more.",
            violations.len()
        ));
    }
    if let Some(whole) = by_fields {
        draw(whole, &typed.values, &of_fields, true, &mut rows);
    }
    let input = match by_fields {
        Some(_) => None,
        None => Some(typed.json.unwrap_or_else(|| "null".to_owned())),
    };
    let words = |text: Option<&String>| text.cloned().unwrap_or_default();
    page(&Page {
        frame: Frame::without_time("pipelines"),
        encoded: encoded(pipeline),
        pipeline: pipeline.to_owned(),
        title: words(schema.and_then(|it| it.title.as_ref())),
        about: words(schema.and_then(|it| it.description.as_ref())),
        rows,
        schema: input.as_ref().and(schema).map(|it| it.pretty()),
        input,
        has_both: whole.is_some(),
        note: typed.note,
        key: typed.key,
        delay: typed.delay,
        errors,
        marked: marked.len()
            + usize::from(!input_errors.is_empty())
            + usize::from(delay_error.is_some()),
        input_errors,
        delay_error,
    })
}

/// A text as a sentence with a capital letter, unless it begins with somebody's own words.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        None => String::new(),
    }
}

fn draw(
    part: &Part<'_>,
    values: &Values,
    errors: &[(String, String)],
    is_whole: bool,
    rows: &mut Vec<Row>,
) {
    let about = match is_whole {
        // The page shows it already.
        true => String::new(),
        false => part.schema.description.clone().unwrap_or_default(),
    };
    if let Shape::Group(parts) = &part.shape {
        if !is_whole {
            rows.push(Row::Open {
                legend: part.label().to_owned(),
                about,
            });
        }
        for part in parts {
            draw(part, values, errors, false, rows);
        }
        if !is_whole {
            rows.push(Row::Close);
        }
        return;
    }
    let value = values.get(&part.pointer).cloned().unwrap_or_default();
    let control = control(part, &value);
    let own = errors
        .iter()
        .filter(|(pointer, _)| *pointer == part.pointer);
    rows.push(Row::Field(Box::new(Field {
        at: rows.len(),
        name: part.field(),
        label: part.label().to_owned(),
        is_required: part.is_required,
        about,
        hint: part.hint(),
        errors: own.map(|(_, detail)| detail.clone()).collect(),
        control,
        value,
    })));
}

fn control(part: &Part<'_>, value: &str) -> Control {
    match &part.shape {
        Shape::Check => Control::Check,
        Shape::Select(choices) => Control::Select {
            choices: choices
                .iter()
                .map(|text| ((*text).to_owned(), choice(text)))
                .collect(),
            has_none: !part.is_required || value.is_empty(),
        },
        // A number field would round, and would send nothing for a text that it does not understand.
        Shape::Number => Control::Line { kind: "text" },
        Shape::Text => {
            let kind = match part.schema.format {
                Some(Format::Date) => "date",
                Some(Format::Email) => "email",
                Some(Format::Uri) => "url",
                _ => "text",
            };
            let is_long = part.schema.max_length.is_some_and(|most| most > LINE);
            match is_long || value.contains('\n') {
                true => Control::Lines { rows: 4 },
                // A browser empties a date field with an invalid date, and the typed text would be lost.
                false if kind == "date" && !value.is_empty() && !Format::Date.admits(value) => {
                    Control::Line { kind: "text" }
                }
                false => Control::Line { kind },
            }
        }
        Shape::Json | Shape::Group(_) => Control::Lines { rows: 4 },
    }
}

/// `GET /pipelines/{name}/trigger`
pub async fn ask_trigger(
    Extract(site): Extract<Arc<Site>>,
    Path(pipeline): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["input", "from", "as"])?;
    let definition = deeds::definition_of(&site, &pipeline).await?;
    let is_json = match asked.one("as")? {
        None | Some("fields") => false,
        Some("json") => true,
        Some(other) => {
            return Err(wrong(format!(
                "`{other}` is not a way to write an input: there are `fields` and `json`"
            )));
        }
    };
    let (given, note) = match asked.one("from")? {
        Some(from) => of_run(&site, &pipeline, asked::id(from, "a run")?).await?,
        None => (asked.one("input")?.map(str::to_owned), String::new()),
    };
    let typed = typed(&definition, given, is_json, note);
    form(&pipeline, &definition, typed, &[], Faults::default())
}

/// The form's beginning: a given input, or the defaults.
fn typed(definition: &Definition, given: Option<String>, is_json: bool, note: String) -> Typed {
    let schema = definition.input.as_deref();
    let whole = schema.and_then(Part::of);
    let values = match (&whole, &given) {
        (Some(whole), None) => Some(whole.defaults()),
        // An address may contain anything, and an input that is not JSON is shown so that it can be mended.
        (Some(whole), Some(input)) => match parse_json(input.as_bytes(), input.len()) {
            Ok(raw) => whole.values(Json::of(raw.get())),
            Err(_) => None,
        },
        (None, _) => None,
    };
    let initial = schema.and_then(|it| it.initial.as_ref());
    let mut typed = Typed {
        note,
        ..Typed::default()
    };
    match values.filter(|_| !is_json) {
        Some(values) => typed.values = values,
        None => {
            if whole.is_some() && given.is_some() && !is_json {
                let more = "The fields cannot express all of this input, so here it is as JSON.";
                typed.note = format!("{} {more}", typed.note).trim().to_owned();
            }
            let initial = initial.map(|it| it.text().to_owned());
            let defaults = || whole.as_ref()?.input(&whole.as_ref()?.defaults()).ok();
            let text = given.or(initial).or_else(defaults);
            typed.json = Some(text.unwrap_or_else(|| "null".to_owned()));
        }
    }
    typed
}

/// The input of a run of this pipeline, if a form can carry it, and a note about it.
async fn of_run(
    site: &Arc<Site>,
    pipeline: &str,
    run: RunId,
) -> Result<(Option<String>, String), Refusal> {
    if !may_see_payloads() {
        let note = format!("Your token shows no inputs: this is not the input of the run {run}.");
        return Ok((None, note));
    }
    let read = site.source.read(async move |conn| {
        let Some(head) = store::run(conn, run).await? else {
            return Ok(None);
        };
        Ok(Some((head.pipeline, store::payloads(conn, run).await?.0)))
    });
    let input = match read.await? {
        // A visitor who may start runs of one pipeline sees no input of another pipeline.
        Some((of, input)) if of == pipeline => input,
        _ => return Err(no_run(run)),
    };
    let Some(input) = input else {
        return Ok((None, "This run's input no longer exists.".to_owned()));
    };
    let spelled: usize = form_urlencoded::byte_serialize(input.text.as_bytes())
        .map(str::len)
        .sum();
    if !input.is_whole() || spelled > BODY_MAX - BESIDE {
        let note = format!(
            "The input of the run {run} is longer than a form can carry ({} bytes). Change it with a command \
             line: {}",
            input.size,
            trigger_by_show(pipeline, run)
        );
        return Ok((None, note));
    }
    Ok((
        Some(input.text),
        format!("With the input of the run {run}."),
    ))
}

/// The fields of every form of this page, whichever way it takes the input.
const FIELDS: [&str; 5] = ["proof", "as", "show", "key", "delay"];

/// `POST /pipelines/{name}/trigger`
pub async fn trigger(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Extension<Arc<Visitor>>,
    Path(pipeline): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let sent = Form::of(&body, &who)?;
    let definition = deeds::definition_of(&site, &pipeline).await?;
    let whole = definition.input.as_deref().and_then(Part::of);
    let by_fields = whole.as_ref().filter(|_| sent.get("as") == Some("fields"));
    let values = read(&sent, by_fields)?;
    let given = |name| sent.get(name).unwrap_or_default().to_owned();
    let typed = || Typed {
        json: by_fields.is_none().then(|| given("input")),
        values: values.clone(),
        key: given("key"),
        delay: given("delay"),
        note: String::new(),
    };
    let again = |violations: &[Violation], faults: Faults| {
        let response = form(&pipeline, &definition, typed(), violations, faults)?;
        Ok(with_own_words(response, StatusCode::UNPROCESSABLE_ENTITY))
    };
    // All faults are reported at once.
    let (mut violations, mut faults) = (Vec::new(), Faults::default());
    let input = match by_fields {
        None => given("input"),
        Some(whole) => whole.input(&values).unwrap_or_else(|wrong| {
            violations = wrong;
            whole.rest(&values)
        }),
    };
    let max = (site.terms.max_payload)(&pipeline);
    let input = deeds::value("input", &input, max);
    let input = input.map_err(|refusal| {
        let detail = sentence(&refusal.into_detail());
        match by_fields {
            None => faults.input_errors.push(detail),
            Some(_) => faults.errors.push(detail),
        }
    });
    // The visitor wants to see the typed texts the other way: this is no deed.
    if let (Some(way), Ok(input)) = (sent.get("show"), &input)
        && violations.is_empty()
    {
        let other = self::typed(
            &definition,
            Some(input.get().to_owned()),
            way == "json",
            String::new(),
        );
        let shown = Typed {
            key: given("key"),
            delay: given("delay"),
            ..other
        };
        return form(&pipeline, &definition, shown, &[], Faults::default());
    }
    let delay = sent.get("delay").map(duration::parse).transpose();
    let delay = delay.unwrap_or_else(|problem| {
        faults.delay_error = Some(format!("The delay: {problem}; {}.", duration::NOTATION));
        None
    });
    let key = sent.get("key").map(str::to_owned);
    faults
        .errors
        .extend(deeds::key_fault(key.as_deref()).map(|fault| sentence(&fault)));
    // A form that is sent again leads to the run that it has started, whatever schema the pipeline's input has by now.
    let known = match &input {
        Ok(input) if violations.is_empty() && faults.is_none() => {
            deeds::repeated(&site, &pipeline, input, key.as_deref()).await?
        }
        _ => None,
    };
    if let (Ok(input), None) = (&input, &known) {
        let mut of_rules = definition.violations(input.get());
        of_rules.retain(|it| !Part::is_due_to(it, &violations));
        violations.extend(of_rules);
    }
    let input = match input {
        Ok(input) if violations.is_empty() && faults.is_none() => input,
        _ => return again(&violations, faults),
    };
    let delay = delay.unwrap_or_default();
    let by = who.actor(Channel::Console);
    let made = match known {
        Some(known) => known,
        None => {
            let definition = Arc::clone(&definition);
            deeds::trigger(&site, definition, input, key, delay, by, None).await?
        }
    };
    match made.input_differs {
        true => again(
            &[],
            Faults {
                errors: vec![format!(
                    "This key already belongs to the run {}, which had a different input.",
                    made.run_id
                )],
                ..Faults::default()
            },
        ),
        false => Ok(elsewhere(&format!("/runs/{}", made.run_id))),
    }
}

/// The texts in the fields of an input. A field that the form does not have is refused: the pipeline may have
/// changed since the page was read, and a text that was meant for one field must not be lost.
fn read(sent: &Form, by_fields: Option<&Part<'_>>) -> Result<Values, Refusal> {
    let known: BTreeSet<String> = match by_fields {
        Some(whole) => whole.leaves().iter().map(|leaf| leaf.field()).collect(),
        None => BTreeSet::from(["input".to_owned()]),
    };
    let mut values = Values::new();
    let mut seen = BTreeSet::new();
    for (name, value) in sent.pairs() {
        let is_ours = FIELDS.contains(&name) || known.contains(name);
        if !is_ours || !seen.insert(name) {
            let how = if is_ours {
                "is given twice"
            } else {
                "is not in this form"
            };
            return Err(wrong(format!(
                "the field `{name}` {how}: the pipeline may have changed; go back, load the page again, and \
                 send it from there"
            )));
        }
        if let Some(pointer) = Part::pointer_of(name) {
            values.insert(pointer.to_owned(), value.to_owned());
        }
    }
    Ok(values)
}
