//! The one form in which a request is refused.
//!
//! Owns: the words of a refusal, as a problem of RFC 9457 below `/api`, as plain text for health and metrics,
//! and as a page elsewhere. Never: decides that a request is refused.

use super::source::ReadError;
use crate::definition::Definition;
use crate::definition::input::Violation;
use crate::model::RunId;
use crate::wire::problem::{FaultJson, ProblemJson};
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::pages;
use super::routes;
use super::visitor::Asking;

/// The form of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For programs: a problem of RFC 9457.
    Problem,
    /// For orchestrators: a line.
    Line,
    /// For people.
    Page,
}

impl Form {
    /// The form for requests of this path.
    pub fn of(path: &str) -> Self {
        let is_api = path == "/api" || path.starts_with("/api/");
        match path {
            _ if is_api => Self::Problem,
            "/livez" | "/readyz" | "/startupz" | "/metrics" => Self::Line,
            _ => Self::Page,
        }
    }
}

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    /// The cause in this case, and the remedy; empty if the status says it all.
    detail: String,
    /// The remedy.
    remedy: Option<&'static str>,
    /// The parameters that are wrong.
    faults: Vec<FaultJson>,
    /// The best page to continue at: its path, and its name.
    way: Option<(String, &'static str)>,
    /// Seconds after which the same request may succeed.
    retry_after: Option<u16>,
}

impl Refusal {
    /// A refusal, with its cause and the remedy.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            remedy: None,
            faults: Vec::new(),
            way: None,
            retry_after: None,
        }
    }

    /// The refusal of parameters, each with the values that are expected.
    pub fn parameters(faults: Vec<FaultJson>) -> Self {
        let names: Vec<&str> = faults.iter().map(|it| it.parameter.as_str()).collect();
        let detail = format!("not as expected: {}", names.join(", "));
        Self {
            faults,
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    /// The refusal of one parameter.
    pub fn parameter(name: &str, detail: &str) -> Self {
        Self::parameters(vec![FaultJson {
            parameter: name.to_owned(),
            pointer: None,
            detail: detail.to_owned(),
        }])
    }

    /// The refusal of an input, with every part that violates the pipeline's schema.
    pub fn input(definition: &Definition, violations: &[Violation]) -> Self {
        let fault = |violation: &Violation| FaultJson {
            parameter: "input".to_owned(),
            pointer: Some(violation.pointer.clone()),
            detail: violation.to_string(),
        };
        let pipeline = &definition.pipeline;
        let detail = format!("the input is not as the pipeline {pipeline} asks");
        let refusal = Self {
            faults: violations.iter().map(fault).collect(),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        };
        match definition.input {
            Some(_) => refusal.remedy("the pipeline's definition has the schema, as `input`"),
            None => refusal,
        }
    }

    /// The cause in this case.
    pub fn into_detail(self) -> String {
        self.detail
    }

    /// Adds the remedy.
    pub fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Says that the refusal is about this run.
    pub fn about(self, run: RunId) -> Self {
        self.leads_to(format!("runs/{run}"), "The run")
    }

    /// Names the best page to continue at.
    pub fn leads_to(self, path: impl Into<String>, name: &'static str) -> Self {
        let way = Some((path.into(), name));
        Self { way, ..self }
    }

    /// Says that the same request may succeed after this many seconds.
    pub fn later(mut self, seconds: u16) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Its response, in the form for this path. `headers`: those with which the refusal was made; `asking`:
    /// the visitor who is refused, if known.
    pub fn response(self, form: Form, mut headers: HeaderMap, asking: Option<Asking>) -> Response {
        let status = self.status;
        let title = status.canonical_reason().unwrap_or("Refused");
        let (kind, body) = match form {
            Form::Problem => {
                let kind = title.to_ascii_lowercase().replace(' ', "-");
                let problem = ProblemJson {
                    kind: &format!("/problems/{kind}"),
                    title,
                    status: status.as_u16(),
                    detail: &self.detail,
                    remedy: self.remedy,
                    errors: &self.faults,
                };
                let problem = serde_json::to_string(&problem);
                ("application/problem+json", problem.unwrap_or_default())
            }
            Form::Page => {
                let texts = [title, &self.detail, self.remedy.unwrap_or_default()];
                pages::refused(status, texts, self.way, asking)
            }
            Form::Line => {
                let detail = match self.detail.is_empty() {
                    true => String::new(),
                    false => format!(": {}", self.detail),
                };
                let code = status.as_u16();
                (TEXT, format!("{code} {title}{detail}\n"))
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        let mut response = (status, body).into_response();
        response.headers_mut().extend(headers);
        response
    }
}

/// The refusal of a run that does not exist.
pub fn no_run(run: RunId) -> Refusal {
    let detail = format!(
        "there is no run {run}; it may have been deleted, as the configuration's retention says"
    );
    Refusal::new(StatusCode::NOT_FOUND, detail)
        .remedy("`/api/v1/runs` and the page `/runs` list those that there are")
}

/// The guard gives the response the form for its path.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let unavailable = |error: &ReadError| {
            let detail = format!("{error}; it is asked again with each request");
            Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        };
        match error {
            ReadError::Away(_) => unavailable(&error).later(2),
            ReadError::OnlyReads(_) => unavailable(&error).later(5).remedy(
                "it is a standby, somebody has made it read-only, or this user may not write its file; the console's log \
                 has the database's own words",
            ),
            ReadError::Hindered(_) | ReadError::Late | ReadError::Crowded => {
                unavailable(&error).later(5)
            }
            ReadError::Unreadable(_) => {
                let detail =
                    format!("{error}; the console's log says which, and `ductworkd audit` why");
                Self::new(StatusCode::CONFLICT, detail)
            }
            // The database's own words may contain things that a visitor must not see.
            ReadError::Failed(_) | ReadError::Panicked => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{error}; the console's log says why"),
            ),
        }
    }
}

impl IntoResponse for ReadError {
    fn into_response(self) -> Response {
        Refusal::from(self).into_response()
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Marks a response that already has its words.
#[derive(Clone, Copy)]
struct Worded;

/// A page of this status that itself says what is wrong, beside the form in which to mend it.
pub fn with_own_words(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    response.extensions_mut().insert(Worded);
    response
}

/// `ok`, or the word for the obstacle.
pub fn word(obstacle: Option<&'static str>) -> Response {
    let status = match obstacle {
        None => StatusCode::OK,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let text = format!("{}\n", obstacle.unwrap_or("ok"));
    let mut response = (status, [(CONTENT_TYPE, TEXT)], text).into_response();
    response.extensions_mut().insert(Worded);
    response
}

/// Words for a status with which none of our own refusals answered: the address takes other methods, or the request's
/// body could not be read.
fn detail(status: StatusCode, (body_max, route): (usize, Option<&str>)) -> String {
    match status {
        StatusCode::METHOD_NOT_ALLOWED if let Some(route) = route => {
            format!("this address takes {}", routes::methods(route).join(", "))
        }
        StatusCode::PAYLOAD_TOO_LARGE => format!("a body may have {body_max} bytes"),
        StatusCode::BAD_REQUEST => "the body of the request cannot be read".to_owned(),
        _ => String::new(),
    }
}

/// Gives a response that refuses the form for its path, whichever part refused. `there`: the bytes that a body may have
/// there, and the route, if there is one.
pub fn worded(mut response: Response, form: Form, there: (usize, Option<&str>)) -> Response {
    let status = response.status();
    let refuses = status.is_client_error() || status.is_server_error();
    if !refuses || response.extensions().get::<Worded>().is_some() {
        return response;
    }
    let asking = response.extensions_mut().remove::<Asking>();
    let refusal = response.extensions_mut().remove::<Refusal>();
    let refusal = refusal.unwrap_or_else(|| Refusal::new(status, detail(status, there)));
    let mut headers = std::mem::take(response.headers_mut());
    headers.remove(axum::http::header::CONTENT_LENGTH);
    *response.body_mut() = Body::empty();
    refusal.response(form, headers, asking)
}
