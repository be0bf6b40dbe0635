//! Every statement of the product in one list, which the goldens and the checks are made from.

use super::statement::Statement;
use super::{
    action, advance, audit, audit_prefilter, bench, bulk, cancel, claim, clock, commit, context,
    copy, definition, delivery, departed, duty, event, fan_out, halted, known, list, logs, metrics,
    migrate, overview, page, pause, process, prune, query, recovery, report, resume, revive,
    series, steps, stuck, timeline, token, trace, transition, trigger, turn, why,
};

/// Every statement, by module.
pub fn catalogue() -> Vec<&'static Statement> {
    [
        advance::STATEMENTS,
        audit::STATEMENTS,
        cancel::STATEMENTS,
        claim::STATEMENTS,
        clock::STATEMENTS,
        commit::STATEMENTS,
        context::STATEMENTS,
        copy::STATEMENTS,
        event::STATEMENTS,
        fan_out::STATEMENTS,
        halted::STATEMENTS,
        known::STATEMENTS,
        list::STATEMENTS,
        overview::STATEMENTS,
        page::STATEMENTS,
        logs::STATEMENTS,
        transition::STATEMENTS,
        transition::hooks::STATEMENTS,
        transition::insert::STATEMENTS,
        definition::STATEMENTS,
        action::STATEMENTS,
        bulk::STATEMENTS,
        delivery::STATEMENTS,
        delivery::listed::STATEMENTS,
        duty::STATEMENTS,
        trace::STATEMENTS,
        token::STATEMENTS,
        departed::STATEMENTS,
        bench::data::STATEMENTS,
        metrics::STATEMENTS,
        migrate::STATEMENTS,
        super::STATEMENTS,
        pause::STATEMENTS,
        process::STATEMENTS,
        prune::STATEMENTS,
        query::STATEMENTS,
        recovery::STATEMENTS,
        report::STATEMENTS,
        resume::STATEMENTS,
        revive::STATEMENTS,
        audit_prefilter::STATEMENTS,
        series::STATEMENTS,
        steps::STATEMENTS,
        stuck::STATEMENTS,
        timeline::STATEMENTS,
        trigger::STATEMENTS,
        turn::STATEMENTS,
        why::STATEMENTS,
    ]
    .concat()
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
