//! Every statement of the house in one list: what the goldens and the checks are made from.

use super::statement::Statement;
use super::{
    advance, audit, cancel, claim, clock, commit, context, crossing, definition, fill, migrate,
    process, prune, query, resume, revive, sketch, stuck, trigger, why,
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
        crossing::STATEMENTS,
        definition::STATEMENTS,
        fill::STATEMENTS,
        migrate::STATEMENTS,
        super::STATEMENTS,
        process::STATEMENTS,
        prune::STATEMENTS,
        query::STATEMENTS,
        resume::STATEMENTS,
        revive::STATEMENTS,
        sketch::STATEMENTS,
        stuck::STATEMENTS,
        trigger::STATEMENTS,
        why::STATEMENTS,
    ]
    .concat()
}
