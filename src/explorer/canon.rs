//! The equality of two states.
//!
//! Owns: a digest of everything that can affect what happens next: the rows, in the order of their
//! keys, with ids renamed by first use and times as spans before now, and the memory of each actor.
//! Never: includes history that nobody reads again, such as the creation time of something.
//!
//! Keys are counted up, so the order of the rows, by which statements sort and break ties, is part
//! of the state.

use rusqlite::types::ValueRef;

use super::local::Local;
use crate::model::counted;

/// How a column counts: `i` as an id, `v` as a value, `t` as a time, `f` by whether it is null.
const TABLES: &[(&str, &str)] = &[
    (
        "itvvv",
        "SELECT id, last_heartbeat_at, epoch, pipeline, paused FROM ductwork_processes ORDER BY id",
    ),
    (
        "v",
        "SELECT pipeline FROM ductwork_pauses ORDER BY pipeline",
    ),
    (
        "ivvvvivttttt",
        "SELECT id, definition, status, output, trigger_key, revived_from, dampened, completed_at,
                halted_at, cancelled_at, cancelling_at, pruning_at FROM ductwork_runs ORDER BY id",
    ),
    (
        "iiivvvivti",
        "SELECT id, run_id, fan_out_id, ordinal, status, halt_reason, step_id, output, ready_at,
                claim_token FROM ductwork_branches ORDER BY id",
    ),
    (
        "iivvvvf",
        "SELECT id, branch_id, node, width, arrived, halted, fired_at FROM ductwork_fan_outs
          ORDER BY id",
    ),
    (
        "iivvviivvv",
        "SELECT id, branch_id, ordinal, node, via, transition_id, source_step_id, status, input,
                output FROM ductwork_steps ORDER BY id",
    ),
    (
        "iivvvivtv",
        "SELECT id, step_id, attempt, retry_count, crash_count, process_id, result,
                CASE WHEN result IS NULL THEN lease_until END, error_class
           FROM ductwork_executions ORDER BY id",
    ),
    (
        "it",
        "SELECT execution_id, due_at FROM ductwork_availabilities ORDER BY execution_id",
    ),
    (
        "itv",
        "SELECT branch_id, answer_by, unanswered FROM ductwork_deadlines ORDER BY branch_id",
    ),
    (
        "iiivvvv",
        "SELECT id, branch_id, from_step_id, via, produced, retry_count, crash_count
           FROM ductwork_transitions ORDER BY id",
    ),
    (
        "iiiivt",
        "SELECT id, transition_id, process_id, claim_token, result,
                CASE WHEN result IS NULL THEN lease_until END
           FROM ductwork_advancements ORDER BY id",
    ),
];

/// A state, read word by word.
#[derive(Clone)]
pub struct Canon {
    words: Words,
    now: i64,
    /// The name of each counted id, by its number.
    counted: Vec<u16>,
    /// Ids that are copies of others.
    copies: Vec<(u128, u16)>,
    names: u16,
    /// Each process's present beat, so that an actor's memory of it counts as right or wrong.
    beats: Vec<(u128, i64)>,
}

impl Canon {
    /// The contents of the database.
    pub fn of(local: &Local, now: i64) -> Self {
        let mut canon = Self {
            words: Words::new(),
            now,
            counted: vec![0; 1 + counted::last().unwrap_or_default() as usize],
            copies: Vec::new(),
            names: 0,
            beats: Vec::new(),
        };
        for (kinds, sql) in TABLES {
            canon.table(local, kinds.as_bytes(), sql);
        }
        let beats = "SELECT id, beat_seq FROM ductwork_processes";
        let mut beats = local
            .session
            .db
            .prepare_cached(beats)
            .expect("our own text");
        let mut rows = beats.raw_query();
        while let Some(row) = rows.next().expect("a row") {
            let id: [u8; 16] = row.get(0).expect("an id");
            let beat = row.get(1).expect("a number");
            canon.beats.push((u128::from_be_bytes(id), beat));
        }
        canon
    }

    fn table(&mut self, local: &Local, kinds: &[u8], sql: &str) {
        let mut statement = local.session.db.prepare_cached(sql).expect("our own text");
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().expect("a row") {
            for (index, kind) in kinds.iter().enumerate() {
                let value = row.get_ref(index).expect("a column");
                match (kind, value) {
                    (_, ValueRef::Null) => self.mix(0),
                    (b'i', ValueRef::Blob(bytes)) => {
                        let id = bytes.try_into().map(u128::from_be_bytes);
                        self.id(id.expect("ids have sixteen bytes"));
                    }
                    (b't', ValueRef::Integer(time)) => self.number(self.now - time),
                    (b'f', _) => self.mix(1),
                    (_, ValueRef::Integer(number)) => self.number(number),
                    (_, ValueRef::Text(text)) => self.text(text),
                    (kind, value) => unreachable!("{value:?} is no {kind}: {sql}"),
                }
            }
        }
        self.mix(b';'.into());
    }

    /// An id, by its name.
    pub fn id(&mut self, id: u128) {
        let (high, low) = ((id >> 80) as usize, (id & 0xffff_ffff) as usize);
        let place = match self.counted.get_mut(low) {
            Some(place) if high == low => place,
            _ => {
                let known = self.copies.iter().position(|copy| copy.0 == id);
                let index = known.unwrap_or_else(|| {
                    self.copies.push((id, 0));
                    self.copies.len() - 1
                });
                &mut self.copies[index].1
            }
        };
        if *place == 0 {
            self.names += 1;
            *place = self.names;
        }
        let name = *place;
        self.mix(u64::from(name) << 8 | 2);
    }

    /// A number.
    pub fn number(&mut self, number: i64) {
        self.mix(3);
        self.mix(number as u64);
    }

    /// A time, as the span that has passed since.
    pub fn time(&mut self, time: i64) {
        self.number(self.now - time);
    }

    /// A text.
    pub fn text(&mut self, text: &[u8]) {
        self.mix((text.len() as u64) << 8 | 4);
        let mut rest = text;
        while let Some((eight, more)) = rest.split_first_chunk::<8>() {
            self.mix(u64::from_le_bytes(*eight));
            rest = more;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last));
    }

    fn mix(&mut self, word: u64) {
        self.words.mix(word);
    }

    /// An actor's memory of a process's beat: it counts only whether the memory is still right.
    /// Nothing is written for a process that is gone.
    pub fn beat(&mut self, process: u128, seen: i64) {
        if let Some((_, beat)) = self.beats.iter().find(|(id, _)| *id == process) {
            let same = *beat == seen;
            self.id(process);
            self.number(i64::from(same));
        }
    }

    /// A process, as long as it has a row.
    pub fn process(&mut self, process: u128) {
        if self.beats.iter().any(|(id, _)| *id == process) {
            self.id(process);
        }
    }

    /// The digest of everything that was read.
    pub fn digest(&self) -> u128 {
        self.words.digest()
    }
}

/// A digest of words. Two states of a search are the same if their digests are. The digests have
/// 128 bits, so that among millions of states no two are confused by chance.
#[derive(Clone, Copy)]
pub struct Words {
    low: u64,
    high: u64,
}

impl Words {
    /// The digest of no words.
    pub fn new() -> Self {
        Self {
            low: 0xcbf2_9ce4_8422_2325,
            high: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Adds a word.
    pub fn mix(&mut self, word: u64) {
        self.low = (self.low ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.low ^= self.low >> 32;
        self.high = (self.high ^ word)
            .wrapping_mul(0xc4ce_b9fe_1a85_ec53)
            .rotate_left(31)
            ^ self.low;
    }

    /// Adds the digest of others.
    pub fn mix_digest(&mut self, digest: u128) {
        self.mix(digest as u64);
        self.mix((digest >> 64) as u64);
    }

    /// The digest.
    pub fn digest(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// Columns that do not affect what happens next: written once, or only for people to read, or
/// implied by others through a constraint.
const HISTORY: &str = "
    ductwork_processes quiet worked_at trouble troubled_at supervisor_id role host boot_id pid_namespace pid pid_started_at
        version started_at beat_seq claimed succeeded errored crashed advanced stale statements
    ductwork_runs pipeline input triggered_at trace_parent trace_state baggage revivals
    ductwork_branches run_id pipeline claimed_for_advancing_at last_advanced_at
    ductwork_fan_outs run_id via parent_fan_out_id parent_ordinal created_at
    ductwork_steps run_id step created_at completed_at answered_by
    ductwork_executions pipeline claimed_at completed_at error_message error_backtrace log
    ductwork_availabilities pipeline
    ductwork_transitions run_id opened_at completed_at
    ductwork_advancements branch_id crash_count claimed_at completed_at error_class error_message
    ductwork_definitions digest pipeline body created_at
    ductwork_tuples run_id key value first_set_at last_set_at
    ductwork_pauses reason paused_by paused_at holds
    ductwork_departed id role pipeline host pid version started_at gone_at death went_on_as
    ductwork_metrics process_id written_at body
    ductwork_actions id at by_whom channel verb pipeline run_id made_run bulk_id
    ductwork_duties name holder until
    ductwork_bulks id verb selection definition newest dealt done skipped failed failures created_at by_whom channel
        ended_at stopped_by
    ductwork_webhooks name since seen
    ductwork_deliveries id endpoint run_id event pipeline body state attempts created_at due_at tried_at status error
    ductwork_reports id kind at ok figures
    ductwork_series pipeline grain at since started completed halted retries waited lasted
    ductwork_series_looks id turn body
    ductwork_tokens id kind name digest scope pipelines created_at created_by expires_at ended_at parent payloads
    ductwork_migrations version name applied_at needs";

#[test]
fn every_column_makes_a_difference_or_is_history() {
    let local = Local::open(&[]);
    let columns = "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c
                    WHERE m.type = 'table'";
    let mut columns = local
        .session
        .db
        .prepare(columns)
        .expect("SQLite's own tables");
    let mut rows = columns.raw_query();
    let mut found = 0;
    while let Some(row) = rows.next().expect("a row") {
        let table: String = row.get(0).expect("a table");
        let column: String = row.get(1).expect("a column");
        let words = |text: &str| -> Vec<String> {
            let split = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            split.map(str::to_owned).collect()
        };
        let read = TABLES.iter().find(|(_, sql)| words(sql).contains(&table));
        let read = read.is_some_and(|(_, sql)| words(sql).contains(&column));
        let history = HISTORY.split("ductwork_").find_map(|of| {
            let names = words(of);
            (table == format!("ductwork_{}", names[0])).then_some(names)
        });
        let history = history.is_some_and(|names| names[1..].contains(&column));
        assert!(
            read || history,
            "{table}.{column} is in neither list of this file"
        );
        found += 1;
    }
    assert!(found > 100, "only {found} columns");
}
