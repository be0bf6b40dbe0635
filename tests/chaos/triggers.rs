//! A client that triggers runs all the time, and records the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ductwork::definition::{Definition, yaml};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, Error, Location, Purpose};

use crate::history::{Answer, Trigger};
use crate::workload::SHAPES;

/// Triggers until it is told to stop; it has its own thread, so that no fault stops it.
pub struct Triggers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Trigger>>>,
}

impl Triggers {
    /// Begins; keeps this many runs under way.
    pub fn start(location: Location, open: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(all(&location, open, &until))
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Stops the client; returns all triggers with their answers.
    pub fn ended(mut self) -> Vec<Trigger> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        thread.join().expect("it does not panic")
    }
}

impl Drop for Triggers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn all(location: &Location, runs: usize, stop: &AtomicBool) -> Vec<Trigger> {
    let parse = |shape: &crate::workload::Shape| {
        let parsed = yaml::parse(&shape.yaml(), std::path::Path::new("pipeline.yml"));
        parsed.unwrap_or_else(|problems| panic!("{problems}"))
    };
    let definitions: Vec<Definition> = SHAPES.iter().map(parse).collect();
    let mut triggers: Vec<Trigger> = Vec::new();
    let mut conn = None;
    let mut doubtful: Option<usize> = None;
    while !stop.load(Ordering::Relaxed) || doubtful.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut open = match conn.take() {
            Some(conn) => conn,
            None => match location.connect(Purpose::Engine).await {
                Ok(conn) => conn,
                Err(_) => continue,
            },
        };
        let ready = match doubtful {
            Some(_) => Ok(true),
            None => is_ready(&mut open, runs).await,
        };
        match ready {
            Ok(true) => {}
            Ok(false) => {
                conn = Some(open);
                continue;
            }
            Err(_) => continue,
        }
        // A trigger in doubt that has a key is repeated until there is an answer.
        let number = doubtful.take().unwrap_or(triggers.len());
        let input = format!("\"trigger-{number}\"");
        let key = number.is_multiple_of(2).then_some(input.as_str());
        let new = [NewRun { key, input: &input }];
        let definition = &definitions[number % definitions.len()];
        let answer = match trigger::trigger(&mut open, definition, &new, Duration::ZERO).await {
            Ok(triggered) => Answer::Run(triggered[0].run_id.into()),
            Err(Error::Unavailable {
                in_commit: true, ..
            }) => Answer::Unknown,
            // A refusal now says nothing about the first time.
            Err(_) if number < triggers.len() => Answer::Unknown,
            Err(_) => Answer::Refused,
        };
        if answer == Answer::Unknown && key.is_some() {
            doubtful = Some(number);
        }
        triggers.truncate(number);
        triggers.push(Trigger { input, answer });
        conn = (!open.is_broken()).then_some(open);
    }
    triggers
}

/// True when there is room for more runs.
async fn is_ready(conn: &mut Conn, runs: usize) -> Result<bool, Error> {
    static OPEN_RUNS: Statement = Statement::new(
        "TEST_OPEN_RUNS",
        "SELECT id FROM ductwork_runs WHERE status = 'in_progress' AND pipeline <> 'Aside'",
    );
    Ok(conn.fetch(&OPEN_RUNS, &[]).await?.len() < runs)
}
