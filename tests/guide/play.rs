//! A chapter, executed from its beginning to its end in its own directory: its files are written, its
//! commands are run, and their output is compared with the text that the chapter shows.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::book::{Block, Chapter, root};
use super::{compare, screen};

/// The directory of a chapter, as the guide writes it.
const SHOWN: &str = "/srv";

const PROGRAM: &str = env!("CARGO_BIN_EXE_ductworkd");

pub struct Player {
    home: TempDir,
    /// The directory in which the next command is run.
    directory: PathBuf,
    /// The last command's exit status.
    status: i32,
    /// Ids that the chapter shows, and the ids that replace them this time.
    ids: BTreeMap<String, String>,
    /// Ids that the chapter showed before it was blessed.
    renamed: BTreeMap<String, String>,
    /// The id that was printed last.
    last: Option<String>,
    background: Option<Child>,
    /// The place in the chapter of files that were not checked yet.
    unchecked: Option<String>,
    found: Vec<String>,
    /// Commands whose output differs from the shown text.
    differing: Vec<String>,
    /// The new lines of blocks, by the line of their fence.
    blessed: BTreeMap<usize, Vec<String>>,
}

/// Everything in the chapter that does not match; with `DUCTWORK_BLESS` its blocks are set to the
/// actual output.
pub fn play(chapter: &Chapter) -> Vec<String> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut player = Player {
        directory: home.path().canonicalize().expect("it is there"),
        home,
        status: 0,
        ids: BTreeMap::new(),
        renamed: BTreeMap::new(),
        last: None,
        background: None,
        unchecked: None,
        found: Vec::new(),
        differing: Vec::new(),
        blessed: BTreeMap::new(),
    };
    // A copy, because a run leaves its database and its output there.
    let (example, to) = (
        root().join("examples/airports"),
        player.directory.join("examples"),
    );
    std::fs::create_dir(&to).expect("a directory can be made");
    let copied = Command::new("cp").arg("-r").args([&example, &to]).status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "{}",
        example.display()
    );
    let blocks = chapter.blocks();
    for block in &blocks {
        player.block(chapter, block);
    }
    player.check();
    player.stop();
    if std::env::var_os("DUCTWORK_BLESS").is_some() && !player.differing.is_empty() {
        bless(chapter, &blocks, &player.blessed);
        player.differing.clear();
    }
    let mut found = std::mem::take(&mut player.found);
    found.append(&mut player.differing);
    found
}

fn bless(chapter: &Chapter, blocks: &[Block], blessed: &BTreeMap<usize, Vec<String>>) {
    let mut lines: Vec<String> = chapter.text.lines().map(str::to_owned).collect();
    for block in blocks.iter().rev() {
        if let Some(new) = blessed.get(&block.at) {
            lines.splice(block.at..block.at + block.lines.len(), new.iter().cloned());
        }
    }
    let text = lines.join("\n") + "\n";
    std::fs::write(root().join(&chapter.path), text).expect("the chapter can be written");
}

impl Player {
    fn block(&mut self, chapter: &Chapter, block: &Block) {
        let place = chapter.place(block);
        match (block.language.as_str(), block.file()) {
            ("yaml" | "python" | "sh" | "json", Some(file)) => {
                self.write(file, &block.text());
                if block.is("wrong on purpose") {
                    self.unchecked = None;
                } else if block.language == "yaml" {
                    self.unchecked = Some(place);
                }
            }
            ("yaml", None) => self.alone(&place, block),
            ("console", _) if !block.is("not run") => {
                self.check();
                self.console(&place, block);
            }
            _ => {}
        }
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.directory.join(file);
        let parent = path.parent().expect("it is in a directory");
        std::fs::create_dir_all(parent).expect("a directory can be made");
        std::fs::write(&path, text).expect("a file can be written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("its mode can be set");
    }

    /// A block without a file's name is a whole pipeline or a whole configuration.
    fn alone(&mut self, place: &str, block: &Block) {
        let other = tempfile::tempdir().expect("a temporary directory");
        let is_pipeline = block.lines.iter().any(|line| line.starts_with("pipeline:"));
        let file = match is_pipeline {
            true => "pipelines/alone.yml",
            false => "ductwork.yml",
        };
        let home = std::mem::replace(&mut self.directory, other.path().to_owned());
        std::fs::create_dir_all(other.path().join("pipelines")).expect("a directory can be made");
        if !is_pipeline {
            self.write("pipelines/some.yml", SOME);
        }
        self.write(file, &block.text());
        self.unchecked = Some(place.to_owned());
        self.check();
        self.directory = home;
    }

    /// Checks that everything written since the last time is accepted.
    fn check(&mut self) {
        let Some(place) = self.unchecked.take() else {
            return;
        };
        let (lines, status) = self.on_terminal("ductworkd check");
        if status != 0 {
            self.found.push(format!("{place}: {}", lines.join("\n  ")));
        }
    }

    fn console(&mut self, place: &str, block: &Block) {
        let mut new = Vec::new();
        let mut lines = block.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let Some(line) = line.strip_prefix("$ ") else {
                self.found
                    .push(format!("{place}: `{line}` is the output of no command"));
                return;
            };
            let mut shown = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                shown.push(line.clone());
            }
            let typed = self.typed(line);
            let printed = self.run(&typed);
            let again = self.again(line);
            match compare::pairs(&shown, &printed) {
                Some(pairs) => {
                    new.push(format!("$ {again}"));
                    // If another block of the chapter is rewritten, its ids appear in this one too.
                    let renew = |line: String| {
                        let renew =
                            |line: String, (old, id): &(String, String)| line.replace(old, id);
                        pairs.iter().fold(line, renew)
                    };
                    new.extend(shown.into_iter().map(renew));
                    self.renamed.extend(pairs.iter().cloned());
                    self.ids.extend(pairs);
                }
                None => {
                    self.differing.push(format!(
                        "{place}: `{line}` prints\n{}\nand not\n{}",
                        printed.join("\n"),
                        shown.join("\n")
                    ));
                    new.push(format!("$ {again}"));
                    new.extend(printed.iter().cloned());
                    let of = |lines: &[String]| -> Vec<String> {
                        lines
                            .iter()
                            .flat_map(|line| compare::settled(line).1)
                            .collect()
                    };
                    let pairs: Vec<_> = of(&shown).into_iter().zip(of(&printed)).collect();
                    self.ids.extend(pairs.iter().cloned());
                    self.renamed.extend(pairs);
                }
            }
            let ids = printed.iter().flat_map(|line| compare::settled(line).1);
            self.last = ids.last().or(self.last.take());
        }
        self.blessed.insert(block.at, new);
    }

    /// The command with the ids of this time; `RUN` stands for the id that was printed last.
    fn typed(&self, line: &str) -> String {
        let word = |word: &str| match (renamed(&self.ids, word), &self.last) {
            (Some(id), _) => id,
            (None, Some(last)) if word == "RUN" => short(last),
            _ => word.to_owned(),
        };
        let typed: Vec<String> = line.split(' ').map(word).collect();
        let typed = typed.join(" ");
        match &self.background {
            Some(child) => typed.replace("%1", &child.id().to_string()),
            None => typed,
        }
    }

    /// The command in the form in which it is written back.
    fn again(&self, line: &str) -> String {
        let word = |word: &str| match (renamed(&self.renamed, word), &self.last) {
            (Some(id), _) => id,
            (None, Some(last)) if word == "RUN" => short(last),
            _ => word.to_owned(),
        };
        let words: Vec<String> = line.split(' ').map(word).collect();
        words.join(" ")
    }

    fn run(&mut self, line: &str) -> Vec<String> {
        if let Some(line) = line.strip_suffix(" &") {
            let mut command = self.prepared("sh");
            command
                .args(["-c", &format!("exec {line}")])
                .current_dir(&self.directory);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null());
            self.background = Some(child.spawn().expect("a shell starts"));
            return Vec::new();
        }
        let kept = self.home.path().join(".directory");
        let asked = format!(
            "(exit {})\n{line}\nstatus=$?\npwd > {}\nexit $status",
            self.status,
            kept.display()
        );
        let (lines, status) = self.on_terminal(&asked);
        self.status = status;
        self.directory = PathBuf::from(super::book::read(&kept).trim());
        lines
    }

    fn on_terminal(&self, line: &str) -> (Vec<String>, i32) {
        let (lines, status) = screen::of(line, &self.directory, &mut self.prepared("script"));
        let home = self.home.path().canonicalize().expect("it is there");
        let home = home.to_str().expect("a plain name").to_owned();
        let host = super::book::read(Path::new("/proc/sys/kernel/hostname"));
        let shown = |line: String| line.replace(&home, SHOWN).replace(host.trim(), "alpha");
        // Whether such a line exists depends on how long the daemon of a run lives.
        let lines = lines
            .into_iter()
            .filter(|line| !line.contains(" of log not shown"));
        (lines.map(shown).collect(), status)
    }

    fn prepared(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let programs = Path::new(PROGRAM).parent().expect("it is in a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env_clear();
        command.env("PATH", format!("{}:{path}", programs.display()));
        // The secret that a step of the guide asks for.
        command.env("API_KEY", "s3cret");
        // Chapters are executed at the same time, and each has the port that `init` writes.
        command.env("DUCTWORK_CONSOLE__LISTEN", "127.0.0.1:0");
        command.env("HOME", self.home.path());
        command.env("XDG_RUNTIME_DIR", self.home.path());
        command.envs([
            ("SHELL", "/bin/sh"),
            ("USER", "ana"),
            ("TERM", "xterm"),
            ("LC_ALL", "C.UTF-8"),
        ]);
        command
    }

    /// Ends what the chapter left running.
    fn stop(&mut self) {
        let Some(mut child) = self.background.take() else {
            return;
        };
        if matches!(child.try_wait(), Ok(None)) {
            let pid = Pid::from_raw(child.id().cast_signed());
            let _ = kill(pid, Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The new id for an old one, or as much of its end as the old text had.
fn renamed(ids: &BTreeMap<String, String>, word: &str) -> Option<String> {
    if !compare::is_id(word) {
        return None;
    }
    let (_, new) = ids.iter().find(|(old, _)| old.ends_with(word))?;
    Some(new[new.len().saturating_sub(word.len())..].to_owned())
}

/// The end of an id, which is the part that differs.
fn short(id: &str) -> String {
    id[id.len() - 8..].to_owned()
}

/// A pipeline, so that a configuration has something to run.
const SOME: &str = "pipeline: Some\nsteps:\n  Pass: { command: [cat] }\nflow:\n  - start: Pass\n";
