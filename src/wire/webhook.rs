//! Messages to endpoints, and their deliveries.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::machine::webhook;
use crate::model::*;
use crate::store::delivery::{Delivery, Found, Listed};

use super::Time;

/// How many reasons of one run are told.
const REASONS: usize = 20;

/// A message to an endpoint.
#[derive(Serialize)]
pub struct MessageJson<'a> {
    /// The event: `run.completed`.
    r#type: String,
    /// When the run ended, or was found to wait for a person.
    timestamp: Time,
    data: RunData<'a>,
}

#[derive(Serialize)]
struct RunData<'a> {
    run_id: RunId,
    pipeline: &'a str,
    status: RunStatus,
    key: Option<&'a str>,
    triggered_at: Time,
    ended_at: Option<Time>,
    halt_reasons: &'a [&'a str],
}

impl<'a> MessageJson<'a> {
    /// The message about a run, and why it has halted.
    pub fn of(run: &'a Found, reasons: &'a [&'a str], now: i64) -> Self {
        Self {
            r#type: webhook::event(run.status),
            timestamp: Time::of(run.ended_at.unwrap_or(now)),
            data: RunData {
                run_id: run.id,
                pipeline: &run.pipeline,
                status: run.status,
                key: run.key.as_deref(),
                triggered_at: Time::of(run.triggered_at),
                ended_at: run.ended_at.map(Time::of),
                halt_reasons: &reasons[..reasons.len().min(REASONS)],
            },
        }
    }
}

/// The delivery of a message about a run to an endpoint.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub struct DeliveryJson<'a> {
    /// Its id.
    id: Uuid,
    /// The endpoint's name in the configuration.
    endpoint: &'a str,
    /// False if the console's configuration has no such endpoint: the console then does not send this message.
    is_configured: bool,
    /// The message's id, as the endpoint sees it: the same in every attempt.
    message: String,
    /// The event: `run.completed`, `run.halted`, `run.cancelled` or `run.dampened`.
    event: String,
    /// The run.
    run_id: RunId,
    /// The run's pipeline.
    pipeline: &'a str,
    /// `waiting`, then `delivered` or `failed`.
    state: &'a str,
    /// The number of attempts so far.
    attempts: u32,
    /// When the run was found.
    created_at: Time,
    /// When the next attempt is due.
    due_at: Option<Time>,
    /// When the last attempt ended.
    tried_at: Option<Time>,
    /// The status of the last response.
    status: Option<i64>,
    /// The reason why the last attempt failed.
    error: Option<&'a str>,
}

impl<'a> DeliveryJson<'a> {
    /// The form of a delivery, whose endpoint is configured or not.
    pub fn of(delivery: &'a Delivery, is_configured: bool) -> Self {
        Self {
            id: delivery.id,
            endpoint: &delivery.endpoint,
            is_configured,
            message: format!("{}:{}", delivery.run, delivery.event),
            event: format!("run.{}", delivery.event),
            run_id: delivery.run,
            pipeline: &delivery.pipeline,
            state: &delivery.state,
            attempts: delivery.attempts,
            created_at: Time::of(delivery.created_at),
            due_at: delivery.due_at.map(Time::of),
            tried_at: delivery.tried_at.map(Time::of),
            status: delivery.status,
            error: delivery.error.as_deref(),
        }
    }
}

/// A delivery in a list.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "DeliveryOfList")]
pub enum ListedDeliveryJson<'a> {
    /// A delivery that can be read.
    Delivery(Box<DeliveryJson<'a>>),
    /// A delivery whose row is damaged: it is not sent.
    Unreadable {
        /// Its id.
        id: Uuid,
        /// Always `unreadable`.
        state: &'static str,
    },
}

impl<'a> ListedDeliveryJson<'a> {
    /// The form of a delivery in a list, with whether its endpoint is configured.
    pub fn of(listed: &'a Listed, is_configured: impl Fn(&str) -> bool) -> Self {
        match listed {
            Listed::Delivery(delivery) => {
                let is_configured = is_configured(&delivery.endpoint);
                Self::Delivery(Box::new(DeliveryJson::of(delivery, is_configured)))
            }
            Listed::Unreadable(id) => Self::Unreadable {
                id: *id,
                state: "unreadable",
            },
        }
    }
}
