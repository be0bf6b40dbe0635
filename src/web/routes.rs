//! Every route of the console.
//!
//! Owns: the one table from which the router is made, and which tests go through. Never: answers a
//! request.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{MethodRouter, get};

use super::refusal::Refusal;
use super::{Site, guard, health, metrics, pages};

/// A route.
#[cfg_attr(
    not(feature = "internals"),
    expect(dead_code, reason = "the tests read all of it")
)]
pub struct Route {
    /// Its method; one that takes GET takes HEAD as well.
    pub method: Method,
    /// Its path, as axum writes it.
    pub path: &'static str,
    /// One line for people, without a full stop.
    pub summary: &'static str,
    /// The visitors that it is for.
    pub scope: Scope,
    serve: fn() -> MethodRouter<Arc<Site>>,
}

/// The visitors that a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everybody, and nobody learns anything about a run.
    Open,
    /// Those who may read.
    Read,
}

pub(super) const fn route(
    method: Method,
    path: &'static str,
    scope: Scope,
    summary: &'static str,
    serve: fn() -> MethodRouter<Arc<Site>>,
) -> Route {
    Route {
        method,
        path,
        summary,
        scope,
        serve,
    }
}

/// All routes.
#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    route(Method::GET, "/", Scope::Read,
        "The overview: runs by state, queues, halted runs, processes", || get(pages::overview)),
    route(Method::GET, "/runs", Scope::Read,
        "The list of runs", || get(pages::runs)),
    route(Method::GET, "/runs/{id}", Scope::Read,
        "A run: what keeps it, its graph, its steps", || get(pages::run)),
    route(Method::GET, "/runs/{id}/input", Scope::Read,
        "The input of a run as a file", || get(pages::input)),
    route(Method::GET, "/runs/{id}/output", Scope::Read,
        "The output of a run as a file", || get(pages::output)),
    route(Method::GET, "/runs/{id}/fan-outs/{fan_out}", Scope::Read,
        "The elements of a fan-out", || get(pages::elements)),
    route(Method::GET, "/runs/{id}/steps/{step}", Scope::Read,
        "A step with its attempts", || get(pages::step)),
    route(Method::GET, "/runs/{id}/steps/{step}/input", Scope::Read,
        "The input of a step as a file", || get(pages::step_input)),
    route(Method::GET, "/runs/{id}/steps/{step}/output", Scope::Read,
        "The output of a step as a file", || get(pages::step_output)),
    route(Method::GET, "/halted", Scope::Read,
        "The halted runs, by kind", || get(pages::halted)),
    route(Method::GET, "/waiting", Scope::Read,
        "Those that wait for a person", || get(pages::waiting)),
    route(Method::GET, "/pipelines", Scope::Read,
        "The pipelines of which there ever was a run", || get(pages::pipelines)),
    route(Method::GET, "/pipelines/{name}", Scope::Read,
        "A pipeline: its graph and its versions", || get(pages::pipeline)),
    route(Method::GET, "/processes", Scope::Read,
        "The processes by host, and those that are gone", || get(pages::processes)),
    route(Method::GET, "/assets/{name}", Scope::Open,
        "A file that pages need", || get(pages::asset)),
    route(Method::GET, "/livez", Scope::Open,
        "200 while the process's loop turns", || get(health::livez)),
    route(Method::GET, "/readyz", Scope::Open,
        "200 while the database answers and the process does not drain", || get(health::readyz)),
    route(Method::GET, "/startupz", Scope::Open,
        "200 from the database's first answer on", || get(health::startupz)),
    route(Method::GET, "/metrics", Scope::Open,
        "All metrics as Prometheus reads them", || get(metrics::metrics)),
];

/// The router of these routes, behind the guard.
pub fn router<'a>(routes: impl IntoIterator<Item = &'a Route>, site: Arc<Site>) -> Router {
    let mut router = Router::new();
    for route in routes {
        router = router.route(route.path, (route.serve)());
    }
    router
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is no such page") })
        .layer(DefaultBodyLimit::max(guard::BODY_MAX))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&site),
            guard::guard,
        ))
        .with_state(site)
}
