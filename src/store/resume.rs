//! Branches that wait for a person, and resuming them.
//!
//! Owns: the end of a dampen, by an answer or by a passed deadline. Never: judges the value that a person
//! gave; the caller has made sure that it is JSON and not too long.
//!
//! One transaction answers a bounded number of questions. [`resume_all`] takes several, oldest first, for a wide run; a
//! caller that is interrupted repeats the call, which answers those that are left.

use std::collections::BTreeMap;

use crate::failpoint::failpoint;
use crate::machine::stuck::GRACE;
use crate::machine::why::QUESTIONS_MAX;
use crate::model::*;
use crate::time;

use super::action::{self, Actor};
use super::backend::Setting;
use super::batch;
use super::conn::{Conn, Row};
use super::cursor::Cursor;
use super::error::Error;
use super::pass::{CONTENDED, Pass, Then};
use super::statement::{Rows, statements};
use super::transition::hooks;
use super::{batch_size, query};

macro_rules! waiting_columns {
    () => {
        "s.id, s.branch_id, s.node, s.created_at, d.answer_by, d.unanswered, {now} AS now,
               {big:octet_length(s.input)} AS size"
    };
}

macro_rules! waiting_from {
    () => {
        "
          FROM ductwork_steps s
          LEFT JOIN ductwork_deadlines d ON {key:d.branch_id;s.branch_id}
         WHERE s.run_id = :run AND s.via = 'dampen' AND s.status = 'waiting'"
    };
}

statements! {
    RESUME_RUN_STATUS = "SELECT status FROM ductwork_runs WHERE id = :run";
    /// In the order of the index, like the next one.
    WAITING_STEPS = concat!("
        SELECT ", waiting_columns!(), ",
               CASE WHEN octet_length(s.input) <= :whole THEN s.input ELSE substr(s.input, 1, 1000) END AS input",
        waiting_from!(), "
         ORDER BY s.created_at, s.id LIMIT :n");
    /// Without the values.
    ASKED_STEPS = concat!("
        SELECT ", waiting_columns!(), waiting_from!(), "
           AND s.created_at <= :until AND s.created_at >= :behind
           AND (s.created_at, s.id) > (:behind, :behind_id)
         ORDER BY s.created_at, s.id LIMIT :n");
    ASKED_STEP = concat!("
        SELECT ", waiting_columns!(), waiting_from!(), " AND s.id = :step");
    /// RACE: two people resume one branch, or one of them cancels the run. All write this row from
    /// 'dampened'; one of them finds it in this state, and the others wait for its lock first.
    /// Proven by `of_two_resumes_at_once_one_counts`.
    HOLD_DAMPENED = "
        SELECT br.step_id FROM {rows:b(branch_id id, step_id id)}
          {join:ductwork_branches br} ON {key:br.id;b.branch_id} AND br.step_id = b.step_id
         WHERE br.status = 'dampened'
         ORDER BY br.id {lock}";
    RESUME_BRANCHES = "
        UPDATE {into:ductwork_branches;b(branch_id id, step_id id)} SET status = 'in_progress', ready_at = {now}
          {from:b(branch_id id, step_id id)}
         WHERE {key:ductwork_branches.id;b.branch_id} AND ductwork_branches.step_id = b.step_id
           AND ductwork_branches.status = 'dampened'";
    RESUME_STEPS = "
        UPDATE {into:ductwork_steps;b(id id)}
           SET status = 'advancing', output = coalesce(:value, input), completed_at = {now},
               answered_by = :by
          {from:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'waiting'";
    /// The step has neither an answer nor an output: an advancer halts the branch.
    FAIL_UNANSWERED = "
        UPDATE {into:ductwork_steps;b(id id)} SET status = 'failed', completed_at = {now}
          {from:b(id id)}
         WHERE {key:ductwork_steps.id;b.id} AND ductwork_steps.status = 'waiting'";
    RESUME_RUNS = "
        UPDATE {into:ductwork_runs;b(id id, n int)}
           SET status = CASE WHEN dampened = b.n THEN 'in_progress' ELSE 'dampened' END,
               dampened = dampened - b.n
          {from:b(id id, n int)}
         WHERE {key:ductwork_runs.id;b.id} AND coalesce(ductwork_runs.status, '') = 'dampened'";
    /// Nobody has locked these rows: a branch is locked before its deadline.
    PASSED_DEADLINES = "
        SELECT d.branch_id, d.answer_by, d.unanswered, br.step_id, br.run_id, {big:octet_length(s.input)} AS size
          FROM ductwork_deadlines d
          LEFT JOIN ductwork_branches br ON {key:br.id;d.branch_id} AND br.status = 'dampened'
          LEFT JOIN ductwork_steps s ON {key:s.id;br.step_id}
         WHERE d.answer_by <= {now} AND d.unanswered IN ('halt', 'approve')
           AND d.answer_by >= :behind AND (d.answer_by, d.branch_id) > (:behind, :behind_id)
         ORDER BY d.answer_by, d.branch_id LIMIT :n";
    END_DEADLINES = "{delete:ductwork_deadlines;b(id id)} WHERE {of:ductwork_deadlines.branch_id;b(id id)}";
    /// RACE: somebody answers a question meanwhile, and its branch reaches a further one. The deadline of that question is
    /// later than those that were read, even if it has passed too, unless the clocks of a cluster's nodes differ by more
    /// than its timeout. Proven by `a_deadline_that_is_set_meanwhile_is_kept`.
    END_PASSED_DEADLINES = "
        {delete:ductwork_deadlines;b(id id)} WHERE {of:ductwork_deadlines.branch_id;b(id id)} AND answer_by <= :until";
}

/// How many questions one transaction answers where several may follow it.
pub const BATCH: usize = 500;

/// The most questions that are answered by one transaction which none follows.
pub const AT_ONCE: usize = 5_000;

/// The most questions that are listed.
pub const LISTED: usize = QUESTIONS_MAX;

/// How many questions one query of a search returns.
const PAGE: usize = 1_000;

/// How many deadlines one transaction handles, unless their values are long.
const DEADLINES: usize = 100;

/// The name that is stored where a deadline answered.
pub const DEADLINE: &str = "(deadline)";

/// A step at which a branch waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingStep {
    /// The step.
    pub step_id: StepId,
    /// Its branch.
    pub branch_id: BranchId,
    /// Its node: the definition says what it asks.
    pub node: String,
    /// The value with which the branch continues unless the person gives another: all of a short one, the beginning of
    /// a longer one, and none where values were not read.
    pub input: Option<String>,
    /// The length of that value, in bytes.
    pub size: usize,
    /// The time since which it waits, in µs since 1970.
    pub since: i64,
    /// The deadline of the answer.
    pub deadline: Option<Due>,
}

/// The deadline of a question, as read at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// µs since 1970.
    pub answer_by: i64,
    /// The database's time when this was read.
    pub now: i64,
    /// The stored word for the move when nobody answers; a newer version may know others.
    pub unanswered: String,
}

impl Due {
    /// True once it has passed: a daemon decides the question, and no answer counts any more. Only a newer version knows
    /// other moves than these two; if none runs, a person can still answer.
    pub fn has_passed(&self) -> bool {
        self.is_over(self.now)
    }

    fn is_over(&self, now: i64) -> bool {
        let is_known = [hooks::APPROVE, hooks::HALT].contains(&self.unanswered.as_str());
        is_known && self.answer_by <= now
    }

    /// The text that people read.
    pub fn words(&self) -> String {
        let when = time::relative(self.answer_by, self.now);
        let [does, should_have] = match self.unanswered.as_str() {
            hooks::APPROVE => ["goes on with this value", "gone on with this value"],
            hooks::HALT => ["halts", "halted"],
            other => return format!("without an answer: {other} {when}"),
        };
        match self.has_passed() {
            false => format!("without an answer it {does} {when}"),
            true if time::between(self.answer_by, self.now) < GRACE => {
                format!("nobody has answered in time: it {does} at any moment")
            }
            true => format!("nobody has answered in time: it should have {should_have} {when}"),
        }
    }

    pub(super) fn read(row: &Row, now: i64) -> Result<Option<Self>, Error> {
        let Some(answer_by) = row.get("answer_by")? else {
            return Ok(None);
        };
        Ok(Some(Self {
            answer_by,
            now,
            unanswered: row.get("unanswered")?,
        }))
    }
}

/// The result of a resumption.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resume {
    /// This many branches continue.
    Done(usize),
    /// Some branches continue; the deadlines of other questions have passed, and a daemon has yet to decide those.
    Partly {
        /// How many branches continue.
        resumed: usize,
        /// How many questions were late.
        late: usize,
    },
    /// The run does not exist.
    NotFound,
    /// The run, or this step of it, does not wait for a person.
    NotDampened(RunStatus),
    /// The deadline of each question has passed, and a daemon has yet to decide it.
    Late,
    /// A value was given, and several steps wait, of which these are the first [`LISTED`]: it is unclear for which of
    /// them it is.
    Ambiguous(Vec<WaitingStep>),
    /// More steps wait than one transaction answers, or with longer values.
    TooMany,
}

/// The result if this many branches continue, and this many questions were late.
fn answered(resumed: usize, late: usize) -> Resume {
    match late {
        0 => Resume::Done(resumed),
        late => Resume::Partly { resumed, late },
    }
}

/// The reason for [`Resume::Late`], where one step was named or none.
pub fn late(run: RunId, step: Option<StepId>) -> String {
    let (question, its) = match step {
        Some(_) => ("this question of the run", "its"),
        None => ("the run", "the"),
    };
    format!("{question} {run} takes no answer any more: {its} deadline has passed")
}

/// The remedy.
pub const LATE: &str = "a daemon decides it within 15 seconds; start `ductworkd` if none runs";

/// The reason for [`Resume::TooMany`].
pub fn too_many(run: RunId) -> String {
    format!(
        "more than {AT_ONCE} steps of the run {run} wait for a person, or steps with values of more than {} MiB in all: \
         too many for one request",
        batch_size::BYTES_MAX >> 20
    )
}

/// The longest value of a question that is read whole, in bytes.
const WHOLE: i64 = 64 << 10;

/// The steps of a run that wait for a person, the longest wait first: at most [`LISTED`].
pub async fn waiting(conn: &mut Conn, run_id: RunId) -> Result<Vec<WaitingStep>, Error> {
    let args = [
        ("run", run_id.0.into()),
        ("whole", WHOLE.into()),
        ("n", LISTED.into()),
    ];
    let rows = conn.fetch(&WAITING_STEPS, &args).await?;
    let with_value = |row: &Row| {
        Ok(WaitingStep {
            // A damaged one hides no other question, and is not shown; `audit` reports it.
            input: row.get("input").ok(),
            ..WaitingStep::read(row)?
        })
    };
    rows.iter().map(with_value).collect()
}

/// The same, without their values.
pub async fn asked(conn: &mut Conn, run_id: RunId) -> Result<Vec<WaitingStep>, Error> {
    asked_behind(conn, run_id, Cursor::FIRST, i64::MAX, LISTED).await
}

/// Those of them that are meant, without their values: at most [`LISTED`].
pub async fn find(
    conn: &mut Conn,
    run_id: RunId,
    is_meant: impl Fn(&WaitingStep) -> bool,
) -> Result<Vec<WaitingStep>, Error> {
    let (mut found, mut behind) = (Vec::new(), Cursor::FIRST);
    loop {
        let page = asked_behind(conn, run_id, behind, i64::MAX, PAGE).await?;
        let (last, is_last) = (page.last().map(WaitingStep::cursor), page.len() < PAGE);
        found.extend(page.into_iter().filter(&is_meant));
        found.truncate(LISTED);
        match last {
            Some(last) if !is_last && found.len() < LISTED => behind = last,
            _ => return Ok(found),
        }
    }
}

/// The first `n` behind this place that were asked until then, in µs since 1970.
async fn asked_behind(
    conn: &mut Conn,
    run_id: RunId,
    behind: Cursor,
    until: i64,
    n: usize,
) -> Result<Vec<WaitingStep>, Error> {
    let [time, id] = behind.args();
    let args = [
        ("run", run_id.0.into()),
        ("until", until.into()),
        time,
        id,
        ("n", n.into()),
    ];
    let rows = conn.fetch(&ASKED_STEPS, &args).await?;
    rows.iter().map(WaitingStep::read).collect()
}

impl WaitingStep {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            step_id: StepId(row.get("id")?),
            branch_id: BranchId(row.get("branch_id")?),
            node: row.get("node")?,
            input: None,
            size: usize::try_from(row.get::<i64>("size")?).unwrap_or_default(),
            since: row.get("created_at")?,
            deadline: Due::read(row, row.get("now")?)?,
        })
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(self.since, self.step_id.0)
    }

    /// True once its deadline [has passed](Due::has_passed).
    pub fn is_late(&self) -> bool {
        self.deadline.as_ref().is_some_and(Due::has_passed)
    }
}

/// How many of the first of these questions one transaction answers: their values are copied.
fn portion(steps: &[WaitingStep], most: usize) -> usize {
    batch_size::first(most, steps.iter().map(|step| step.size))
}

/// The result for a run of which no branch waits any more.
async fn not_dampened(conn: &mut Conn, run_id: RunId) -> Result<Resume, Error> {
    let args = [("run", run_id.0.into())];
    let run = conn.fetch_optional(&RESUME_RUN_STATUS, &args).await?;
    Ok(match run {
        Some(run) => Resume::NotDampened(run.word("status")?),
        None => Resume::NotFound,
    })
}

/// Resumes waiting branches of a run: the one at `step`, or all, up to [`AT_ONCE`]. `value` (one JSON value) replaces
/// the value with which they would continue, and is for one step only. `by` is the person who answers.
pub async fn resume(
    conn: &mut Conn,
    run_id: RunId,
    step: Option<StepId>,
    value: Option<&str>,
    by: Option<&Actor>,
) -> Result<Resume, Error> {
    resume_asked(conn, run_id, step, value, by, Asked::NOW).await
}

/// Which questions of a run are answered where no step is named.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// At most this many.
    pub most: usize,
    /// Those that were asked by then: µs since 1970.
    pub until: i64,
}

impl Asked {
    /// Those that are asked when they are answered.
    const NOW: Self = Self {
        most: AT_ONCE,
        until: i64::MAX,
    };

    /// Those that had been asked by then.
    pub fn by(until: i64) -> Self {
        Self { until, ..Self::NOW }
    }
}

/// The same, of these questions.
pub async fn resume_asked(
    conn: &mut Conn,
    run_id: RunId,
    step: Option<StepId>,
    value: Option<&str>,
    by: Option<&Actor>,
    Asked { most, until }: Asked,
) -> Result<Resume, Error> {
    failpoint!(conn, "resume.begin");
    let resumed = conn.transaction(async |conn| {
        let mut steps = match step {
            None => {
                let n = most.max(LISTED) + 1;
                asked_behind(conn, run_id, Cursor::FIRST, until, n).await?
            }
            Some(step) => {
                let args = [("run", run_id.0.into()), ("step", step.0.into())];
                let row = conn.fetch_optional(&ASKED_STEP, &args).await?;
                row.iter()
                    .map(WaitingStep::read)
                    .collect::<Result<_, _>>()?
            }
        };
        if value.is_some() && steps.len() > 1 {
            steps.truncate(LISTED);
            return Ok(Resume::Ambiguous(steps));
        }
        if portion(&steps, most) < steps.len() {
            return Ok(Resume::TooMany);
        }
        let (n, late) = answer(conn, run_id, steps, value, by).await?;
        match (n, late) {
            (0, 0) => return not_dampened(conn, run_id).await,
            (0, _) => return Ok(Resume::Late),
            _ => {}
        }
        action::record(conn, by, Verb::Resume, [run_id], None).await?;
        failpoint!(conn, "resume.written");
        Ok(answered(n, late))
    });
    let resumed = resumed.await?;
    failpoint!(conn, "resume.end");
    Ok(resumed)
}

/// Resumes all branches of a run that wait for a person by now, this many per transaction, with the values that the
/// questions are about. After each transaction, `report` receives how many continue. The first one that resumes any
/// records the action.
pub async fn resume_all(
    conn: &mut Conn,
    run_id: RunId,
    by: Option<&Actor>,
    batch: usize,
    mut report: impl FnMut(usize),
) -> Result<Resume, Error> {
    let batch = batch.max(1);
    // A branch that goes on may reach a further question meanwhile, which nobody has seen.
    let until = query::now(conn).await?;
    let (mut resumed, mut late, mut behind) = (0, 0, Cursor::FIRST);
    loop {
        failpoint!(conn, "resume.begin");
        let done = conn.transaction(async |conn| {
            let mut steps = asked_behind(conn, run_id, behind, until, batch + 1).await?;
            let fit = portion(&steps, batch);
            let are_more = steps.len() > fit;
            steps.truncate(fit);
            let last = steps.last().map(WaitingStep::cursor);
            let (n, late) = answer(conn, run_id, steps, None, by).await?;
            if resumed == 0 && n > 0 {
                action::record(conn, by, Verb::Resume, [run_id], None).await?;
            }
            failpoint!(conn, "resume.written");
            Ok((n, late, last.filter(|_| are_more)))
        });
        let (n, passed, last) = done.await?;
        failpoint!(conn, "resume.end");
        resumed += n;
        late += passed;
        report(resumed);
        match (last, resumed) {
            (Some(last), _) => behind = last,
            (None, 0) if late > 0 => return Ok(Resume::Late),
            (None, 0) => return not_dampened(conn, run_id).await,
            (None, _) => return Ok(answered(resumed, late)),
        }
    }
}

/// Lets the branches at these steps go on. Returns how many of them were still waiting, and of how many the deadline has
/// passed.
async fn answer(
    conn: &mut Conn,
    run_id: RunId,
    mut steps: Vec<WaitingStep>,
    value: Option<&str>,
    by: Option<&Actor>,
) -> Result<(usize, usize), Error> {
    let of = |step: &WaitingStep| Answered {
        branch_id: step.branch_id,
        step_id: step.step_id,
        run_id,
    };
    let mut late = 0;
    if steps.iter().any(|step| step.deadline.is_some()) {
        // RACE: somebody holds a branch until its deadline has passed, or settles its question. So the time is that at which
        // it is ours. Proven by `an_answer_that_waits_for_a_lock_until_the_deadline_is_late`.
        let all: Vec<Answered> = steps.iter().map(of).collect();
        let held = hold(conn, all.iter()).await?;
        let now = query::now(conn).await?;
        steps.retain(|step| held.binary_search(&step.step_id.0).is_ok());
        let open = steps.len();
        steps.retain(|step| !step.deadline.as_ref().is_some_and(|due| due.is_over(now)));
        late = open - steps.len();
    }
    let answered: Vec<Answered> = steps.iter().map(of).collect();
    let by = by.map(|by| by.name.as_str());
    let n = release(conn, &answered, Answer::Value { value, by }).await?;
    Ok((n, late))
}

/// A branch that waits for a person, in the state in which it was found.
struct Answered {
    branch_id: BranchId,
    step_id: StepId,
    run_id: RunId,
}

/// The answer to a question.
#[derive(Clone, Copy)]
enum Answer<'a> {
    /// The branch continues with this value, or with the value that the question was about.
    Value {
        value: Option<&'a str>,
        by: Option<&'a str>,
    },
    /// Nobody has answered: the branch halts.
    None,
}

/// Locks those of the branches that still wait, and returns their steps in order.
async fn hold<'a>(
    conn: &mut Conn,
    answered: impl Iterator<Item = &'a Answered>,
) -> Result<Vec<uuid::Uuid>, Error> {
    let waiting = batch::in_order(answered.map(|row| (row.branch_id, row.step_id)));
    let rows = Rows::new()
        .ids("branch_id", waiting.iter().map(|(branch, _)| *branch))
        .ids("step_id", waiting.iter().map(|(_, step)| *step));
    let mut held: Vec<uuid::Uuid> = Vec::new();
    for row in conn.fetch(&HOLD_DAMPENED, &[("b", (&rows).into())]).await? {
        held.push(row.get("step_id")?);
    }
    held.sort();
    Ok(held)
}

/// Makes waiting branches ready for an advancer, and returns how many of them were still waiting.
async fn release(
    conn: &mut Conn,
    answered: &[Answered],
    answer: Answer<'_>,
) -> Result<usize, Error> {
    let resumed = hold(conn, answered.iter()).await?;
    if resumed.is_empty() {
        return Ok(0);
    }
    let of_us = |row: &&Answered| resumed.binary_search(&row.step_id.0).is_ok();
    let mut runs: BTreeMap<RunId, i64> = BTreeMap::new();
    for row in answered.iter().filter(of_us) {
        *runs.entry(row.run_id).or_default() += 1;
    }
    let ours = || answered.iter().filter(of_us);
    let rows = Rows::new()
        .ids("branch_id", ours().map(|row| row.branch_id))
        .ids("step_id", ours().map(|row| row.step_id));
    conn.write(&RESUME_BRANCHES, &[("b", (&rows).into())], resumed.len())
        .await?;
    let branches = Rows::new().ids("id", ours().map(|row| row.branch_id));
    conn.execute(&END_DEADLINES, &[("b", (&branches).into())])
        .await?;
    let rows = Rows::new().ids("id", resumed.iter().copied());
    let rows = ("b", (&rows).into());
    // I18: a branch that waits for a person is at a step that waits too, and its run counts it.
    match answer {
        Answer::Value { value, by } => {
            let args = [rows, ("value", value.into()), ("by", by.into())];
            conn.write(&RESUME_STEPS, &args, resumed.len()).await?;
        }
        Answer::None => conn.write(&FAIL_UNANSWERED, &[rows], resumed.len()).await?,
    }
    let rows = Rows::new()
        .ids("id", runs.keys().copied())
        .ints("n", runs.values().copied());
    conn.write(&RESUME_RUNS, &[("b", (&rows).into())], runs.len())
        .await?;
    Ok(resumed.len())
}

/// Questions that were decided because their deadline passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Branches that continue with the value that the question was about.
    pub approved: usize,
    /// Branches that halt.
    pub halted: usize,
    /// True where there may be more.
    pub more: bool,
}

/// The deadlines that have passed, oldest first. One that cannot be handled now, because somebody has
/// locked its branch or because a row is damaged, holds up no other.
pub struct Deadlines {
    /// Where the next transaction looks; after an error, those that failed are before this place.
    pub place: Cursor,
    pass: Pass,
}

impl Deadlines {
    /// The deadlines behind this place.
    pub fn behind(place: Cursor) -> Self {
        let pass = Pass::by(DEADLINES);
        Self { place, pass }
    }

    /// Runs one transaction. Returns an error if the database cannot be reached or nothing can be decided
    /// any more.
    pub async fn step(&mut self, conn: &mut Conn) -> Result<Passed, Error> {
        let n = self.pass.size();
        let mut reached = self.place;
        match decide(conn, &mut reached, n).await {
            Ok(passed) => {
                self.pass.worked((n * 2).min(DEADLINES));
                self.place = reached;
                Ok(passed)
            }
            Err(error) => {
                if self.pass.failed(error)? == Then::PassOver {
                    self.place = reached;
                }
                Ok(Passed {
                    more: true,
                    ..Passed::default()
                })
            }
        }
    }

    /// The first error of those that were passed over.
    pub fn end(&mut self) -> Result<(), Error> {
        self.pass.end()
    }
}

/// Decides the oldest questions whose deadline has passed, in one transaction.
#[cfg(feature = "internals")]
pub async fn pass_deadlines(conn: &mut Conn) -> Result<Passed, Error> {
    decide(conn, &mut { Cursor::FIRST }, DEADLINES).await
}

/// Decides questions whose deadline has passed, oldest first, in one transaction; `place` tells behind
/// which one to begin, and then which one was the last.
///
/// RACE: a person answers, or cancels the run, at the same moment. All write the branch from
/// 'dampened'; one of them finds it in this state. Proven by
/// `of_an_answer_and_a_deadline_at_once_one_counts`.
async fn decide(conn: &mut Conn, place: &mut Cursor, n: usize) -> Result<Passed, Error> {
    failpoint!(conn, "deadlines.begin");
    let behind = *place;
    let passed = conn.transaction_within(CONTENDED, async |conn| {
        conn.set(Setting::ShortLockWait).await?;
        let [time, id] = behind.args();
        let mut found = conn
            .fetch(&PASSED_DEADLINES, &[time, id, ("n", n.into())])
            .await?;
        // An approval copies the value.
        let size = |row: &Row| Ok(row.get::<Option<i64>>("size")?.unwrap_or_default());
        let sizes: Result<Vec<i64>, Error> = found.iter().map(size).collect();
        let sizes = sizes?.into_iter();
        let sizes = sizes.map(|size| usize::try_from(size).unwrap_or_default());
        let fit = batch_size::first(n, sizes);
        let more = found.len() == n || found.len() > fit;
        found.truncate(fit);
        let last = found
            .last()
            .map(|row| Cursor::of(row, "answer_by", "branch_id"));
        let last = last.unwrap_or(Ok(behind))?;
        *place = last;
        let (mut approve, mut halt) = (Vec::new(), Vec::new());
        for row in &found {
            let (Some(step), Some(run)) = (
                row.get::<Option<uuid::Uuid>>("step_id")?,
                row.get::<Option<uuid::Uuid>>("run_id")?,
            ) else {
                // A program that knows no deadlines has answered.
                continue;
            };
            let answered = Answered {
                branch_id: BranchId(row.get("branch_id")?),
                step_id: StepId(step),
                run_id: RunId(run),
            };
            match row.get::<String>("unanswered")?.as_str() {
                hooks::APPROVE => approve.push(answered),
                _ => halt.push(answered),
            }
        }
        let approval = Answer::Value {
            value: None,
            by: Some(DEADLINE),
        };
        // RACE: a person answers or cancels the run, and takes branches before runs. So all branches are locked before
        // the first run is. Raced by `of_an_answer_and_a_deadline_at_once_one_counts`.
        if !approve.is_empty() && !halt.is_empty() {
            hold(conn, approve.iter().chain(&halt)).await?;
        }
        let passed = Passed {
            approved: release(conn, &approve, approval).await?,
            halted: release(conn, &halt, Answer::None).await?,
            more,
        };
        let branches: Result<Vec<uuid::Uuid>, Error> =
            found.iter().map(|row| row.get("branch_id")).collect();
        let rows = Rows::new().ids("id", branches?);
        let args = [("b", (&rows).into()), ("until", last.time().into())];
        conn.execute(&END_PASSED_DEADLINES, &args).await?;
        failpoint!(conn, "deadlines.written");
        Ok(passed)
    });
    let passed = passed.await?;
    failpoint!(conn, "deadlines.end");
    Ok(passed)
}
