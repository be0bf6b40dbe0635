//! The limits of one step of one pipeline.
//!
//! Owns: the order of precedence: the run's definition first, then the configuration.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::config::Config;
use crate::definition::Definition;
use crate::machine::advance::AdvanceLimits;
use crate::machine::outcome::{self, StepLimits};

use crate::store::chance;

/// The configuration, from the engine's point of view. Its clones are one policy.
#[derive(Clone)]
pub struct Policy {
    config: Arc<RwLock<Arc<Config>>>,
}

impl Policy {
    /// The policy that a configuration makes.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config: Arc::new(RwLock::new(config)),
        }
    }

    /// From now on this configuration applies.
    pub fn take_over(&self, config: Arc<Config>) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// The configuration itself.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The budgets of a step.
    pub fn step(&self, definition: &Definition, step: &str) -> StepLimits {
        let config = self.config();
        let of_config = &config.job_worker;
        let pipeline = definition.pipeline.as_str();
        let spec = definition.steps.get(step);
        StepLimits {
            max_retry: spec
                .and_then(|spec| spec.max_retry)
                .unwrap_or_else(|| of_config.max_retry(pipeline, step)),
            max_crash: spec
                .and_then(|spec| spec.max_crash)
                .unwrap_or_else(|| of_config.max_crash(pipeline, step)),
            backoff: spec
                .and_then(|spec| spec.backoff)
                .unwrap_or_else(|| of_config.backoff(pipeline, step)),
        }
    }

    /// The longest that an attempt at a step may take.
    pub fn timeout(&self, definition: &Definition, step: &str) -> Option<Duration> {
        let of_spec = definition.steps.get(step).and_then(|spec| spec.timeout);
        of_spec.or_else(|| self.config().job_worker.timeout(&definition.pipeline, step))
    }

    /// The limits of advancing a branch of a pipeline.
    pub fn advance(&self, pipeline: &str) -> AdvanceLimits {
        let config = self.config();
        let of_config = &config.pipeline_advancer;
        AdvanceLimits {
            max_retry: of_config.max_retry(pipeline),
            max_crash: of_config.max_crash(pipeline),
            max_fan_out: of_config.max_fan_out(pipeline),
            max_payload: usize::try_from(config.job_worker.max_payload(pipeline))
                .unwrap_or(usize::MAX),
        }
    }

    /// The wait before a branch of a pipeline is advanced again, after this many failed attempts in a
    /// row.
    pub fn advance_backoff(&self, pipeline: &str, times: u32) -> Duration {
        let backoff = self.config().pipeline_advancer.backoff(pipeline);
        outcome::retry_delay(times, backoff, chance())
    }

    /// How long a claim holds without a heartbeat.
    pub fn lease(&self) -> Duration {
        self.config().supervisor.reaper_timeout
    }

    /// The time between heartbeats.
    pub fn beat_interval(&self) -> Duration {
        self.config().supervisor.reaper_timeout / 6
    }
}
