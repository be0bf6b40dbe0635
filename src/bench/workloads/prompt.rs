//! Commands that a person types at a prompt, on a long history, a long queue and a wide run.
//!
//! Owns: this workload. The commands are those of the same program that runs now, each a process of
//! its own.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::daemon::{self, Set};
use crate::bench::pipelines::{CHAIN, FLAT, WIDE};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload, proc};
use crate::model::{RunId, RunStatus};
use crate::store::bench::data;
use crate::store::trigger::{NewRun, trigger};
use crate::store::{Conn, query};

use super::{JobWaker, LOOK, NO_PROGRESS, definition, mebibytes};

/// The time that a command may take before something is wrong.
const COMMAND_MAX: Duration = Duration::from_secs(3_600);

/// The interval between two looks at a command: its memory, and whether it has ended.
const GLANCE: Duration = Duration::from_millis(2);

impl Bench {
    pub(super) async fn prompt(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Prompt;
        let (history, waiting) = (self.options.history.into(), self.options.backlog.into());
        let width = self.options.width;

        // One wide run that is completed, and one that is not.
        self.start(conn, self.set(WIDE)).await?;
        let wide = self.spread(conn, true).await?;
        let open = self.spread(conn, false).await?;
        self.stop().await?;
        let left = worked(conn, open).await?;
        let left = u64::from(width).saturating_sub(left.1);

        let flat = definition(FLAT)?;
        let progress = &self.progress;
        let of = |what: &str, count: u64, done: u64| {
            progress.say(&format!("prompt: {done} of {count} runs {what}"));
        };
        let mut numbers = data::Numbers::now(conn).await?;
        let say = |done| of("of history", history, done);
        data::completed(conn, &flat, history, &mut numbers, &say).await?;
        let say = |done| of("that wait", waiting, done);
        data::waiting(conn, &flat, waiting, &mut numbers, &say).await?;
        data::settle(conn).await?;
        let run = NewRun {
            key: None,
            input: "null",
        };
        let waits = trigger(conn, &flat, &[run], Duration::ZERO).await?[0].run_id;

        // An idle daemon, which says nothing about the work that nobody does.
        let idle = Set {
            target: true,
            ..self.set(CHAIN)
        };
        self.start(conn, idle).await?;
        let (wide, open, waits) = (wide.to_string(), open.to_string(), waits.to_string());
        let commands: [(&[&str], String); _] = [
            (&["runs"], String::new()),
            (&["runs", "--status", "completed"], String::new()),
            (&["runs", "--pipeline", WIDE], String::new()),
            (&["processes"], String::new()),
            (&["health"], String::new()),
            (&["show", &waits], ", which waits".into()),
            (&["show", &wide], format!(", of {width} branches")),
            (&["why", &waits], ", which waits".into()),
            (&["why", &open], ", wide and open".into()),
            (&["trigger", FLAT], String::new()),
            (&["cancel", &open], ", wide and open".into()),
            (&["audit"], String::new()),
            (&["prune", "--older-than", "0s", "--yes"], String::new()),
            (&["audit"], ", after that".into()),
            (&["runs"], ", after that".into()),
        ];
        for (arguments, more) in commands {
            let ids = [&wide, &open, &waits];
            let name = arguments
                .iter()
                .map(|it| match ids.iter().any(|id| id == it) {
                    true => "RUN",
                    false => it,
                });
            let name: Vec<&str> = name.collect();
            let name = name.join(" ") + &more;
            self.progress.say(&format!("prompt: {name}"));
            let typed = self.typed(arguments).await?;
            let mut note = format!("{:.0} MiB at most", mebibytes(typed.peak));
            if arguments.contains(&open.as_str()) {
                note.push_str(&format!("; {left} branches are open"));
            }
            if typed.status != 0 {
                note.push_str(&format!("; exit status {}", typed.status));
            }
            report.add(workload, name, typed.took.as_secs_f64(), "s", note);
        }
        Ok(())
    }

    /// Triggers a run of as many branches as requested, and waits until it has them, or until it is
    /// completed.
    pub(super) async fn spread(
        &mut self,
        conn: &mut Conn,
        completed: bool,
    ) -> Result<RunId, Error> {
        let input = self.options.width.to_string();
        let run = NewRun {
            key: None,
            input: &input,
        };
        let triggered = trigger(conn, &definition(WIDE)?, &[run], Duration::ZERO).await?;
        let run = triggered[0].run_id;
        JobWaker::of(self).job_available(WIDE);
        let (mut last, mut since) = ((0, 0), Instant::now());
        loop {
            self.daemon()?;
            let now = worked(conn, run).await?;
            let status = query::run_state(conn, run).await?.map(|run| run.status);
            let over = status == Some(RunStatus::Completed);
            if over || !completed && now.0 >= u64::from(self.options.width) {
                return Ok(run);
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > NO_PROGRESS {
                return Err(Error::Stuck("a wide run has not moved for a minute"));
            }
            let text = format!("prompt: {} branches, {} of them worked", now.0, now.1);
            self.progress.say(&text);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Runs one command, as if it had been typed.
    async fn typed(&self, arguments: &[&str]) -> Result<Typed, Error> {
        let system = |source| Error::System {
            what: "a command cannot be run",
            source,
        };
        let program = std::env::current_exe().map_err(system)?;
        let [_, argv @ ..] = &daemon::argv(&self.config)[..] else {
            unreachable!("a command has a name")
        };
        let mut command = Command::new(program);
        // All arguments except the subcommand, which is a daemon's.
        command.args(&argv[..argv.len() - 1]).args(arguments);
        for (name, value) in daemon::environment(&self.sandbox, self.set(FLAT)) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let began = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(system)?;
        let mut peak = 0;
        let status = loop {
            // After its end, a process has no memory to measure.
            peak = peak.max(proc::usage(child.id()).rss_peak);
            match child.try_wait().map_err(system)? {
                Some(status) => break status,
                None if began.elapsed() > COMMAND_MAX => {
                    child.kill().and_then(|()| child.wait()).map_err(system)?;
                    return Err(Error::Stuck("a command has not ended within an hour"));
                }
                None => tokio::time::sleep(GLANCE).await,
            }
        };
        let took = began.elapsed();
        match status.code() {
            // 1: the command has answered, and the answer is no.
            Some(status @ (0 | 1)) => Ok(Typed { took, peak, status }),
            _ => Err(Error::Nonsense(format!(
                "`{}` ended with {status}",
                arguments.join(" ")
            ))),
        }
    }
}

/// The cost of a command.
struct Typed {
    took: Duration,
    /// Its highest resident memory, in bytes.
    peak: u64,
    status: i32,
}

/// The number of branches of the widest node of `run`, and how many of them have been worked on.
async fn worked(conn: &mut Conn, run: RunId) -> Result<(u64, u64), Error> {
    let nodes = query::progress(conn, run).await?;
    let nodes = nodes.iter().map(|node| (node.total, node.completed));
    Ok(nodes.max().unwrap_or_default())
}
