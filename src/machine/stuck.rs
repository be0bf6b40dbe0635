//! Work that does not move although it should: `health` reports it on any host, and one supervisor reports
//! it in its log.
//!
//! Decided from facts that were loaded in one snapshot; all times are the database's. A backlog is no
//! fault while something moves, and neither is a step that takes long.

use std::time::Duration;

use crate::model::*;
use crate::time;

use super::intake;
use super::pause::Pause;
use super::why;

/// Work no older than this is still on its way.
pub const GRACE: Duration = Duration::from_secs(40);

/// The words in which a console says that it cannot send traces; the reason follows.
pub const UNSENT: &str = "traces cannot be sent";

/// The words in which a console says that its collector is away; the name and the reason follow.
pub const AWAY: &str = "traces cannot be sent to";

/// The words in which a console says that the database refuses its statements; the reason follows.
pub const REFUSED: &str = "the console's work is held up";

/// The words in which a worker says that a step waits to write the context of its run; the reason follows.
pub const UNSET: &str = "some values of contexts wait to be written";

/// The words in which a worker says that it cannot store some results; the reason follows.
pub const UNSTORED: &str = "some results cannot be stored";

/// At most this many queues that stand still are reported.
const REPORTED: usize = 20;

/// The words in which a process says that it cannot pass deadlines and the like; the reason follows.
pub const UNKEPT: &str = "some deadlines, unfinished cancellations or deletions of old runs wait";

/// The words in which a supervisor says that a child does not live long; the child's kind comes before them.
pub const DIES: &str = "dies again and again";

/// The words in which a supervisor says that it could not read its configuration anew; the reason follows.
pub const NOT_RELOADED: &str = "the last reload failed";

/// The cause of a process that makes no progress.
const TROUBLE: &str = "trouble";

/// The cause of a console whose collector is away.
const UNTRACED: &str = "untraced";

/// The remedy for a console that cannot read the runs whose traces are due.
const READ_RUNS: &str = "`ductworkd audit` finds damaged rows; the console's log says more";

/// The remedy for a console whose collector is away.
const MEND_COLLECTOR: &str = "check that the collector of `console.traces` can be reached and accepts what is sent; traces of runs that \
     are kept are then sent";

/// The remedy for a process whose statements the database refuses.
const MEND_DATABASE: &str =
    "remove the obstacle that the message names; the work then goes on by itself";

/// The remedy for a worker that cannot store some results.
const MEND_ROWS: &str = "`ductworkd audit` finds damaged rows: correct them, or remove the trigger or the policy that keeps rows as they are; \
     the results are then stored within half a minute";

/// The text of a refused statement begins with these words; the reason follows.
pub const STATEMENT_REFUSED: &str = "the database refused a statement";

/// The cause of a process of which only some of the work is held up.
const HELD_UP: &str = "held_up";

/// The remedy for a supervisor that could not read its configuration anew.
const RELOAD: &str = "if the message names a key that takes effect only after a restart, restart `ductworkd`; otherwise \
     `ductworkd check` shows the mistake: fix it, and send HUP again";

/// The remedy for a console that cannot listen.
const LISTEN_ELSEWHERE: &str = "end the program that uses the address or the socket, or set `console.listen` or `console.socket` to another one";

/// The facts about waiting work, and about the processes that could move it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The database's time.
    pub now: i64,
    /// The age at which a heartbeat is stale.
    pub stale_after: Duration,
    /// All processes.
    pub processes: Vec<Mover>,
    /// For each pipeline, the execution that has been due longest, if for longer than the grace.
    pub due: Vec<Waiting>,
    /// The branch that has been ready longest, if for longer than the grace.
    pub ready: Option<Waiting>,
    /// Branches that were tried in vain for longer than the grace, and the reasons.
    pub tried: Vec<(Waiting, Option<String>)>,
    /// Work that is held under a lease that has been over for longer than the grace.
    pub expired: Vec<Waiting>,
    /// Questions and cancellations that a daemon should have decided or finished before the grace began.
    pub unkept: Vec<(Waiting, Unkept)>,
    /// The way to end the transaction that has locked rows for which work waits, if its session is known.
    pub holder: Option<String>,
    /// Pipelines that are paused: work that waits in their queues is not stuck.
    pub pauses: Vec<Pause>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Mover {
    /// Its key.
    pub id: ProcessId,
    /// Its supervisor, if it has one.
    pub supervisor: Option<ProcessId>,
    /// Its purpose.
    pub role: Role,
    /// The pipeline whose jobs it works on.
    pub pipeline: Option<String>,
    /// Its host.
    pub host: String,
    /// Its pid there.
    pub pid: u32,
    /// The program's version.
    pub version: String,
    /// The time since its last heartbeat.
    pub age: Duration,
    /// Its host knows that it is dead.
    pub dead: bool,
    /// Whether it takes new work.
    pub intake: Intake,
    /// When it last claimed or advanced something, or started.
    pub moved_at: i64,
    /// How much it holds.
    pub holds: u64,
    /// The trouble that keeps it from making progress, and since when.
    pub trouble: Option<(String, i64)>,
}

impl Mover {
    fn taker(&self) -> intake::Taker<'_> {
        intake::Taker {
            id: self.id,
            supervisor: self.supervisor,
            role: self.role,
            pid: self.pid,
            host: &self.host,
            intake: self.intake,
        }
    }
}

/// Waiting work of a run.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The run.
    pub run_id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Since when.
    pub since: i64,
}

/// Work that no worker and no advancer does, but a daemon besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// The time for an answer is over.
    Question,
    /// A cancellation that was left half done.
    Cancellation,
}

/// Stuck work, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Stable, for programs.
    pub cause: &'static str,
    /// The pipeline it concerns.
    pub pipeline: Option<String>,
    /// A run it concerns.
    pub run_id: Option<RunId>,
    /// Since when.
    pub since: i64,
    /// A description.
    pub fact: String,
    /// The remedy.
    pub remedy: String,
}

impl Stuck {
    /// True if somebody else's server is away: no process here is at fault, and none can fix it.
    pub fn is_elsewhere(&self) -> bool {
        self.cause == UNTRACED
    }
}

/// All work that does not move, once for each pipeline and cause.
pub fn stuck(facts: &Facts) -> Vec<Stuck> {
    let mut stuck: Vec<Stuck> = facts
        .processes
        .iter()
        .filter(|process| facts.alive(process))
        .filter_map(|process| facts.troubled(process))
        .collect();
    let due = facts.due.iter().filter_map(|waiting| facts.due(waiting));
    stuck.extend(due.take(REPORTED));
    stuck.extend(
        facts
            .ready
            .iter()
            .filter_map(|waiting| facts.ready(waiting)),
    );
    stuck.extend(facts.tried.iter().map(|(waiting, error)| {
        let why = match error {
            Some(error) => format!(": {error}"),
            None => String::new(),
        };
        let what = format!(
            "a branch of {} has been given back again and again",
            waiting.pipeline
        );
        let remedy = format!("`ductworkd why {}` explains it", waiting.run_id);
        facts.report("not_advanced", waiting, &what, &why, remedy)
    }));
    stuck.extend(facts.expired.iter().map(|waiting| {
        let what = format!(
            "work of {} has been under an expired lease",
            waiting.pipeline
        );
        let why = ", and no process recovers it";
        let remedy = match facts.is_somebody_alive() {
            true => {
                "`ductworkd health` names the database session that has locked it, if there is one"
            }
            false => "start `ductworkd`: any process that is alive recovers it",
        };
        facts.report("not_recovered", waiting, &what, why, remedy.to_owned())
    }));
    // A process that says why tells more.
    let is_told = |process: &Mover| {
        let trouble = process.trouble.as_ref();
        facts.alive(process) && trouble.is_some_and(|(text, _)| text.starts_with(UNKEPT))
    };
    if !facts.processes.iter().any(is_told) {
        let unkept = facts.unkept.iter();
        stuck.extend(unkept.map(|(waiting, kind)| facts.unkept(waiting, *kind)));
    }
    let mut seen = std::collections::HashSet::new();
    stuck.retain(|stuck| seen.insert((stuck.cause, stuck.pipeline.clone())));
    stuck
}

/// True if the trouble holds up only some of the work.
fn is_held_up(trouble: &str) -> bool {
    let known = [REFUSED, UNKEPT, UNSET, UNSTORED];
    known.iter().any(|it| trouble.starts_with(it))
}

/// True if a trouble that a process of this role reports is a fault here, and not of somebody else's server.
pub fn is_fault(role: Role, trouble: &str) -> bool {
    role != Role::Console || !trouble.starts_with(AWAY)
}

/// The remedy for a trouble of a process that does work, if its words tell one; `holder` is the way to end the transaction
/// of a session that is in the way.
pub fn remedy(trouble: &str, holder: Option<&str>) -> Option<String> {
    if trouble.contains(why::LOCKED) {
        return Some(why::end_transaction(holder));
    }
    if trouble.starts_with(UNSTORED) {
        return Some(MEND_ROWS.to_owned());
    }
    let refused = is_held_up(trouble) || trouble.starts_with(STATEMENT_REFUSED);
    refused.then(|| MEND_DATABASE.to_owned())
}

impl Facts {
    /// Treats these processes as alive: no heartbeat can be written to their rows.
    pub fn spare(&mut self, locked: &[ProcessId]) {
        for process in &mut self.processes {
            if locked.contains(&process.id) {
                process.age = Duration::ZERO;
            }
        }
    }

    /// Nobody can write: that work waits and heartbeats are old follows from it, and starting a daemon is no remedy.
    pub fn without_consequences(&mut self) {
        self.due.clear();
        self.ready = None;
        self.tried.clear();
        self.expired.clear();
        self.unkept.clear();
    }

    /// True where a process has reported that work waits for rows that somebody has locked.
    pub fn waits_for_rows(&self) -> bool {
        let mut troubles = self.processes.iter().filter_map(|it| it.trouble.as_ref());
        troubles.any(|(trouble, _)| trouble.contains(why::LOCKED))
    }

    fn alive(&self, process: &Mover) -> bool {
        !process.dead && process.age < self.stale_after
    }

    /// True where a process is alive that recovers, and decides what nobody has decided in time.
    fn is_somebody_alive(&self) -> bool {
        let mut others = self.processes.iter().filter(|it| it.role != Role::Console);
        others.any(|process| self.alive(process))
    }

    fn unkept(&self, waiting: &Waiting, kind: Unkept) -> Stuck {
        let pipeline = &waiting.pipeline;
        let (cause, what, why) = match kind {
            Unkept::Question => (
                "not_decided",
                format!("a question of {pipeline} has been over its time"),
                ", and has not been decided",
            ),
            Unkept::Cancellation => (
                "not_cancelled",
                format!("a cancellation of {pipeline} has stood still"),
                ", and has not been finished",
            ),
        };
        let remedy = match self.is_somebody_alive() {
            true => format!(
                "`ductworkd why {}` may explain it; so may the log of a supervisor",
                waiting.run_id
            ),
            false => intake::START.to_owned(),
        };
        self.report(cause, waiting, &what, why, remedy)
    }

    fn span(&self, since: i64) -> String {
        time::whole(time::between(since, self.now))
    }

    fn report(
        &self,
        cause: &'static str,
        waiting: &Waiting,
        what: &str,
        why: &str,
        remedy: String,
    ) -> Stuck {
        Stuck {
            cause,
            pipeline: Some(waiting.pipeline.clone()),
            run_id: Some(waiting.run_id),
            since: waiting.since,
            fact: format!("{what} for {}{why}", self.span(waiting.since)),
            remedy,
        }
    }

    fn troubled(&self, process: &Mover) -> Option<Stuck> {
        let (trouble, since) = process.trouble.as_ref()?;
        let (of, list) = match &process.pipeline {
            Some(pipeline) => (
                format!(" {pipeline}"),
                format!("ductworkd runs --pipeline {pipeline}"),
            ),
            None => (String::new(), "ductworkd runs".to_owned()),
        };
        let list = || format!("`{list}` lists the runs, `ductworkd why RUN` says why one waits");
        let is_held_up = is_held_up(trouble);
        let remedy = remedy(trouble, self.holder.as_deref());
        let (cause, remedy) = match (process.role, remedy) {
            (_, Some(remedy)) if is_held_up => (HELD_UP, remedy),
            // No work waits for it.
            _ if !is_fault(process.role, trouble) => (UNTRACED, MEND_COLLECTOR.to_owned()),
            (Role::Console, _) if trouble.starts_with(UNSENT) => (TROUBLE, READ_RUNS.to_owned()),
            (Role::Supervisor, _) if trouble.starts_with(NOT_RELOADED) => {
                (TROUBLE, RELOAD.to_owned())
            }
            (Role::Console, _) => (TROUBLE, LISTEN_ELSEWHERE.to_owned()),
            (_, remedy) => (TROUBLE, remedy.unwrap_or_else(list)),
        };
        let state = match trouble {
            it if it.starts_with(NOT_RELOADED) => "has been working with an old configuration",
            it if it.contains(why::LOCKED) || is_held_up => "has been unable to do all of its work",
            _ => "has been unable to proceed",
        };
        Some(Stuck {
            cause,
            pipeline: process.pipeline.clone(),
            run_id: None,
            since: *since,
            fact: format!(
                "{}{of} (pid {} on {}, version {}) {state} for {}: {trouble}",
                process.role,
                process.pid,
                process.host,
                process.version,
                self.span(*since)
            ),
            remedy,
        })
    }

    fn due(&self, waiting: &Waiting) -> Option<Stuck> {
        let pipeline = &waiting.pipeline;
        if self.pauses.iter().any(|pause| pause.pipeline == *pipeline) {
            return None;
        }
        let workers = self.movers(Role::Worker, pipeline);
        let what = format!("work of {pipeline} has been due");
        let (cause, why, remedy) = self.unmoved(
            &workers,
            &format!("worker of {pipeline}"),
            &self.start(pipeline),
            waiting,
        )?;
        Some(self.report(cause, waiting, &what, &why, remedy))
    }

    fn ready(&self, waiting: &Waiting) -> Option<Stuck> {
        let advancers = self.movers(Role::Advancer, &waiting.pipeline);
        let what = format!("a branch of {} has been ready", waiting.pipeline);
        let (cause, why, remedy) = self.unmoved(
            &advancers,
            "advancer",
            intake::start(Role::Advancer, &self.living()),
            waiting,
        )?;
        Some(self.report(cause, waiting, &what, &why, remedy))
    }

    /// The remedy if no worker of a pipeline is alive.
    fn start(&self, pipeline: &str) -> String {
        let own = |process: &Mover| process.pipeline.as_deref() == Some(pipeline);
        match self.processes.iter().any(own) {
            false => intake::start_worker(pipeline, &self.living()),
            true => intake::start(Role::Worker, &self.living()).to_owned(),
        }
    }

    /// The living processes.
    fn living(&self) -> Vec<intake::Taker<'_>> {
        let processes = self.processes.iter();
        let living = processes.filter(|it| self.alive(it));
        living.map(Mover::taker).collect()
    }

    /// The living processes that could move work of a pipeline.
    fn movers(&self, role: Role, pipeline: &str) -> Vec<&Mover> {
        let serves = |process: &&Mover| {
            process.role == role
                && process
                    .pipeline
                    .as_deref()
                    .is_none_or(|own| own == pipeline)
                && self.alive(process)
        };
        self.processes.iter().filter(serves).collect()
    }

    /// Why none of them moves it; `None` when one does, or when one has reported why not.
    fn unmoved(
        &self,
        movers: &[&Mover],
        name: &str,
        start: &str,
        waiting: &Waiting,
    ) -> Option<(&'static str, String, String)> {
        if movers.iter().any(|process| process.trouble.is_some()) {
            return None;
        }
        if movers.is_empty() {
            let cause = if name == "advancer" {
                "no_advancer"
            } else {
                "no_worker"
            };
            return Some((cause, format!(", and no {name} is alive"), start.to_owned()));
        }
        let takers: Vec<_> = movers.iter().map(|it| it.taker()).collect();
        if let Some(closed) = intake::closed(&takers, &self.living()) {
            return Some((
                closed.cause,
                format!(", and {}", closed.fact),
                closed.remedy,
            ));
        }
        let idle = |process: &&&Mover| {
            process.holds == 0 && time::between(process.moved_at, self.now) > GRACE
        };
        let mut open = movers.iter().filter(|process| process.intake.is_open());
        let first = open.next().filter(idle)?;
        if !open.all(|process| idle(&process)) {
            return None;
        }
        let why = format!(
            ", and the {name} (pid {} on {}) has nothing else to do, but does not take it",
            first.pid, first.host
        );
        let remedy = format!(
            "`ductworkd why {}` explains it; the log of that process may say more; restart `ductworkd` there",
            waiting.run_id
        );
        Some(("not_taken", why, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000_000;
    const SECOND: i64 = 1_000_000;

    fn mover(role: Role) -> Mover {
        Mover {
            id: ProcessId(uuid::Uuid::nil()),
            supervisor: None,
            role,
            pipeline: (role == Role::Worker).then(|| "P".to_owned()),
            host: "box".to_owned(),
            pid: 7,
            version: "1.2.3".to_owned(),
            age: Duration::from_secs(1),
            dead: false,
            intake: Intake::Open,
            moved_at: NOW - 600 * SECOND,
            holds: 0,
            trouble: None,
        }
    }

    fn waiting() -> Waiting {
        Waiting {
            run_id: RunId(uuid::Uuid::nil()),
            pipeline: "P".to_owned(),
            since: NOW - 310 * SECOND,
        }
    }

    fn facts(processes: Vec<Mover>) -> Facts {
        Facts {
            now: NOW,
            stale_after: Duration::from_secs(30),
            processes,
            ..Facts::default()
        }
    }

    fn causes(facts: &Facts) -> Vec<&'static str> {
        stuck(facts).iter().map(|stuck| stuck.cause).collect()
    }

    #[test]
    fn a_backlog_is_told_only_when_nobody_moves_it() {
        let alter = |role, change: fn(&mut Mover)| {
            let mut mover = mover(role);
            change(&mut mover);
            mover
        };
        let none: &[&str] = &[];
        for role in [Role::Worker, Role::Advancer] {
            let nobody = match role {
                Role::Worker => "no_worker",
                _ => "no_advancer",
            };
            let busy = alter(role, |it| it.holds = 1);
            let moving = alter(role, |it| it.moved_at = NOW - 39 * SECOND);
            let quiet = alter(role, |it| it.intake = Intake::Quiet);
            let stopping = alter(role, |it| it.intake = Intake::Stopping);
            let stale = alter(role, |it| it.age = Duration::from_secs(31));
            let dead = alter(role, |it| {
                (it.dead, it.intake, it.holds) = (true, Intake::Quiet, 1);
            });
            let idle = mover(role);
            let mut other = mover(role);
            other.pipeline = Some("Q".to_owned());
            for (processes, expected) in [
                (vec![], &[nobody][..]),
                (vec![stale], &[nobody]),
                (vec![dead], &[nobody]),
                (vec![other], &[nobody]),
                (vec![mover(Role::Supervisor)], &[nobody]),
                (vec![quiet.clone()], &["quiet"]),
                (vec![stopping.clone()], &["stopping"]),
                (vec![stopping.clone(), quiet.clone()], &["quiet"]),
                (vec![stopping, idle.clone()], &["not_taken"]),
                (vec![idle.clone()], &["not_taken"]),
                (vec![idle.clone(), quiet.clone()], &["not_taken"]),
                (vec![busy.clone()], none),
                (vec![moving.clone(), idle.clone()], none),
                (vec![busy, quiet], none),
            ] {
                let mut facts = facts(processes.clone());
                match role {
                    Role::Worker => facts.due.push(waiting()),
                    _ => facts.ready = Some(waiting()),
                }
                assert_eq!(causes(&facts), expected, "{processes:#?}");
            }
        }
    }

    #[test]
    fn the_queue_of_a_paused_pipeline_is_not_stuck_and_its_branches_may_be() {
        let mut facts = facts(Vec::new());
        facts.due = vec![waiting()];
        facts.ready = Some(waiting());
        let paused = |pipeline: &str| Pause {
            pipeline: pipeline.to_owned(),
            reason: "why".to_owned(),
            by: "ana".to_owned(),
            at: NOW,
        };
        facts.pauses = vec![paused("Q")];
        assert_eq!(causes(&facts), ["no_worker", "no_advancer"]);
        facts.pauses.push(paused("P"));
        assert_eq!(causes(&facts), ["no_advancer"]);
    }

    #[test]
    fn a_trouble_is_told_with_who_has_it_and_what_waits_for_it_is_not_told_again() {
        let mut troubled = mover(Role::Worker);
        troubled.trouble = Some(("it is new".to_owned(), NOW - 65 * SECOND));
        let mut facts = facts(vec![troubled.clone(), troubled]);
        facts.due.push(waiting());
        let stuck = stuck(&facts);
        assert_eq!(stuck.len(), 1, "{stuck:#?}");
        assert_eq!(
            stuck[0].fact,
            "worker P (pid 7 on box, version 1.2.3) has been unable to proceed for 1m 5s: it is new"
        );
        // A dead process is not reported, however young its heartbeat is.
        for process in &mut facts.processes {
            process.dead = true;
        }
        assert_eq!(causes(&facts), ["no_worker"]);
        for process in &mut facts.processes {
            (process.dead, process.age) = (false, Duration::from_secs(31));
        }
        assert_eq!(causes(&facts), ["no_worker"]);
    }

    #[test]
    fn a_console_that_cannot_listen_is_told_with_the_way_out() {
        let mut console = mover(Role::Console);
        console.trouble = Some(("it cannot listen".to_owned(), NOW - 65 * SECOND));
        let stuck = stuck(&facts(vec![console]));
        assert!(stuck[0].fact.starts_with("console "), "{stuck:#?}");
        assert!(stuck[0].remedy.contains("`console.listen`"), "{stuck:#?}");
        assert!(!stuck[0].is_elsewhere());
    }

    #[test]
    fn a_collector_that_is_away_is_told_as_somebody_elses_fault_and_rows_that_cannot_be_read_as_ours()
     {
        let sending = |text: String| {
            let mut console = mover(Role::Console);
            console.trouble = Some((text, NOW - 65 * SECOND));
            super::stuck(&facts(vec![console])).remove(0)
        };
        let away = sending(format!("{AWAY} a:1: gone"));
        assert!(
            away.is_elsewhere() && away.remedy.contains("`console.traces`"),
            "{away:#?}"
        );
        let unread = sending(format!("{UNSENT}: a row is damaged"));
        assert!(
            !unread.is_elsewhere() && unread.remedy.contains("`ductworkd audit`"),
            "{unread:#?}"
        );
    }

    #[test]
    fn a_question_that_nobody_decides_in_time_is_told_unless_a_process_says_why() {
        let mut facts = facts(vec![mover(Role::Supervisor)]);
        facts.unkept = [Unkept::Question, Unkept::Question, Unkept::Cancellation]
            .map(|kind| (waiting(), kind))
            .to_vec();
        let stuck = super::stuck(&facts);
        let told: Vec<_> = stuck.iter().map(|it| it.fact.as_str()).collect();
        assert_eq!(
            told,
            [
                "a question of P has been over its time for 5m 10s, and has not been decided",
                "a cancellation of P has stood still for 5m 10s, and has not been finished"
            ]
        );
        assert!(stuck[0].remedy.contains("the log of a supervisor"));
        let mut told = facts.clone();
        told.due.push(waiting());
        told.ready = Some(waiting());
        told.expired.push(waiting());
        told.tried.push((waiting(), None));
        told.without_consequences();
        assert_eq!(super::stuck(&told), []);
        facts.processes[0].dead = true;
        assert_eq!(super::stuck(&facts)[0].remedy, intake::START);
        facts.processes[0].dead = false;
        facts.processes[0].trouble = Some((format!("{UNKEPT}: no room"), NOW - 65 * SECOND));
        assert_eq!(causes(&facts), [HELD_UP]);
    }

    #[test]
    fn work_of_which_some_is_held_up_hides_no_process_that_stands_still() {
        let mut mover = mover(Role::Supervisor);
        mover.trouble = Some((format!("{UNKEPT}: no room"), NOW - 65 * SECOND));
        let mut advancer = super::tests::mover(Role::Advancer);
        advancer.trouble = Some(("no claims".to_owned(), NOW - 60 * SECOND));
        let stuck = super::stuck(&facts(vec![mover, advancer]));
        let causes: Vec<_> = stuck.iter().map(|it| it.cause).collect();
        assert_eq!(causes, [HELD_UP, TROUBLE], "{stuck:#?}");
        assert!(
            stuck[0]
                .fact
                .contains("has been unable to do all of its work for 1m 5s")
        );
        assert_eq!(stuck[0].remedy, MEND_DATABASE);
    }

    #[test]
    fn what_is_tried_in_vain_and_what_nobody_recovers_is_told_once_for_each_pipeline() {
        let mut facts = facts(Vec::new());
        facts.tried = vec![(waiting(), Some("refused".to_owned())), (waiting(), None)];
        facts.expired = vec![waiting(), waiting()];
        let told: Vec<String> = stuck(&facts).into_iter().map(|stuck| stuck.fact).collect();
        assert_eq!(
            told,
            [
                "a branch of P has been given back again and again for 5m 10s: refused",
                "work of P has been under an expired lease for 5m 10s, and no process recovers it",
            ]
        );
    }

    #[test]
    fn what_the_living_do_not_recover_is_no_reason_to_start_more_of_them() {
        let mut facts = facts(vec![mover(Role::Supervisor)]);
        facts.expired = vec![waiting()];
        assert!(stuck(&facts)[0].remedy.contains("has locked it"));
        facts.processes[0].age = facts.stale_after;
        assert!(stuck(&facts)[0].remedy.starts_with("start `ductworkd`"));
    }
}
