//! The description of the API, made from the table of its routes.
//!
//! Owns: OpenAPI 3.1. Never: knows a route that is not in the table.

use std::sync::{Arc, LazyLock};

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

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| document(ROUTES));

const INTRODUCTION: &str = "What there is in a Ductwork database. Forms only grow: a client ignores fields that it does \
not know. Lists have pages: the `Link` header of one, with `rel=\"next\"`, is the address of the next, and there is no \
other way to make one. Payloads of more than 64 KiB are null in lists, with their size beside (`input_bytes`, \
`output_bytes`); alone, a run or a step has them whole. Every answer but `/events` has an `ETag`. A request that is refused is \
answered with a problem of RFC 9457.";

/// The description.
pub async fn answer(_: Arc<Site>, _: Given) -> Answered {
    Answer::json(&*DOCUMENT)
}

fn document(routes: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schemas = settings
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let problem = schemas.subschema_for::<ProblemJson<'_>>();
    let mut paths = Map::new();
    for route in routes {
        if let Some(form) = route.form {
            let operation = operation(route, form, &mut schemas);
            let method = route.method.as_str().to_ascii_lowercase();
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            path[method] = operation;
        }
    }
    let refused = |what: &str| json!({ "description": what, "content": { "application/problem+json": { "schema": problem } } });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ductwork",
            "version": VERSION,
            "summary": "Durable pipelines on the database that is there already",
            "description": INTRODUCTION,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "security": [{ "token": [] }, {}],
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "Made by `ductworkd token create NAME`" },
            },
            "schemas": schemas.take_definitions(true),
            "responses": {
                "BadRequest": refused("A parameter is unknown, or is not what is expected"),
                "Unknown": refused("The console asks who its visitors are, and no token is given or it holds no longer"),
                "Forbidden": refused("The token's scope, or the pipelines that it is for, do not reach so far"),
                "NotFound": refused("There is nothing of this id"),
                "Conflict": refused("What the database has of it is damaged, or of a newer version"),
                "Unavailable": refused("The database does not answer, or not in time; the same may be possible later"),
                "Refused": refused("Refused"),
            },
        },
    })
}

fn operation(route: &Route, form: Form, schemas: &mut SchemaGenerator) -> Value {
    let (kind, schema) = match form {
        Form::Json(schema) => ("application/json", schema(schemas).to_value()),
        Form::Svg => ("image/svg+xml", json!({ "type": "string" })),
        Form::Events(schema) => {
            let data = schema(schemas).to_value();
            (
                "text/event-stream",
                json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": data }),
            )
        }
    };
    let mut headers = json!({
        "ETag": { "description": "The tag of this answer, for `If-None-Match`", "schema": { "type": "string" } },
    });
    if route.params.iter().any(|about| pages(about)) {
        let description = "The next page, `rel=\"next\"`, where there is one";
        headers["Link"] = json!({ "description": description, "schema": { "type": "string" } });
    }
    let mut responses = json!({
        "200": { "description": "It", "headers": headers, "content": { kind: { "schema": schema } } },
        "304": { "description": "It is what the visitor has already, by `If-None-Match`" },
        "400": { "$ref": "#/components/responses/BadRequest" },
        "503": { "$ref": "#/components/responses/Unavailable" },
        "default": { "$ref": "#/components/responses/Refused" },
    });
    if route.params.iter().any(|about| about.part == Part::Path) {
        responses["404"] = json!({ "$ref": "#/components/responses/NotFound" });
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
            "description": "Go on behind the event of this id",
            "schema": { "type": "string" },
        }));
    }
    responses["401"] = json!({ "$ref": "#/components/responses/Unknown" });
    responses["403"] = json!({ "$ref": "#/components/responses/Forbidden" });
    let Some(body) = route.body else {
        return json!({
            "operationId": name(route.path),
            "summary": route.summary,
            "parameters": params,
            "responses": responses,
        });
    };
    // A deed is asked for anew each time.
    for status in ["304", "200"] {
        responses.as_object_mut().map(|it| it.remove(status));
    }
    for (status, description) in DONE {
        responses[status] = json!({
            "description": description, "content": { kind: { "schema": schema } },
        });
    }
    responses["422"] = json!({ "$ref": "#/components/responses/BadRequest" });
    if route.path.ends_with("/runs") {
        params.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "The run's trigger key: of the pipeline's runs, one at most has it",
            "schema": { "type": "string", "minLength": 1, "maxLength": KEY_MAX },
        }));
        params.push(json!({
            "name": "traceparent",
            "in": "header",
            "required": false,
            "description": "The caller's span, as the W3C's Trace Context writes it: the run's trace has a link to it, or is \
                            a part of its trace. One that is malformed is ignored",
            "schema": { "type": "string" },
        }));
    }
    let scope = route.scope.unwrap_or(Scope::Read);
    json!({
        "operationId": format!("{}_{}", name(route.path), route.method.as_str().to_ascii_lowercase()),
        "summary": route.summary,
        "description": format!("Needs a token of the scope `{scope}`."),
        "parameters": params,
        "requestBody": { "content": { "application/json": { "schema": body(schemas).to_value() } } },
        "responses": responses,
    })
}

/// The statuses of a deed that was done.
const DONE: [(&str, &str); 3] = [
    ("200", "It was done, or had been done before"),
    ("201", "It was done, and made this"),
    ("202", "It was begun, and ends by itself"),
];

/// `runs_id_steps` of `/api/v1/runs/{id}/steps`.
fn name(path: &str) -> String {
    let own = path.trim_start_matches("/api/v1/");
    own.replace(['{', '}', '.'], "").replace(['/', '-'], "_")
}

/// The parameters that ask for a next page.
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
