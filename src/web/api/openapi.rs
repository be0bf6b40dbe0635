//! The description of the API, made from the table of its routes.
//!
//! Owns: OpenAPI 3.1. Never: knows a route that is not in the table.

use std::sync::{Arc, OnceLock};

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::model::Scope;
use crate::store::definition::VERSION;
use crate::store::trigger::KEY_MAX;
use crate::web::Site;
use crate::web::routes::{ROUTES, Route};
use crate::wire::problem::ProblemJson;

use super::given::{About, Given, Part};
use super::{Answer, Answered, Form};

const INTRODUCTION: &str = "The contents of a Ductwork database. Schemas only grow: a client ignores fields that it \
does not know. Lists have pages: the `Link` header of a page, with `rel=\"next\"`, has the address of the next, and \
there is no other way to get that address. Payloads of more than 64 KiB are null in lists, with their size beside \
them (`input_bytes`, `output_bytes`); the answers about one run or one step have them whole. Every answer but that \
of `/events` has an `ETag`. The answer to a refused request is a problem of RFC 9457.";

/// The description of one console, made when somebody first asks for it.
#[derive(Default)]
pub struct Description(OnceLock<Value>);

/// The description.
pub async fn answer(site: Arc<Site>, _: Given) -> Answered {
    let description = &site.description.0;
    Answer::json(description.get_or_init(|| document(ROUTES, site.terms.anonymous.direct)))
}

/// The forms of answers and of bodies that are sent; in a body, a field with a default may be missing.
struct Schemas {
    answered: SchemaGenerator,
    sent: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self {
            answered: settings.clone().for_serialize().into_generator(),
            sent: settings.for_deserialize().into_generator(),
        }
    }

    /// True if the body has a field that must not be missing: no body counts as an empty object.
    fn needs(&self, sent: &Value) -> bool {
        let name = sent["$ref"].as_str().and_then(|it| it.rsplit('/').next());
        let form = name.and_then(|name| self.sent.definitions().get(name));
        form.is_some_and(|form| form["required"].is_array())
    }

    /// All forms by name. Each name has one form: ids are sent in the form in which they are answered, and every
    /// other form is either only sent or only answered.
    fn named(mut self) -> Map<String, Value> {
        let mut named = self.answered.take_definitions(true);
        named.extend(self.sent.take_definitions(true));
        named
    }
}

/// The description of a console at which a visitor without a token has these rights.
fn document(routes: &[Route], anonymous: Option<Scope>) -> Value {
    let mut schemas = Schemas::new();
    let problem = schemas.answered.subschema_for::<ProblemJson<'_>>();
    let mut paths = Map::new();
    for route in routes {
        if let Some(form) = route.form {
            let mut operation = operation(route, form, &mut schemas);
            if route.scope > Some(Scope::Read) {
                operation["security"] = security(route.scope, anonymous);
            }
            let method = route.method.as_str().to_ascii_lowercase();
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            path[method] = operation;
        }
    }
    let refused = |what: &str| json!({ "description": what, "content": { "application/problem+json": { "schema": problem } } });
    let refused_with = |what: &str, header: &str, description: &str, kind: &str| {
        let mut refused = refused(what);
        refused["headers"][header] =
            json!({ "description": description, "required": true, "schema": { "type": kind } });
        refused
    };
    let later = |what: &str| {
        refused_with(
            what,
            "Retry-After",
            "The number of seconds after which the same request may succeed",
            "integer",
        )
    };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ductwork",
            "version": VERSION,
            "summary": "Durable pipelines on the database that you already have",
            "description": INTRODUCTION,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "security": security(Some(Scope::Read), anonymous),
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token made by `ductworkd token create NAME`; \
                           nobody needs one on the console's socket" },
            },
            "schemas": schemas.named(),
            "responses": {
                "BadRequest": refused("A parameter or a header is unknown, or is not as expected"),
                "Unknown": refused_with(
                    "The console requires its visitors to identify themselves, and the request has no token, or one \
                     that is no longer valid",
                    "WWW-Authenticate", "`Bearer`", "string",
                ),
                "Forbidden": refused("The token's scope, or its pipelines, do not allow the request"),
                "NotFound": refused("Nothing has this id or name"),
                "Conflict": refused("The object's data in the database is damaged, or of a newer version; for a \
                                     request that acts: the object's state does not allow it"),
                "Unsupported": refused("A body must be `application/json`"),
                "Unprocessable": refused("The body is not as expected, or not as the pipeline requires"),
                "TooMany": later("There are more requests per second than one token allows, or than one address may \
                                  send with invalid tokens"),
                "Unavailable": later("The database does not answer, or not in time, or there is no room for so long a \
                                      response; the same request may succeed later"),
                "Refused": refused("The request itself is refused: it is too large or too slow, or for another host; \
                                    or it met a fault"),
            },
        },
    })
}

/// The ways in which a visitor may authenticate to a route that requires this scope.
fn security(needs: Option<Scope>, anonymous: Option<Scope>) -> Value {
    match anonymous >= needs {
        true => json!([{ "token": [] }, {}]),
        false => json!([{ "token": [] }]),
    }
}

fn operation(route: &Route, form: Form, schemas: &mut Schemas) -> Value {
    let (kind, schema) = match form {
        Form::Json(schema) => ("application/json", schema(&mut schemas.answered).to_value()),
        Form::Svg => ("image/svg+xml", json!({ "type": "string" })),
        Form::Events(schema) => {
            let data = schema(&mut schemas.answered).to_value();
            (
                "text/event-stream",
                json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": data }),
            )
        }
    };
    let mut headers = json!({
        "ETag": { "description": "The entity tag of this answer, for `If-None-Match`", "required": true, "schema": { "type": "string" } },
    });
    if route.params.iter().any(|about| pages(about)) {
        let description = "The address of the next page, with `rel=\"next\"`, if there is one";
        headers["Link"] = json!({ "description": description, "schema": { "type": "string" } });
    }
    let mut responses = json!({
        "401": { "$ref": "#/components/responses/Unknown" },
        "403": { "$ref": "#/components/responses/Forbidden" },
        "429": { "$ref": "#/components/responses/TooMany" },
        "200": { "description": "The answer", "headers": headers, "content": { kind: { "schema": schema } } },
        "304": { "description": "The visitor already has this answer, according to `If-None-Match`", "headers": { "ETag": headers["ETag"] } },
        "400": { "$ref": "#/components/responses/BadRequest" },
        "503": { "$ref": "#/components/responses/Unavailable" },
        "default": { "$ref": "#/components/responses/Refused" },
    });
    if route.params.iter().any(|about| about.must_exist) {
        responses["404"] = json!({ "$ref": "#/components/responses/NotFound" });
    }
    if route.params.iter().any(|about| about.part == Part::Path) {
        responses["409"] = json!({ "$ref": "#/components/responses/Conflict" });
    }
    let mut params: Vec<Value> = route.params.iter().map(|about| parameter(about)).collect();
    if matches!(form, Form::Events(_)) {
        // A stream is never the same twice.
        responses.as_object_mut().map(|it| it.remove("304"));
        responses["200"]
            .as_object_mut()
            .map(|it| it.remove("headers"));
        params.push(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "required": false,
            "description": "Continue after the event with this id",
            "schema": { "type": "string" },
        }));
    }
    let Some(body) = route.body else {
        return json!({
            "operationId": name(route.path),
            "summary": route.summary,
            "parameters": params,
            "responses": responses,
        });
    };
    // Each request for a deed is a new one.
    for status in ["304", "200"] {
        responses.as_object_mut().map(|it| it.remove(status));
    }
    for (status, description) in DONE {
        responses[status] = json!({
            "description": description, "content": { kind: { "schema": schema } },
        });
    }
    for (status, name) in UNDONE {
        responses[status] = json!({ "$ref": format!("#/components/responses/{name}") });
    }
    if route.path.ends_with("/runs") {
        params.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "The run's trigger key: at most one run of the pipeline has it",
            "schema": { "type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": KEY },
        }));
        params.push(json!({
            "name": "traceparent",
            "in": "header",
            "required": false,
            "description": "The caller's span, in the format of the W3C's Trace Context: the run's trace has a link \
                            to this span, or the run is a part of the caller's trace. A malformed value is ignored",
            "schema": { "type": "string" },
        }));
        params.push(json!({
            "name": "tracestate",
            "in": "header",
            "required": false,
            "description": "The state of the caller's trace, sent together with `traceparent`: up to 512 bytes of it \
                            are passed on. A malformed value is ignored",
            "schema": { "type": "string" },
        }));
        params.push(json!({
            "name": "baggage",
            "in": "header",
            "required": false,
            "description": "The W3C's Baggage: up to 8,192 bytes of it are passed on to the run's steps. A malformed \
                            value is ignored",
            "schema": { "type": "string" },
        }));
    }
    let (scope, sent) = (
        route.scope.unwrap_or(Scope::Read),
        body(&mut schemas.sent).to_value(),
    );
    json!({
        "operationId": format!("{}_{}", name(route.path), route.method.as_str().to_ascii_lowercase()),
        "summary": route.summary,
        "description": format!("Requires a token of the scope `{scope}`."),
        "parameters": params,
        "requestBody": { "required": schemas.needs(&sent), "content": { "application/json": { "schema": sent } } },
        "responses": responses,
    })
}

/// The statuses of a deed that was done.
const DONE: [(&str, &str); 3] = [
    (
        "200",
        "The request was carried out, or had been carried out before",
    ),
    ("201", "The request was carried out, and created this"),
    ("202", "The work has begun and ends by itself"),
];

/// The further statuses of a deed that was refused.
const UNDONE: [(&str, &str); 4] = [
    ("404", "NotFound"),
    ("409", "Conflict"),
    ("415", "Unsupported"),
    ("422", "Unprocessable"),
];

/// A header's value of printable ASCII characters: HTTP drops the spaces around it.
const KEY: &str = "^[!-~]([\\t -~]*[!-~])?$";

/// `runs_id_steps` of `/api/v1/runs/{id}/steps`.
fn name(path: &str) -> String {
    let own = path.trim_start_matches("/api/v1/");
    own.replace(['{', '}', '.'], "").replace(['/', '-'], "_")
}

/// True for the parameters that request a next page.
fn pages(about: &About) -> bool {
    ["after", "from"].contains(&about.name)
}

fn parameter(about: &About) -> Value {
    let (part, required) = match about.part {
        Part::Path => ("path", true),
        Part::Query => ("query", false),
    };
    json!({
        "name": about.name,
        "in": part,
        "required": required,
        "description": about.description,
        "schema": (about.schema)(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_of_a_console_that_asks_for_a_token_or_does_not() {
        let token = json!([{ "token": [] }]);
        let either = json!([{ "token": [] }, {}]);
        for (anonymous, reads, acts) in [
            (None, &token, &token),
            (Some(Scope::Read), &either, &token),
            (Some(Scope::Operate), &either, &either),
        ] {
            let document = document(ROUTES, anonymous);
            let list = &document["paths"]["/api/v1/bulk"];
            assert_eq!(&document["security"], reads, "{anonymous:?}");
            assert_eq!(&list["post"]["security"], acts, "{anonymous:?}");
            assert!(list["get"].get("security").is_none(), "it is that of all");
        }
    }

    #[test]
    fn a_field_with_a_default_may_be_missing_where_it_is_sent_and_is_there_where_it_is_answered() {
        let document = document(ROUTES, None);
        let required = |name: &str| document["components"]["schemas"][name]["required"].clone();
        assert_eq!(required("Trigger"), json!(["input"]));
        assert_eq!(required("NewBulk"), json!(["verb"]));
        assert_eq!(required("NewBulkFilter"), Value::Null);
        assert_eq!(
            required("NewBulkKind"),
            json!(["node", "reason", "class", "kind"])
        );
        assert!(required("Bulk").as_array().is_some_and(|it| it.len() > 5));
        let is_needed = |path: &str| &document["paths"][path]["post"]["requestBody"]["required"];
        assert_eq!(is_needed("/api/v1/pipelines/{name}/runs"), true);
        assert_eq!(is_needed("/api/v1/runs/{id}/revive"), false);
    }

    #[test]
    fn a_name_has_one_form() {
        let mut schemas = Schemas::new();
        for route in ROUTES {
            if let Some(form) = route.form {
                operation(route, form, &mut schemas);
            }
        }
        for (name, sent) in schemas.sent.definitions() {
            if let Some(answered) = schemas.answered.definitions().get(name) {
                assert_eq!(sent, answered, "{name}");
            }
        }
    }
}
