//! Every route of the console.
//!
//! Owns: the one table from which the router is made, and through which tests go. Never: answers a request.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::http::StatusCode;
use axum::http::Uri;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::model::Scope;

use crate::wire::action::{ActionJson, CancelledJson, MadeJson, ResumedJson, UnpausedJson};
use crate::wire::bulk::{BulkJson, ListedJson, StoppedJson};
use crate::wire::event::EventJson;
use crate::wire::fan_out::{ElementJson, FanOutJson, HaltedJson};
use crate::wire::pipeline::{DefinitionJson, PauseJson, PipelineJson, StatsJson};
use crate::wire::process::ProcessesJson;
use crate::wire::report::ReportJson;
use crate::wire::run::{AloneJson, RunJson, WhyJson};
use crate::wire::series::PointJson;
use crate::wire::step::{LogJson, StepJson};
use crate::wire::trace::TraceJson;
use crate::wire::waiting::QuestionJson;
use crate::wire::webhook::{DeliveryJson, ListedDeliveryJson};

use super::api::given::About;
use super::api::{
    self, Doer, Form, Handler, actions, bulks, openapi, pipelines, processes, reports, runs,
    series, steps, waiting, webhooks,
};
use super::live::events;
use super::refusal::Refusal;
use super::visitor::{self, Gate};
use super::{Site, guard, health, metrics, pages};

/// A route.
pub struct Route {
    /// Its method; a route that takes GET takes HEAD as well.
    pub method: Method,
    /// Its path, as axum writes it.
    pub path: &'static str,
    /// One line for people, without a full stop.
    pub summary: &'static str,
    /// The rights that it requires; none for a route that is for everybody and reveals nothing about a run.
    pub scope: Option<Scope>,
    /// The parameters that it takes; a page's own parameters are not here.
    pub params: &'static [&'static About],
    /// The form of its answers; none outside the API.
    pub form: Option<Form>,
    /// The pipelines that its answer is about.
    pub reach: Reach,
    /// It streams changes to visitors who ask for them.
    pub is_live: bool,
    /// The form of the body that is sent to it.
    pub body: Option<fn(&mut SchemaGenerator) -> Schema>,
    serve: Serve,
}

/// The pipelines that the answer of a route is about: a token for some pipelines admits to no other.
#[derive(Clone, Copy)]
pub enum Reach {
    /// The one that its path names, or that of the run that its path names; all, if the path names none.
    Path,
    /// All, unless a parameter limits the list to a pipeline or, with its whole id, to a run.
    List {
        /// The parameter that names the pipeline.
        pipeline: Option<&'static str>,
        /// The parameter that names the run.
        run: Option<&'static str>,
    },
    /// The function behind the route limits them itself: they are in the request's body, or in a row.
    Own,
}

/// A list that is limited to a pipeline.
const BY_PIPELINE: Reach = Reach::List {
    pipeline: Some("pipeline"),
    run: None,
};

/// A list that is limited to a run.
const BY_RUN: Reach = Reach::List {
    pipeline: None,
    run: Some("run"),
};

/// The list of runs on a page.
const BY_PIPELINE_OR_ID: Reach = Reach::List {
    pipeline: Some("pipeline"),
    run: Some("id"),
};

impl Route {
    /// The same route, whose answer is about these pipelines.
    const fn of(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }
}

/// The function behind a route.
#[derive(Clone, Copy)]
enum Serve {
    Own(fn() -> MethodRouter<Arc<Site>>),
    Api(Handler),
    Deed(Doer),
}

/// For every visitor.
pub(super) const OPEN: Option<Scope> = None;

/// For visitors who may read.
const READ: Option<Scope> = Some(Scope::Read);

/// For visitors who may act on runs.
const OPERATE: Option<Scope> = Some(Scope::Operate);

pub(super) const fn route(
    method: Method,
    path: &'static str,
    scope: Option<Scope>,
    summary: &'static str,
    serve: fn() -> MethodRouter<Arc<Site>>,
) -> Route {
    Route {
        method,
        path,
        summary,
        scope,
        params: &[],
        form: None,
        reach: Reach::Path,
        is_live: false,
        body: None,
        serve: Serve::Own(serve),
    }
}

/// A page that is renewed while somebody looks at it.
pub(super) const fn page(
    path: &'static str,
    summary: &'static str,
    serve: fn() -> MethodRouter<Arc<Site>>,
) -> Route {
    Route {
        method: Method::GET,
        path,
        summary,
        scope: READ,
        params: &[],
        form: None,
        reach: Reach::Path,
        is_live: true,
        body: None,
        serve: Serve::Own(serve),
    }
}

/// A route of the API that reads.
const fn reads(
    path: &'static str,
    summary: &'static str,
    params: &'static [&'static About],
    form: Form,
    handler: Handler,
) -> Route {
    Route {
        method: Method::GET,
        path,
        summary,
        scope: READ,
        params,
        form: Some(form),
        reach: Reach::Path,
        is_live: false,
        body: None,
        serve: Serve::Api(handler),
    }
}

/// A route of the API that streams.
const fn tells(
    path: &'static str,
    summary: &'static str,
    params: &'static [&'static About],
    form: Form,
    serve: fn() -> MethodRouter<Arc<Site>>,
) -> Route {
    Route {
        method: Method::GET,
        path,
        summary,
        scope: READ,
        params,
        form: Some(form),
        reach: Reach::Path,
        is_live: false,
        body: None,
        serve: Serve::Own(serve),
    }
}

/// A route of the API that acts.
const fn acts<Body: JsonSchema>(
    method: Method,
    path: &'static str,
    summary: &'static str,
    params: &'static [&'static About],
    form: Form,
    doer: Doer,
) -> Route {
    Route {
        method,
        path,
        summary,
        scope: OPERATE,
        params,
        form: Some(form),
        reach: Reach::Path,
        is_live: false,
        body: Some(|schemas| schemas.subschema_for::<Body>()),
        serve: Serve::Deed(doer),
    }
}

/// Answers of this form.
const fn json<T: JsonSchema>() -> Form {
    Form::Json(|schemas| schemas.subschema_for::<T>())
}

/// All routes.
#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    page("/",
        "The overview: runs by state, queues, halted runs, processes", || get(pages::overview)).of(Reach::Own),
    page("/runs",
        "The list of runs", || get(pages::runs)).of(BY_PIPELINE_OR_ID),
    page("/runs/{id}",
        "A run: the fact that keeps it from moving, its graph, its steps", || get(pages::run)),
    route(Method::GET, "/runs/{id}/input", READ,
        "The input of a run as a file", || get(pages::input)),
    route(Method::GET, "/runs/{id}/output", READ,
        "The output of a run as a file", || get(pages::output)),
    page("/runs/{id}/fan-outs/{fan_out}",
        "The elements of a fan-out", || get(pages::elements)),
    page("/runs/{id}/steps/{step}",
        "A step with its attempts", || get(pages::step)),
    route(Method::GET, "/runs/{id}/steps/{step}/input", READ,
        "The input of a step as a file", || get(pages::step_input)),
    route(Method::GET, "/runs/{id}/steps/{step}/output", READ,
        "The output of a step as a file", || get(pages::step_output)),
    page("/halted",
        "The halted runs, by kind", || get(pages::halted)).of(BY_PIPELINE),
    page("/waiting",
        "The runs that wait for a person", || get(pages::waiting)).of(Reach::Own),
    page("/pipelines",
        "The pipelines that ever had a run", || get(pages::pipelines)),
    page("/pipelines/{name}",
        "A pipeline: its graph and its versions", || get(pages::pipeline)),
    page("/processes",
        "The processes by host, and those that are gone", || get(pages::processes)),
    route(Method::GET, "/assets/{name}", OPEN,
        "A file that pages need", || get(pages::asset)),
    page("/actions",
        "The actions, newest first", || get(pages::actions)).of(BY_RUN),
    page("/trust",
        "The findings of the last audit and the last drills", || get(pages::trust)),
    page("/bulk",
        "Bulk actions, newest first", || get(pages::all_bulks)),
    route(Method::GET, "/bulk/new", OPERATE,
        "The question before many runs are changed at once", || get(pages::ask_bulk)).of(Reach::Own),
    route(Method::POST, "/bulk", OPERATE,
        "Change many runs at once", || post(pages::bulk)).of(Reach::Own),
    page("/bulk/{id}",
        "A bulk action and its progress", || get(pages::one_bulk)).of(Reach::Own),
    route(Method::POST, "/bulk/{id}/stop", OPERATE,
        "Stop a bulk action", || post(pages::stop_bulk)).of(Reach::Own),
    route(Method::GET, "/webhooks", READ,
        "Messages to endpoints about runs", || get(pages::webhooks)).of(Reach::Own),
    route(Method::POST, "/webhooks/{id}/send", OPERATE,
        "Send a message to its endpoint once more", || post(pages::send_webhook)).of(Reach::Own),
    route(Method::GET, "/runs/{id}/cancel", OPERATE,
        "The question before a run is cancelled", || get(pages::ask_cancel)),
    route(Method::POST, "/runs/{id}/cancel", OPERATE,
        "Cancel a run", || post(pages::cancel)),
    route(Method::POST, "/runs/{id}/revive", OPERATE,
        "Continue a halted run as a new one", || post(pages::revive)),
    route(Method::POST, "/runs/{id}/resume", OPERATE,
        "Resume a run that waits for a person", || post(pages::resume)),
    route(Method::GET, "/pipelines/{name}/trigger", OPERATE,
        "The form that starts a run", || get(pages::ask_trigger)),
    route(Method::POST, "/pipelines/{name}/trigger", OPERATE,
        "Start a run", || post(pages::trigger)),
    route(Method::POST, "/pipelines/{name}/pause", OPERATE,
        "Pause a pipeline", || post(pages::pause)),
    route(Method::POST, "/pipelines/{name}/unpause", OPERATE,
        "Let a paused pipeline continue", || post(pages::unpause)),
    route(Method::GET, "/sign-in", OPEN,
        "The page on which a browser signs in", || get(pages::ask_sign_in)),
    route(Method::POST, "/sign-in", OPEN,
        "Let a browser in, with a token or a link", || post(pages::sign_in)),
    route(Method::POST, "/sign-out", OPEN,
        "End a browser's session", || post(pages::sign_out)),
    route(Method::GET, "/livez", OPEN,
        "200 while the process's loop turns", || get(health::livez)),
    route(Method::GET, "/readyz", OPEN,
        "200 while the database answers and the process does not drain", || get(health::readyz)),
    route(Method::GET, "/startupz", OPEN,
        "200 from the database's first answer on", || get(health::startupz)),
    route(Method::GET, "/metrics", READ,
        "All metrics, in the format of Prometheus", || get(metrics::metrics)),

    reads("/api/v1/runs", "Runs, newest first",
        &[&runs::PIPELINE.about, &runs::STATUS.about, &runs::SINCE.about, &runs::KEY.about, &runs::LIMIT_.about,
          &runs::AFTER.about],
        json::<Vec<RunJson>>(), |site, given| Box::pin(runs::list(site, given))).of(BY_PIPELINE),
    reads("/api/v1/runs/{id}", "One run, with its whole payloads and without its steps",
        &[&runs::ID.about], json::<AloneJson>(), |site, given| Box::pin(runs::one(site, given))),
    reads("/api/v1/runs/{id}/steps", "The steps of a run with their last attempts: first those of its root branch, then \
         fan-out by fan-out and element by element",
        &[&runs::ID.about, &runs::LIMIT_.about, &steps::AFTER.about],
        json::<Vec<StepJson>>(), |site, given| Box::pin(steps::list(site, given))),
    reads("/api/v1/runs/{id}/steps/{step}", "One step, with its whole payloads and its last attempts",
        &[&runs::ID.about, &steps::STEP.about], json::<StepJson>(), |site, given| Box::pin(steps::one(site, given))),
    reads("/api/v1/runs/{id}/why", "The one fact that keeps a run from moving, and the remedy",
        &[&runs::ID.about], json::<WhyJson>(), |site, given| Box::pin(runs::why_not(site, given))),
    reads("/api/v1/runs/{id}/graph.svg", "A run as a picture of its pipeline's graph; for a wide run, only its \
         fan-outs are counted",
        &[&runs::ID.about], Form::Svg, |site, given| Box::pin(runs::picture(site, given))),
    reads("/api/v1/runs/{id}/timeline.svg", "A run as a picture of its timeline: when each step waited and ran; if \
         there are more than 200 steps, each node has a row, with a sample of its steps and those that failed",
        &[&runs::ID.about], Form::Svg, |site, given| Box::pin(runs::times(site, given))),
    reads("/api/v1/runs/{id}/trace", "A run as a trace in the JSON of OTLP, which a collector accepts as it is: the \
         run and each attempt; of more than 1,000, those that failed and some others",
        &[&runs::ID.about], json::<TraceJson>(), |site, given| Box::pin(runs::trace(site, given))),
    reads("/api/v1/runs/{id}/fan-outs", "The fan-outs of a run's root branch, or of another branch",
        &[&runs::ID.about, &steps::BRANCH.about],
        json::<Vec<FanOutJson>>(), |site, given| Box::pin(steps::fan_outs(site, given))),
    reads("/api/v1/runs/{id}/fan-outs/{fan_out}/elements", "The elements of a fan-out, each with the step that it is at",
        &[&runs::ID.about, &steps::FAN_OUT.about, &steps::FROM.about, &runs::LIMIT_.about],
        json::<Vec<ElementJson>>(), |site, given| Box::pin(steps::elements(site, given))),
    reads("/api/v1/executions/{id}/log", "An attempt, and the end of its output on stderr",
        &[&steps::EXECUTION.about], json::<LogJson>(), |site, given| Box::pin(steps::log(site, given))).of(Reach::Own),
    reads("/api/v1/pipelines", "Pipelines, with the counts of their runs and queues",
        &[], json::<Vec<PipelineJson>>(), |site, given| Box::pin(pipelines::list(site, given))),
    reads("/api/v1/pipelines/{name}/series", "The counts of a pipeline by the minute or by the hour, newest first; a \
         time in which nothing was counted has no point",
        &[&actions::NAME.about, &series::SINCE.about, &series::GRAIN.about, &runs::LIMIT_.about, &series::AFTER.about],
        json::<Vec<PointJson>>(), |site, given| Box::pin(series::list(site, given))),
    reads("/api/v1/definitions/{digest}", "A definition of a pipeline, as it was frozen for its runs",
        &[&pipelines::DIGEST.about],
        json::<DefinitionJson>(), |site, given| Box::pin(pipelines::one_definition(site, given))).of(Reach::Own),
    reads("/api/v1/processes", "The registered processes, or those that are gone",
        &[&processes::GONE.about, &runs::LIMIT_.about],
        json::<ProcessesJson>(), |site, given| Box::pin(processes::list(site, given))),
    reads("/api/v1/stats", "The amount of work, for a scaler; at most a second old",
        &[&runs::PIPELINE.about], json::<StatsJson>(), |site, given| Box::pin(pipelines::stats(site, given))).of(BY_PIPELINE),
    reads("/api/v1/halted", "The halted runs that no other run continues, by kind. Of each pipeline, the newest are \
         looked at: its equal share of 2,000, but at least 20",
        &[&runs::PIPELINE.about], json::<HaltedJson>(), |site, given| Box::pin(runs::halted(site, given))).of(BY_PIPELINE),
    reads("/api/v1/waiting", "The questions that wait for a person, those of the oldest run first",
        &[&waiting::PIPELINE.about, &runs::LIMIT_.about, &waiting::AFTER.about],
        json::<Vec<QuestionJson>>(), |site, given| Box::pin(waiting::list(site, given))).of(Reach::Own),
    reads("/api/v1/actions", "The actions of people and programs, newest first",
        &[&actions::RUN.about, &actions::BULK.about, &runs::LIMIT_.about, &actions::AFTER.about],
        json::<Vec<ActionJson>>(), |site, given| Box::pin(actions::list(site, given))).of(BY_RUN),
    acts::<actions::TriggerBody>(Method::POST, "/api/v1/pipelines/{name}/runs", "Start a run. An `Idempotency-Key` \
         is its trigger key: if it is sent again, the answer is 200 with the same run",
        &[&actions::NAME.about], json::<MadeJson>(), |deed| Box::pin(actions::trigger(deed))),
    acts::<actions::ReviveBody>(Method::POST, "/api/v1/runs/{id}/revive", "Continue a halted run as a new one",
        &[&runs::ID.about], json::<MadeJson>(), |deed| Box::pin(actions::revive(deed))),
    acts::<actions::NoBody>(Method::POST, "/api/v1/runs/{id}/cancel", "End a run for good. 202: the run is wide, and \
         the rest of it ends by itself",
        &[&runs::ID.about], json::<CancelledJson>(), |deed| Box::pin(actions::cancel(deed))),
    acts::<actions::ResumeBody>(Method::POST, "/api/v1/runs/{id}/resume", "Resume a run that waits for a person. If the \
         same `step` is answered again, or after its deadline, the answer is 409",
        &[&runs::ID.about], json::<ResumedJson>(), |deed| Box::pin(actions::resume(deed))),
    acts::<actions::PauseBody>(Method::POST, "/api/v1/pipelines/{name}/pause", "Pause a pipeline: nothing more is taken off its queue",
        &[&actions::NAME.about], json::<PauseJson>(), |deed| Box::pin(actions::pause(deed))),
    acts::<actions::NoBody>(Method::POST, "/api/v1/pipelines/{name}/unpause", "Let a paused pipeline continue",
        &[&actions::NAME.about], json::<UnpausedJson>(), |deed| Box::pin(actions::unpause(deed))),
    acts::<bulks::BulkBody>(Method::POST, "/api/v1/bulk", "Revive, cancel or resume many runs, one after the other, \
         in the background: the chosen runs, or all that match",
        &[], json::<BulkJson>(), |deed| Box::pin(bulks::create(deed))).of(Reach::Own),
    reads("/api/v1/bulk", "Bulk actions, newest first",
        &[&runs::LIMIT_.about, &bulks::AFTER.about],
        json::<Vec<ListedJson>>(), |site, given| Box::pin(bulks::list(site, given))),
    reads("/api/v1/bulk/{bulk}", "A bulk action and its progress",
        &[&bulks::ID.about], json::<BulkJson>(), |site, given| Box::pin(bulks::one(site, given))).of(Reach::Own),
    acts::<actions::NoBody>(Method::DELETE, "/api/v1/bulk/{bulk}", "Stop a bulk action: after the answer, it changes \
         no further run",
        &[&bulks::ID.about], json::<StoppedJson>(), |deed| Box::pin(bulks::stop(deed))).of(Reach::Own),
    tells("/api/v1/events", "Changes of runs as they happen, as server-sent events. With `Last-Event-ID`, the stream \
         continues after that event",
        &events::PARAMS, Form::Events(|schemas| schemas.subschema_for::<EventJson<'_>>()), || get(events::events)).of(Reach::Own),
    reads("/api/v1/webhooks", "Messages to endpoints about runs, newest first",
        &[&webhooks::STATE.about, &webhooks::ENDPOINT.about, &webhooks::PIPELINE.about, &runs::LIMIT_.about,
          &webhooks::AFTER.about],
        json::<Vec<ListedDeliveryJson>>(), |site, given| Box::pin(webhooks::list(site, given))).of(Reach::Own),
    acts::<actions::NoBody>(Method::POST, "/api/v1/webhooks/{delivery}/send", "Send a message to its endpoint once more, \
         with the same id",
        &[&webhooks::ID.about], json::<DeliveryJson>(), |deed| Box::pin(webhooks::send(deed))).of(Reach::Own),
    reads("/api/v1/reports", "The findings of audits and drills, newest first: the last 100 of each kind",
        &[&reports::KIND.about, &runs::LIMIT_.about, &reports::AFTER.about],
        json::<Vec<ReportJson>>(), |site, given| Box::pin(reports::list(site, given))),
    reads("/api/v1/openapi.json", "This description",
        &[], json::<serde_json::Map<String, serde_json::Value>>(),
        |site, given| Box::pin(openapi::answer(site, given))).of(Reach::Own),
];

/// The methods of the routes with this path.
pub fn methods(path: &str) -> Vec<&'static str> {
    let own = ROUTES.iter().filter(|it| it.path == path);
    let methods = own.flat_map(|it| match it.method.as_str() {
        "GET" => vec!["GET", "HEAD"],
        method => vec![method],
    });
    methods.collect()
}

/// The router of these routes, behind the guard.
pub fn router(routes: impl IntoIterator<Item = &'static Route>, site: Arc<Site>) -> Router {
    let mut router = Router::new();
    for route in routes {
        let method = match route.serve {
            Serve::Own(own) => own(),
            Serve::Api(handler) => api::serve(route.params, handler),
            Serve::Deed(doer) => api::serve_deed(&route.method, route.params, doer),
        };
        let method = match route.scope {
            None => method,
            Some(needs) => {
                let site = Arc::clone(&site);
                let gate = Arc::new(Gate { site, route, needs });
                method.route_layer(middleware::from_fn_with_state(gate, visitor::gate))
            }
        };
        router = router.route(route.path, method);
    }
    router
        .fallback(|uri: Uri| async move {
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "there is no such page");
            match uri.path().starts_with("/api/") {
                true => refusal.remedy("`/api/v1/openapi.json` lists the paths that there are"),
                false => refusal,
            }
        })
        .layer(DefaultBodyLimit::max(guard::BODY_MAX))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&site),
            guard::guard,
        ))
        .with_state(site)
}
