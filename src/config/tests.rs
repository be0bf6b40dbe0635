//! Loading as a whole: files on disk, variables, problems with their places.

use std::collections::BTreeMap;
use std::fs;

use tempfile::TempDir;

use super::keys::{KEYS, Kind, Scope};
use super::*;
use crate::{model, yaml};

/// A working directory, and the variables of a process.
struct Desk {
    dir: TempDir,
    vars: BTreeMap<String, String>,
}

impl Desk {
    fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            vars: BTreeMap::new(),
        }
    }

    fn with(text: &str) -> Self {
        Self::new().file("ductwork.yml", text)
    }

    fn file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    fn load_as(&self, file: Option<&str>, env: Option<&str>) -> Result<Config, Problems> {
        self.load_handed(file, env, None)
    }

    fn load_handed(
        &self,
        file: Option<&str>,
        env: Option<&str>,
        handed: Option<Handed>,
    ) -> Result<Config, Problems> {
        let names: Vec<String> = self.vars.keys().cloned().collect();
        Config::load(LoadOptions {
            file: file.map(PathBuf::from),
            env: env.map(str::to_owned),
            vars: &|name| self.vars.get(name).cloned(),
            names: &names,
            cwd: self.dir.path().to_owned(),
            handed,
        })
    }

    #[track_caller]
    fn config(&self) -> Config {
        self.load_as(None, None)
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// `line:column message` of every problem.
    #[track_caller]
    fn problems(&self) -> Vec<String> {
        said(self.load_as(None, None).expect_err("problems"))
    }
}

fn said(problems: Problems) -> Vec<String> {
    let said = problems.0.into_iter().map(|problem| match problem.at {
        Some(at) => format!("{}:{} {}", at.line, at.column, problem.message),
        None => problem.message,
    });
    said.collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// `key: value` inside of the groups of `path`, without sections.
fn only(path: &str, value: &str) -> String {
    let mut text = String::new();
    for (depth, name) in path.split('.').enumerate() {
        if depth > 0 {
            text.push('\n');
        }
        text.push_str(&format!("{}{name}:", "  ".repeat(depth)));
    }
    format!("{text} {value}\n")
}

#[test]
fn without_a_file_the_defaults_hold() {
    let desk = Desk::new();
    let config = desk.config();
    assert_eq!(config.file, None);
    assert_eq!(config.base_dir, desk.dir.path());
    assert_eq!(config.environment, "development");
    assert_eq!(
        config.database.url.sqlite_path(),
        Some(desk.dir.path().join("ductwork.db").as_path())
    );
    assert_eq!(config.pipelines, PipelineFilter::All);
    assert_eq!(config.pipelines_path, desk.dir.path().join("pipelines"));
    assert_eq!(config.role, DaemonRole::All);
    assert_eq!(
        config.logger,
        Logger {
            level: Level::Info,
            format: LogFormat::Auto
        }
    );
    let worker = &config.job_worker;
    assert_eq!(worker.count("P"), 5);
    assert_eq!(worker.max_retry("P", "S"), 3);
    assert_eq!(worker.max_crash("P", "S"), 10);
    assert_eq!(worker.timeout("P", "S"), None);
    assert_eq!(
        worker.backoff("P", "S"),
        Backoff {
            initial: seconds(10),
            factor: 1.0,
            max: seconds(3_600),
            jitter: 0.1
        }
    );
    assert_eq!(worker.polling_timeout("P"), seconds(1));
    assert_eq!(worker.shutdown_timeout("P"), seconds(20));
    assert_eq!(worker.max_payload("P"), 16 * 1024 * 1024);
    let advancer = &config.pipeline_advancer;
    assert_eq!(advancer.count, 3);
    assert_eq!(advancer.max_retry("P"), 10);
    assert_eq!(advancer.max_crash("P"), 10);
    assert_eq!(advancer.backoff("P").initial, seconds(1));
    assert_eq!(advancer.polling_timeout, seconds(1));
    assert_eq!(advancer.shutdown_timeout, seconds(20));
    assert_eq!(advancer.max_fan_out("P"), None);
    assert_eq!(
        config.supervisor,
        Supervisor {
            polling_timeout: seconds(1),
            reaper_timeout: seconds(30),
            shutdown_timeout: seconds(30)
        }
    );
    assert_eq!(config.hooks, Hooks::default());
    assert_eq!(config.retention, Some(seconds(30 * 24 * 3_600)));
}

const REFERENCE: &str = include_str!("../../config/ductwork.yml");

#[test]
fn the_shipped_configuration_says_the_defaults() {
    let desk = Desk::with(REFERENCE);
    let defaults = Desk::new();
    for env in ["development", "production", "default"] {
        let mut shipped = desk.load_as(None, Some(env)).unwrap();
        let mut built_in = defaults.load_as(None, Some(env)).unwrap();
        assert!(shipped.file.take().is_some());
        // The two may differ only in their places.
        for config in [&mut shipped, &mut built_in] {
            config.base_dir = PathBuf::new();
            config.others = Vec::new();
            config.pipelines_path = PathBuf::from(config.pipelines_path.file_name().unwrap());
            let name = config.database.url.sqlite_path().unwrap().file_name();
            let url = format!("sqlite://{}", name.unwrap().to_str().unwrap());
            config.database.url = DatabaseUrl::parse(&url, Path::new("/")).unwrap();
        }
        // The sample makes the safer choice, which would take variables from steps that have them today.
        let Inherit::Only(listed) = &shipped.job_worker.env.default else {
            panic!("the sample lists no variables");
        };
        assert!(listed.iter().any(|name| name == "PATH"), "{listed:?}");
        shipped.job_worker.env = built_in.job_worker.env.clone();
        assert_eq!(shipped, built_in);
    }
}

#[test]
fn the_shipped_configuration_mentions_each_key_with_its_default_and_a_comment() {
    let (document, faults) = yaml::parse(REFERENCE, 10_000);
    assert_eq!(faults, []);
    let document = document.unwrap();
    let lines: Vec<&str> = REFERENCE.lines().collect();
    for key in KEYS {
        let mut node = document.get("default").unwrap();
        let mut line = 0;
        for name in key.path.split('.') {
            let entries = node.as_map().unwrap();
            let entry = entries.iter().find(|entry| entry.key == name);
            let entry = entry.unwrap_or_else(|| panic!("{} is missing", key.path));
            line = entry.at.line;
            node = &entry.value;
        }
        match key.kind {
            Kind::Backoff => assert!(node.as_map().is_some()),
            Kind::Variables => {
                let said = format!("`{}` for all (the default)", key.default);
                assert!(REFERENCE.contains(&said), "{said}");
            }
            Kind::Headers => assert!(node.as_map().is_some_and(<[_]>::is_empty)),
            Kind::Commands | Kind::Hosts | Kind::Webhooks | Kind::Networks | Kind::Groups => {
                assert!(matches!(&node.value, yaml::Value::List(items) if items.is_empty()))
            }
            _ => assert_eq!(node.as_text(), Some(key.default), "{}", key.path),
        }
        assert!(
            lines[line - 2].trim().starts_with('#'),
            "{} is not explained",
            key.path
        );
    }
}

#[test]
fn the_sample_of_the_design_loads() {
    let desk = Desk::with(
        r#"
default: &default
  database: { url: "sqlite://ductwork.db", pool: 2 }   # DUCTWORK_DATABASE_URL or DATABASE_URL override
  pipelines: "*"                  # or a list of names
  pipelines_path: pipelines       # where the files are
  role: all                       # all | advancer | worker     (DUCTWORK_ROLE)
  logger: { level: info, format: auto }                # auto: pretty on a terminal, JSON elsewhere
  job_worker:
    count: 5
    max_retry: 3
    max_crash: 10
    backoff: { initial: 10s, factor: 1, max: 1h, jitter: 0.1 }
    polling_timeout: 1
    shutdown_timeout: 20
  pipeline_advancer: { count: 3, max_retry: 10, max_crash: 10, polling_timeout: 1, shutdown_timeout: 20, steps: { max_depth: -1 } }
  supervisor: { polling_timeout: 1, reaper_timeout: 30, shutdown_timeout: 30 }
  hooks: { supervisor: { start: [..], stop: [..] } }
  retention: 30d
production:
  <<: *default
"#,
    );
    let config = desk.load_as(None, Some("production")).unwrap();
    assert_eq!(config.hooks.supervisor.start, [["..".to_owned()]]);
    assert_eq!(config.job_worker.count("any"), 5);
}

#[test]
fn the_search_ends_at_the_first_place_that_has_a_file() {
    let role = |desk: &Desk, file| {
        let config = desk.load_as(file, None).unwrap();
        (
            config.role,
            config
                .base_dir
                .strip_prefix(desk.dir.path())
                .unwrap()
                .to_owned(),
        )
    };
    let desk = Desk::new().file("config/ductwork.yml", "role: worker\n");
    assert_eq!(role(&desk, None), (DaemonRole::Worker, "config".into()));
    let desk = desk.file("ductwork.yml", "role: advancer\n");
    assert_eq!(role(&desk, None), (DaemonRole::Advancer, "".into()));
    let desk = desk
        .file("else/other.yml", "role: all\npipelines_path: ./p\n")
        .var("DUCTWORK_CONFIG", "else/other.yml");
    assert_eq!(role(&desk, None), (DaemonRole::All, "else".into()));
    assert_eq!(desk.config().pipelines_path, desk.dir.path().join("else/p"));
    assert_eq!(
        role(&desk, Some("config/ductwork.yml")).0,
        DaemonRole::Worker
    );
    let desk = desk.var("DUCTWORK_CONFIG", "");
    assert_eq!(
        role(&desk, None).0,
        DaemonRole::Advancer,
        "an empty variable is unset"
    );
}

#[test]
fn a_child_is_what_its_supervisor_had_read_whatever_the_files_say_by_now() {
    let handed = |config: &Config| {
        let bytes = serde_json::to_vec(config.handed()).unwrap();
        Some(serde_json::from_slice(&bytes).unwrap())
    };
    let desk =
        Desk::with("job_worker: {count: 7}\n").file("secret", "postgres://u:hidden@before/d\n");
    let secret = desk.dir.path().join("secret").display().to_string();
    let desk = desk.var("DATABASE_URL_FILE", &secret);
    let before = desk.config();
    assert!(!format!("{before:?}").contains("hidden"), "{before:?}");
    let desk = desk
        .file("ductwork.yml", "job_worker: {count: 8}\n")
        .file("secret", "postgres://after/d\n");
    let file = before.file.as_deref().and_then(Path::to_str);
    let child = desk.load_handed(file, None, handed(&before)).unwrap();
    assert_eq!(child, before);
    assert_ne!(desk.config(), before);
    fs::remove_file(&secret).unwrap();
    let child = desk.load_handed(file, None, handed(&before)).unwrap();
    assert_eq!(child.database, before.database);
    // Its own children would get the same.
    assert_eq!(desk.load_handed(file, None, handed(&child)), Ok(before));

    let desk = Desk::new();
    let before = desk.config();
    let desk = desk.file("ductwork.yml", "job_worker: {count: 8}\n");
    assert_eq!(desk.load_handed(None, None, handed(&before)), Ok(before));
}

#[test]
fn the_environment_chooses_the_section() {
    let text = "default: &default\n  role: worker\n  supervisor: {reaper_timeout: 9}\n\
                production:\n  <<: *default\n  role: advancer\nempty:\n";
    let desk = Desk::with(text);
    let role = |desk: &Desk, env| desk.load_as(None, env).unwrap().role;
    assert_eq!(
        role(&desk, None),
        DaemonRole::Worker,
        "development falls back to default"
    );
    assert_eq!(role(&desk, Some("production")), DaemonRole::Advancer);
    assert_eq!(role(&desk, Some("empty")), DaemonRole::All);
    let config = desk.load_as(None, Some("production")).unwrap();
    assert_eq!(config.supervisor.reaper_timeout, seconds(9), "merged");
    assert_eq!(config.environment, "production");
    let desk = desk.var("DUCTWORK_ENV", "production");
    assert_eq!(role(&desk, None), DaemonRole::Advancer);
    assert_eq!(
        role(&desk, Some("default")),
        DaemonRole::Worker,
        "the flag wins"
    );
}

#[test]
fn a_file_that_is_an_empty_map_is_told_what_to_begin_with() {
    let told = Desk::with("{}\n")
        .load_as(None, None)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("the file is empty: `ductworkd init`"),
        "{told}"
    );
    let begun = Desk::with("database: { url: sqlite://ductwork.db }\n");
    begun.load_as(None, None).unwrap();
}

#[test]
fn an_environment_that_no_section_is_named_for_is_an_error_where_there_are_sections() {
    let desk = Desk::with("default: {role: worker}\nproduction: {role: advancer}\nx-note: mine\n");
    let told = |env| desk.load_as(None, Some(env)).unwrap_err().to_string();
    let misspelt = told("prodution");
    assert!(
        misspelt.contains("there is no section `prodution`")
            && misspelt.contains("did you mean `production`?"),
        "{misspelt}"
    );
    let other = told("staging");
    assert!(
        other.contains("the file has: default, production;"),
        "{other}"
    );
    assert_eq!(desk.load_as(None, None).unwrap().role, DaemonRole::Worker);
    let one = Desk::with("default: {role: worker}\nx-note: mine\n");
    let told = |env| one.load_as(None, Some(env)).unwrap_err().0;
    assert_eq!(
        told("defualt")[0].help.as_deref(),
        Some("did you mean `default`?")
    );
    let staging = told("staging");
    let help = staging[0].help.as_deref().unwrap();
    assert!(
        help.contains("the file has: default;") && help.contains("add a section `staging:`"),
        "{help}"
    );
    for env in [None, Some("development"), Some("default")] {
        assert_eq!(one.load_as(None, env).unwrap().role, DaemonRole::Worker);
    }
    let by_variable = Desk::with("default: {role: worker}\n").var("DUCTWORK_ENV", "staging");
    assert_eq!(
        by_variable.problems(),
        ["1:1 there is no section `staging`"]
    );
}

#[test]
fn a_merge_replaces_groups_whole() {
    let text = "default: &default\n  job_worker: {count: 7, max_retry: 1}\n\
                development:\n  <<: *default\n  job_worker: {count: 8}\n";
    let worker = Desk::with(text).config().job_worker;
    assert_eq!((worker.count("P"), worker.max_retry("P", "S")), (8, 3));
}

#[test]
fn what_the_one_advancer_has_once_cannot_differ_by_pipeline() {
    for key in ["count", "polling_timeout", "shutdown_timeout"] {
        let text = format!("pipeline_advancer:\n  {key}: {{ default: 2, Orders: 3 }}\n");
        let problems = Desk::with(&text)
            .load_as(None, None)
            .unwrap_err()
            .to_string();
        let told = format!("error: `pipeline_advancer.{key}` takes a ");
        assert!(
            problems.starts_with(&told) && problems.contains("not a map"),
            "{problems}"
        );
    }
}

#[test]
fn a_file_without_sections_holds_for_every_environment() {
    let desk = Desk::with("x-note: mine\nrole: worker\n");
    for env in [None, Some("production"), Some("anything")] {
        assert_eq!(desk.load_as(None, env).unwrap().role, DaemonRole::Worker);
    }
}

#[test]
fn numbers_may_differ_by_pipeline_and_step() {
    let text = r#"
x-slow: &slow { default: 4, Slow: 1 }
default:
  job_worker:
    count: { default: 7, Orders: 20 }
    max_retry: { default: 2, Orders: { default: 4, Pay: 0 }, Mail: 9 }
    max_crash: { Orders: { Pay: 1 } }
    timeout: { default: 1m, Orders: { Pay: none, Ship: 90 } }
    backoff:
      default: { initial: 2s, factor: 2 }
      Orders: { initial: 3s }
      Mail: { Send: { jitter: 0 }, default: { max: 5s } }
    max_payload: { Orders: 1MB }
    polling_timeout: { default: 250ms }
  pipeline_advancer:
    max_retry: *slow
    backoff: { Orders: { initial: 5s } }
    steps: { max_depth: { default: 100, Orders: -1 } }
"#;
    let config = Desk::with(text).config();
    let worker = &config.job_worker;
    assert_eq!((worker.count("Orders"), worker.count("x")), (20, 7));
    let retries = [
        ("Orders", "Pay"),
        ("Orders", "x"),
        ("Mail", "x"),
        ("x", "Pay"),
    ]
    .map(|(pipeline, step)| worker.max_retry(pipeline, step));
    assert_eq!(retries, [0, 4, 9, 2]);
    let crashes = [("Orders", "Pay"), ("Orders", "x"), ("x", "x")]
        .map(|(pipeline, step)| worker.max_crash(pipeline, step));
    assert_eq!(crashes, [1, 10, 10]);
    let timeouts = [
        ("Orders", "Pay"),
        ("Orders", "Ship"),
        ("Orders", "x"),
        ("x", "x"),
    ]
    .map(|(pipeline, step)| worker.timeout(pipeline, step).map(|span| span.as_secs()));
    assert_eq!(timeouts, [None, Some(90), Some(60), Some(60)]);
    let orders = worker.backoff("Orders", "x");
    assert_eq!((orders.initial, orders.factor), (seconds(3), 2.0));
    let mail = worker.backoff("Mail", "Send");
    assert_eq!(
        (mail.initial, mail.max, mail.jitter),
        (seconds(2), seconds(5), 0.0)
    );
    assert_eq!(worker.max_payload("Orders"), 1_000_000);
    assert_eq!(worker.max_payload("x"), 16 << 20);
    assert_eq!(worker.polling_timeout("x"), Duration::from_millis(250));
    let advancer = &config.pipeline_advancer;
    assert_eq!(
        (advancer.max_retry("Slow"), advancer.max_retry("x")),
        (1, 4)
    );
    assert_eq!(advancer.backoff("Orders").initial, seconds(5));
    assert_eq!(advancer.backoff("Orders").factor, 2.0);
    assert_eq!(
        (advancer.max_fan_out("Orders"), advancer.max_fan_out("x")),
        (None, Some(100))
    );
}

#[test]
fn other_values_are_read() {
    let text = "pipelines: [A, B, A]\nretention: never\njob_worker: {count: 010, timeout: 0.5}\n\
                logger: {level: off, format: json}\n\
                hooks: {worker: {start: [notify, -x, 5], stop: [[a], [b, \"c d\"]]}}\nconsole:\n";
    let config = Desk::with(text).config();
    assert_eq!(
        config.pipelines,
        PipelineFilter::Only(vec!["A".into(), "B".into()])
    );
    assert!(config.pipelines.includes("B") && !config.pipelines.includes("C"));
    assert_eq!(config.retention, None);
    assert_eq!(config.job_worker.count("P"), 10, "there is no octal");
    assert_eq!(
        config.job_worker.timeout("P", "S"),
        Some(Duration::from_millis(500))
    );
    assert_eq!(config.logger.level, Level::Off);
    assert_eq!(config.hooks.worker.start, [["notify", "-x", "5"]]);
    assert_eq!(config.hooks.worker.stop, [vec!["a"], vec!["b", "c d"]]);
}

/// For every key: a value for its variable, and one for the file that is not the default.
fn samples(kind: Kind, path: &str) -> (&'static str, &'static str) {
    match kind {
        Kind::Url => ("sqlite://env.db", "sqlite://file.db"),
        Kind::Path => ("env", "file"),
        Kind::Names => ("A,B", "[C]"),
        Kind::Variables => ("A, B_*", "[C]"),
        Kind::Choice(words) => match words.len() {
            3 | 4 => (words[1], words[2]),
            _ => (words[4], words[5]),
        },
        Kind::Integer { .. } | Kind::Limit { .. } => ("77", "66"),
        Kind::Float { max, .. } => match max > 1.0 {
            true => ("7", "6"),
            false => ("0.7", "0.6"),
        },
        // Longer than `initial`, whatever that is.
        Kind::Duration { .. } if path.ends_with(".max") => ("77h", "66h"),
        Kind::Duration { .. } if path == "retention" => ("77h", "66h"),
        Kind::Duration { .. } => ("23s", "22s"),
        Kind::Size { .. } => ("77KiB", "66KiB"),
        Kind::Backoff => ("{initial: 17s, max: 77h}", "{initial: 16s, max: 66h}"),
        Kind::Commands => ("[env, \"a b\"]", "[file]"),
        Kind::Listen => ("127.0.0.1:9410", "\"[::1]:0\""),
        Kind::Hosts => ("A, b.example", "[c]"),
        Kind::Collector => ("http://a/v1/traces", "https://b/v1/traces"),
        Kind::Headers => ("{a: b}", "{c: d}"),
        Kind::File => ("/a.pem", "/b.pem"),
        Kind::Networks => ("127.0.0.1, 10.0.0.0/8", "[\"::1\"]"),
        Kind::Header => ("Remote-User", "Remote-Name"),
        Kind::Groups => ("a, b", "[c]"),
        Kind::Webhooks => (
            "[{name: a, url: \"http://a/\", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}]",
            "[{name: b, url: \"http://b/\", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}]",
        ),
    }
}

#[test]
fn every_key_has_an_override_that_wins_over_the_file_that_wins_over_the_default() {
    let same_place = |mut config: Config| {
        config.file = None;
        config.base_dir = PathBuf::new();
        config.pipelines_path = config.pipelines_path.file_name().unwrap().into();
        let name = config.database.url.sqlite_path().unwrap().file_name();
        let url = format!("sqlite://{}", name.unwrap().to_str().unwrap());
        config.database.url = DatabaseUrl::parse(&url, Path::new("/")).unwrap();
        config
    };
    for key in KEYS {
        let (variable, file) = samples(key.kind, key.path);
        let desk = Desk::with(&only(key.path, file));
        let from_default = same_place(Desk::new().config());
        let from_file = same_place(desk.config());
        assert_ne!(from_file, from_default, "{}", key.path);
        let desk = desk.var(&key.variable(), variable);
        let overridden = same_place(desk.config());
        assert_ne!(overridden, from_file, "{}", key.path);
        // The same value in the file instead gives the same settings.
        let variable = match key.kind {
            Kind::Names => "[A, B]",
            Kind::Variables => "[A, B_*]",
            Kind::Hosts => "[A, b.example]",
            Kind::Networks => "[127.0.0.1, 10.0.0.0/8]",
            Kind::Groups => "[a, b]",
            _ => variable,
        };
        let written = same_place(Desk::with(&only(key.path, variable)).config());
        assert_eq!(overridden, written, "{}", key.path);
        let empty = same_place(Desk::new().var(&key.variable(), "").config());
        assert_eq!(empty, from_default, "an empty {} is unset", key.variable());
    }
}

#[test]
fn a_bad_override_names_its_variable() {
    for key in KEYS {
        let bad = match key.kind {
            Kind::Path | Kind::File => continue,
            Kind::Names | Kind::Variables | Kind::Hosts | Kind::Groups => "{a: 1}",
            Kind::Header => "no header",
            Kind::Commands | Kind::Backoff => "text",
            _ => "nonsense",
        };
        let said = Desk::new().var(&key.variable(), bad).problems();
        assert_eq!(said.len(), 1, "{}: {said:?}", key.path);
        assert!(
            said[0].starts_with(&format!("{}: ", key.variable())),
            "{said:?}"
        );
    }
    let said = Desk::new()
        .var("DUCTWORK_JOB_WORKER__COUNT", "{default: 0}")
        .problems();
    assert_eq!(
        said,
        [
            "DUCTWORK_JOB_WORKER__COUNT: `job_worker.count` takes a whole number from 1 to 1000, not `0`"
        ]
    );
    let said = Desk::new().var("DUCTWORK_PIPELINES", "[a").problems();
    assert!(
        said[0].starts_with("DUCTWORK_PIPELINES: not valid YAML"),
        "{said:?}"
    );
}

#[test]
fn overrides_reach_into_maps() {
    let desk = Desk::with("job_worker:\n  backoff: {default: {initial: 2s}, P: {initial: 3s}}\n")
        .var("DUCTWORK_JOB_WORKER__BACKOFF__INITIAL", "4s")
        .var("DUCTWORK_JOB_WORKER__COUNT", "{default: 6, P: 7}");
    let worker = desk.config().job_worker;
    assert_eq!(worker.backoff("P", "S").initial, seconds(4));
    assert_eq!(worker.backoff("x", "S").initial, seconds(4));
    assert_eq!((worker.count("P"), worker.count("x")), (7, 6));
}

#[test]
fn a_misspelt_override_is_a_problem_and_what_steps_are_handed_is_none() {
    let desk = Desk::new()
        .var("DUCTWORK_RUN_ID", "1")
        .var("DUCTWORK_PIPELINE", "P")
        .var("DUCTWORK_STEP", "S")
        .var("DUCTWORK_STEP_ID", "1")
        .var("DUCTWORK_OUTPUT", "/tmp/x")
        .var("DUCTWORK_IDEMPOTENCY_KEY", "1")
        .var("DUCTWORK_TEST__POSTGRES__URL", "x")
        .var("DUCTWORK_JOB_WORKER__EMPTY", "")
        .var("OTHER__THING", "1");
    assert_eq!(desk.config().role, DaemonRole::All);
    for (name, message, help) in [
        (
            "DUCTWORK_JOB_WORKER__CONT",
            "matches no configuration key",
            "did you mean DUCTWORK_JOB_WORKER__COUNT?",
        ),
        (
            "DUCTWORK_JOB_WORKER_COUNT",
            "matches no configuration key",
            "did you mean DUCTWORK_JOB_WORKER__COUNT?",
        ),
        (
            "DUCTWORK_SUPERVISOR__REAPER_TIMOUT",
            "matches no configuration key",
            "did you mean DUCTWORK_SUPERVISOR__REAPER_TIMEOUT?",
        ),
        (
            "DUCTWORK_LOGGER",
            "names a group of keys, not a key",
            "set one of its keys, such as DUCTWORK_LOGGER__LEVEL",
        ),
        (
            "DUCTWORK_HOOKS__WORKER",
            "names a group of keys, not a key",
            "set one of its keys, such as DUCTWORK_HOOKS__WORKER__START",
        ),
        (
            "DUCTWORK_ZZZ__YYY",
            "matches no configuration key",
            "an override is named like DUCTWORK_DATABASE__URL",
        ),
    ] {
        let problems = Desk::new().var(name, "1").load_as(None, None).unwrap_err();
        assert_eq!(problems.0.len(), 1);
        assert_eq!(problems.0[0].message, format!("{name}: {message}"));
        assert_eq!(problems.0[0].help.as_deref(), Some(help));
    }
}

#[test]
fn a_console_that_other_hosts_reach_answers_visitors_with_tokens_alone() {
    let listen = |text: &str| Desk::with(&format!("console: {{listen: \"{text}\"}}\n"));
    for (text, address) in [
        ("127.0.0.1:9410", "127.0.0.1:9410"),
        ("127.8.8.8:0", "127.8.8.8:0"),
        ("localhost:80", "127.0.0.1:80"),
        ("[::1]:9410", "[::1]:9410"),
    ] {
        let console = listen(text).config().console;
        assert_eq!(console.listen, Some(address.parse().unwrap()), "{text}");
    }
    assert_eq!(listen("none").config().console.listen, None);
    for text in [
        "0.0.0.0:9410",
        "[::]:9410",
        "10.0.0.1:80",
        "[::ffff:8.8.8.8]:80",
    ] {
        let visitors = |word: &str| {
            let text = format!("console: {{listen: \"{text}\", visitors: {word}}}\n");
            Desk::with(&text).load_as(None, None)
        };
        for word in ["auto", "known"] {
            let console = visitors(word).unwrap().console;
            assert_eq!(
                console.anonymous("development").direct,
                None,
                "{text} {word}"
            );
        }
        let problems = visitors("anybody").unwrap_err().0;
        let message = format!("other hosts can reach {text}, and the console would answer anybody");
        assert!(problems[0].message.contains(&message), "{problems:?}");
        let help = problems[0].help.as_deref().unwrap();
        assert!(help.contains("ductworkd token create"), "{help}");
    }
    let here = listen("127.0.0.1:9410").config().console;
    assert_eq!(
        here.anonymous("development").direct,
        Some(model::Scope::Operate)
    );
    assert_eq!(
        here.anonymous("production").direct,
        Some(model::Scope::Read)
    );
    let text = "console: {listen: \"127.0.0.1:9410\", hosts: [proxy.example]}\n";
    let proxied = Desk::with(text).config().console;
    assert_eq!(proxied.anonymous("development").direct, None);
    for text in [
        "9410",
        "127.0.0.1",
        "localhost",
        "localhost:x",
        "here:9410",
        ":9410",
        "",
    ] {
        let said = listen(text).problems();
        let begins = "1:19 `console.listen` takes an address, not ";
        assert!(said.len() == 1 && said[0].starts_with(begins), "{said:?}");
    }
    let hosts = |text: &str| Desk::with(&format!("console: {{hosts: {text}}}\n"));
    assert_eq!(
        hosts("[Ductwork.example.com, \"[FE80::1]\"]")
            .config()
            .console
            .hosts,
        ["ductwork.example.com", "fe80::1"]
    );
    for text in ["[\"a:80\"]", "[\"http://a\"]", "[\"*\"]", "[\"\"]", "[[a]]"] {
        assert_eq!(hosts(text).problems().len(), 1, "{text}");
    }
}

#[test]
fn the_address_of_the_database_has_its_own_variables() {
    let mut desk = Desk::with("database: {url: \"postgres://u:${PW}@file/d\"}\n")
        .file("secret", "postgres://from-file/d\n\n")
        .var("PW", "pw");
    let url = |desk: &Desk| desk.config().database.url.expose().to_owned();
    assert_eq!(url(&desk), "postgres://u:pw@file/d");
    assert_eq!(desk.config().note_of_creation(), None);
    assert!(!desk.config().database.is_from_variable());
    let secret = desk.dir.path().join("secret").display().to_string();
    // From the weakest to the strongest.
    for (name, value, expected) in [
        (
            "DATABASE_URL_FILE",
            secret.as_str(),
            "postgres://from-file/d",
        ),
        ("DATABASE_URL", "postgres://plain/d", "postgres://plain/d"),
        (
            "DUCTWORK_DATABASE_URL_FILE",
            secret.as_str(),
            "postgres://from-file/d",
        ),
        (
            "DUCTWORK_DATABASE_URL",
            "postgres://own/d",
            "postgres://own/d",
        ),
    ] {
        desk = desk.var(name, value);
        assert_eq!(url(&desk), expected, "{name}");
        // A variable of ours is set for this program.
        let note = desk.config().note_of_creation();
        let elsewhere = format!(
            "creating the tables in {expected} (from {name}; ductwork.yml says postgres://u:***@file/d)"
        );
        assert_eq!(note, name.starts_with("DATABASE_URL").then_some(elsewhere));
        assert!(desk.config().database.is_from_variable(), "{name}");
    }
    let same = Desk::with("database: {url: \"${DATABASE_URL:-sqlite://d.db}\"}\n");
    let same = same.var("DATABASE_URL", "postgres://u:pw@plain/d");
    assert_eq!(same.config().note_of_creation(), None);
    // Another path to the same file is the same database.
    let same = Desk::with("database: {url: \"sqlite://d.db\"}\n").file("real/e.db", "");
    std::os::unix::fs::symlink("real", same.dir.path().join("link")).unwrap();
    let here = same.dir.path().display().to_string();
    let mut same = same;
    for (url, is_told) in [
        ("sqlite://./x/../d.db".to_owned(), false),
        (format!("sqlite://{here}/d.db"), false),
        ("sqlite://link/../d.db".to_owned(), false),
        ("sqlite://real/d.db".to_owned(), true),
        ("sqlite://x/d.db".to_owned(), true),
    ] {
        same = same.var("DATABASE_URL", &url);
        assert_eq!(same.config().elsewhere().is_some(), is_told, "{url}");
    }
    // So is an address that reads differently only in its scheme, or in its password, which is not shown.
    let mut same = Desk::with("database: {url: \"postgres://u:pw@h/d\"}\n");
    for (url, is_told) in [
        ("postgresql://u:p%77@h/d", false),
        ("postgres://u:pw@h/e", true),
    ] {
        same = same.var("DATABASE_URL", url);
        assert_eq!(same.config().elsewhere().is_some(), is_told, "{url}");
    }
    let secrets = desk.config().secret_variables().to_vec();
    for name in [
        "DATABASE_URL",
        "DATABASE_URL_FILE",
        "DUCTWORK_DATABASE_URL",
        "DUCTWORK_DATABASE_URL_FILE",
        "PW",
    ] {
        assert!(secrets.contains(&name.to_owned()), "{name}");
    }
    let shown = format!(
        "{:?}",
        Desk::with("database: {url: \"postgres://u:hidden@h\"}").config()
    );
    assert!(!shown.contains("hidden"));
}

#[test]
fn a_path_or_a_home_in_the_address_is_no_secret() {
    let desk = Desk::with("database: {url: \"sqlite://${DIR}/d.db\"}").var("DIR", "/data");
    assert!(!desk.config().secret_variables().contains(&"DIR".to_owned()));
    let desk = Desk::with("database: {url: \"postgres://${USER}:${PW:-x}@h\"}").var("USER", "me");
    let secrets = desk.config().secret_variables().to_vec();
    assert!(!secrets.contains(&"USER".to_owned()) && secrets.contains(&"PW".to_owned()));
}

#[test]
fn an_address_in_the_wrong_place_is_named_without_its_password() {
    for text in [
        "database: postgres://u:s3cret@h/d\n",
        "job_worker: { count: \"postgres://u:s3cret@h/d\" }\n",
        "logger: { level: \"postgres://u:s3cret@h/d\" }\n",
        "<<: postgres://u:s3cret@h/d\n",
        "\"postgres://u:s3cret@h/d\": 1\n",
    ] {
        let problems = Desk::with(text).load_as(None, None).unwrap_err();
        assert!(!problems.to_string().contains("s3cret"), "{problems}");
        let told = |problem: &Problem| format!("{:?} {:?}", problem.message, problem.help);
        assert!(
            problems
                .0
                .iter()
                .all(|problem| !told(problem).contains("s3cret"))
        );
    }
}

#[test]
fn a_bad_address_in_a_variable_or_its_file_is_named_without_its_password() {
    for (name, value, expected) in [
        (
            "DATABASE_URL",
            "postgres://u:s3@cret@h",
            "DATABASE_URL: the user or password of the PostgreSQL address has to be percent-encoded",
        ),
        (
            "DUCTWORK_DATABASE_URL",
            "mysql2://u:s3cret@h",
            "DUCTWORK_DATABASE_URL: databases of the kind `mysql2` are not supported by this version",
        ),
        (
            "DATABASE_URL_FILE",
            "/nowhere",
            "DATABASE_URL_FILE: cannot read /nowhere: No such file or directory (os error 2)",
        ),
    ] {
        let problems = Desk::new()
            .var(name, value)
            .load_as(None, None)
            .unwrap_err();
        assert!(!problems.to_string().contains("cret"), "{problems}");
        assert_eq!(said(problems), [expected]);
    }
    let problems = Desk::with("database:\n  url: postgres://u:s3@cret@h/d\n")
        .load_as(None, None)
        .unwrap_err();
    assert!(
        problems.to_string().contains("--> ductwork.yml:2:8"),
        "{problems}"
    );
    assert!(!problems.to_string().contains("cret"), "{problems}");
}

#[test]
fn variables_are_expanded_in_the_section_that_is_used() {
    let desk = Desk::with(
        "default: &d\n  job_worker: {count: \"${COUNT}\", max_retry: {P: \"${R:-8}\"}}\n  \
         pipelines_path: $${x}/${DIR:-a}\nproduction: {role: \"${MISSING}\"}\n",
    )
    .var("COUNT", "9");
    let config = desk.config();
    assert_eq!(config.job_worker.count("P"), 9);
    assert_eq!(config.job_worker.max_retry("P", "S"), 8);
    assert_eq!(config.pipelines_path, desk.dir.path().join("${x}/a"));
    let problems = desk.load_as(None, Some("production")).unwrap_err();
    assert_eq!(
        said(problems),
        ["4:20 the environment variable `MISSING` is not set"]
    );
    let desk = desk.var("DUCTWORK_ROLE", "worker");
    assert!(
        desk.load_as(None, Some("production")).is_ok(),
        "what is overridden is not expanded"
    );
}

#[test]
fn variables_of_webhooks_are_needed_where_a_console_starts_and_nowhere_else() {
    let text = "console:\n  listen: \"127.0.0.1:1\"\n  webhooks:\n    - {name: a, url: \"http://a/\", secret: \"${SET}\"}\n    \
                - {name: b, url: \"http://b/\", secret: \"${UNSET}\"}\n";
    let desk = Desk::with(text).var("SET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let config = desk.config();
    assert_eq!(config.console.webhooks, []);
    // The names are known all the same: `health` recognises messages by them.
    assert_eq!(config.console.endpoints, ["a", "b"]);
    assert_eq!(
        said(config.complete().unwrap_err()),
        ["5:43 the environment variable `UNSET` is not set"]
    );
    let told = config.complete().unwrap_err().to_string();
    assert!(
        told.contains("a secret has no default") && !told.contains("UNSET:-"),
        "{told}"
    );
    // The others are hidden from steps all the same.
    for name in ["SET", "UNSET"] {
        assert!(
            config.secret_variables().contains(&name.to_owned()),
            "{name}"
        );
    }
    let worker = desk.var("DUCTWORK_ROLE", "worker");
    assert!(worker.config().complete().is_ok());
    let console = worker.var("DUCTWORK_ROLE", "console");
    assert!(console.config().complete().is_err());
    let silent = console
        .var("DUCTWORK_ROLE", "all")
        .var("DUCTWORK_CONSOLE__LISTEN", "none");
    assert!(silent.config().complete().is_ok());
    let set = silent
        .var("DUCTWORK_ROLE", "console")
        .var("UNSET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    assert!(set.config().complete().is_ok());
    let console = set.config().console;
    assert_eq!((console.webhooks.len(), console.endpoints.len()), (2, 2));
    let none = set.var("DUCTWORK_CONSOLE__WEBHOOKS", "[]").config().console;
    assert_eq!(none.endpoints, Vec::<String>::new());
}

#[test]
fn a_value_out_of_range_is_refused_at_its_place() {
    let whole = "takes a whole number from 1 to 1000, not";
    let reaper = "takes a duration from 1s to 1d";
    for (path, value, message) in [
        ("job_worker.count", "0", format!("{whole} `0`")),
        ("job_worker.count", "1001", format!("{whole} `1001`")),
        ("job_worker.count", "-1", format!("{whole} `-1`")),
        ("job_worker.count", "1e9", format!("{whole} `1e9`")),
        ("job_worker.count", "99999999999999999999999", format!("{whole} `99999999999999999999999`")),
        ("job_worker.count", "5.0", format!("{whole} `5.0`")),
        ("job_worker.count", "\"5\"", format!("{whole} the string \"5\"")),
        ("job_worker.count", "0x10", format!("{whole} `0x10`")),
        ("job_worker.count", "yes", format!("{whole} `yes`")),
        ("job_worker.count", "[5]", format!("{whole} a list")),
        ("job_worker.max_retry", "-1", "takes a whole number from 0 to 1000000, not `-1`".into()),
        ("job_worker.backoff.factor", ".nan", "takes a number from 1 to 1000, not `.nan`".into()),
        ("job_worker.backoff.factor", "NaN", "takes a number from 1 to 1000, not `NaN`".into()),
        ("job_worker.backoff.factor", "1e309", "takes a number from 1 to 1000, not `1e309`".into()),
        ("job_worker.backoff.factor", "1000.5", "takes a number from 1 to 1000, not `1000.5`".into()),
        ("job_worker.backoff.factor", "0", "takes a number from 1 to 1000, not `0`".into()),
        ("job_worker.backoff.jitter", "1.1", "takes a number from 0 to 1, not `1.1`".into()),
        ("job_worker.backoff", "10s", "takes a map of `initial`, `factor`, `max` and `jitter`, not `10s`".into()),
        ("pipeline_advancer.steps.max_depth", "0", "takes -1 (no limit) or a whole number from 1 to 1000000000, not `0`".into()),
        ("pipeline_advancer.steps.max_depth", "-2", "takes -1 (no limit) or a whole number from 1 to 1000000000, not `-2`".into()),
        ("supervisor.reaper_timeout", "999ms", format!("{reaper}, not `999ms`")),
        ("supervisor.reaper_timeout", "0", format!("{reaper}, not `0`")),
        ("supervisor.reaper_timeout", "2d", format!("{reaper}, not `2d`")),
        ("supervisor.reaper_timeout", "[1]", format!("{reaper}, not a list")),
        ("supervisor.reaper_timeout", "{default: 9}", format!("{reaper}, not a map")),
        ("job_worker.polling_timeout", "0", "takes a duration from 10ms to 1h, not `0`".into()),
        ("job_worker.timeout", "0", "takes `none` or a duration from 1ms to 365d, not `0`".into()),
        ("job_worker.max_payload", "1", "takes a size from 1024 to 268435456 bytes, such as `16MiB` or `1MB`, not `1`".into()),
        ("job_worker.max_payload", "268435457", "takes a size from 1024 to 268435456 bytes, such as `16MiB` or `1MB`, not `268435457`".into()),
        ("job_worker.max_payload", "16M", "takes a size from 1024 to 268435456 bytes, such as `16MiB` or `1MB`, not `16M`".into()),
        ("job_worker.max_payload", "99999999999GiB", "takes a size from 1024 to 268435456 bytes, such as `16MiB` or `1MB`, not `99999999999GiB`".into()),
        ("role", "no", "is one of `all`, `advancer`, `worker`, `console`, not `no`".into()),
        ("role", "true", "is one of `all`, `advancer`, `worker`, `console`, not `true`".into()),
        ("role", "[all]", "is one of `all`, `advancer`, `worker`, `console`, not a list".into()),
        ("logger.level", "on", "is one of `off`, `error`, `warn`, `info`, `debug`, `trace`, not `on`".into()),
        ("pipelines", "[]", "names nothing to run".into()),
        ("pipelines", "{a: 1}", "takes `*` or a list of names, not a map".into()),
        ("pipelines", "\"a,,b\"", "takes `*` or a list of names, not the string \"a,,b\"".into()),
        ("pipelines_path", "[a]", "takes a path, not a list".into()),
        ("database.url", "[a]", "takes a URL, not a list".into()),
        ("hooks.worker.start", "notify", "takes a command as a list, not `notify`".into()),
    ] {
        let line = path.split('.').count();
        let name = path.rsplit('.').next().unwrap();
        let column = 2 * (line - 1) + name.len() + 3;
        assert_eq!(
            Desk::with(&only(path, value)).problems(),
            [format!("{line}:{column} `{path}` {message}")],
            "{path}: {value}"
        );
    }
    for value in [
        "-5",
        "-0.1",
        ".nan",
        ".inf",
        "nan",
        "1e309",
        "10 parsecs",
        "ten",
        "9999999999d",
    ] {
        let said = Desk::with(&only("supervisor.reaper_timeout", value)).problems();
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with(&format!("2:19 `supervisor.reaper_timeout` {reaper}: ")),
            "{said:?}"
        );
    }
}

#[test]
fn a_payload_that_no_database_takes_is_refused_with_what_to_do_instead() {
    let most = |size| Desk::with(&only("job_worker.max_payload", size));
    let config = most("256MiB").config();
    assert_eq!(config.job_worker.max_payload("P"), 256 << 20);
    for size in ["257MiB", "1GiB"] {
        let problems = most(size).load_as(None, None).unwrap_err();
        let help = problems.0[0].help.as_deref().unwrap_or_default();
        assert!(help.contains("keep larger values elsewhere"), "{help}");
    }
    let problems = most("1").load_as(None, None).unwrap_err();
    assert_eq!(problems.0[0].help, None);
}

#[test]
fn all_problems_are_told_at_once_in_reading_order() {
    let text = "\
default: &default
  databse: {url: x}
  job_worker:
    count: {default: 0, Orders: 1001}
    polling_timout: 1
    backoff: {intial: 1s, max: never}
  logger: loud
  hooks: {superviser: {start: []}}
development:
  <<: *default
  console: {listen: somewhere}
  hooks: {worker: {start: [[a], b], begin: []}}
";
    let said = Desk::with(text).var("DUCTWORK_ROLE", "king").problems();
    assert_eq!(
        said,
        [
            "2:3 unknown key `databse`",
            "4:22 `job_worker.count` takes a whole number from 1 to 1000, not `0`",
            "4:33 `job_worker.count` takes a whole number from 1 to 1000, not `1001`",
            "5:5 unknown key `polling_timout` in `job_worker`",
            "6:15 unknown key `intial` in `job_worker.backoff`",
            "6:32 `job_worker.backoff.max` takes a duration from 0 to 30d: `never` is not a duration",
            "7:11 `logger` takes a map, not `loud`",
            "11:21 `console.listen` takes an address, not `somewhere`",
            "12:33 `hooks.worker.start` takes a command as a list, not `b`",
            "12:37 unknown key `begin` in `hooks.worker`",
            "DUCTWORK_ROLE: `role` is one of `all`, `advancer`, `worker`, `console`, not `king`",
        ]
    );
}

#[test]
fn a_problem_shows_the_line_and_what_was_meant() {
    let text = "default:\n  pipeline_advancer:\n    polling_timout: 1\n";
    let problems = Desk::with(text).load_as(None, None).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "\
error: unknown key `polling_timout` in `pipeline_advancer`
 --> ductwork.yml:3:5
  |
3 |     polling_timout: 1
  |     ^^^^^^^^^^^^^^
  = help: did you mean `polling_timeout`? valid keys: count, max_retry, max_crash, backoff, polling_timeout, shutdown_timeout, steps"
    );
}

#[test]
fn a_word_of_another_system_and_a_key_in_another_place_are_understood() {
    for (text, meant) in [
        ("job_worker: {worker_count: 3}\n", "count"),
        ("job_worker: {retries: 3}\n", "max_retry"),
        ("default: {retries: 3}\n", "job_worker.max_retry"),
        ("default: {count: 3}\n", "job_worker.count"),
        ("default: {worker_count: 3}\n", "job_worker.count"),
        ("default: {level: debug}\n", "logger.level"),
    ] {
        let problems = Desk::with(text).load_as(None, None).unwrap_err().0;
        assert_eq!(problems.len(), 1, "{problems:?}");
        let help = problems[0].help.as_deref().unwrap();
        assert!(
            help.starts_with(&format!("did you mean `{meant}`? ")),
            "{help}"
        );
    }
}

#[test]
fn sections_that_do_not_fit_are_refused() {
    for (text, env, expected) in [
        (
            "production: {role: all}\n",
            Some("prodution"),
            "1:1 there is no section `prodution` and no `default`",
        ),
        (
            "production: {role: all}\n",
            None,
            "1:1 there is no section `development` and no `default`",
        ),
        ("databse: {url: x}\n", None, "1:1 unknown key `databse`"),
        (
            "default: {}\nrole: all\n",
            None,
            "2:1 `role` stands beside the sections, not in one",
        ),
        (
            "default: {}\nother: 3\n",
            None,
            "2:1 the section `other` is `3`, not a map",
        ),
        (
            "default: 3\n",
            None,
            "1:1 the section `default` is `3`, not a map",
        ),
        (
            "role: all\nproduction: {}\n",
            None,
            "2:1 unknown key `production`",
        ),
        ("- a\n", None, "1:1 a configuration is a map, not a list"),
        (
            "just text\n",
            None,
            "1:1 a configuration is a map, not `just text`",
        ),
    ] {
        let problems = Desk::with(text).load_as(None, env).unwrap_err();
        assert_eq!(said(problems), [expected], "{text:?}");
    }
}

#[test]
fn a_backoff_that_begins_beyond_its_end_is_refused() {
    assert_eq!(
        Desk::with("job_worker:\n  backoff: {initial: 2h}\n").problems(),
        ["2:12 `job_worker.backoff`: `initial` (7200s) is longer than `max` (3600s)"]
    );
    assert_eq!(
        Desk::new()
            .var("DUCTWORK_JOB_WORKER__BACKOFF__MAX", "1s")
            .problems(),
        ["`job_worker.backoff`: `initial` (10s) is longer than `max` (1s)"]
    );
}

#[test]
fn a_supervisor_that_would_kill_its_children_in_their_drains_is_refused() {
    assert_eq!(
        Desk::with("supervisor:\n  shutdown_timeout: 5\n").problems(),
        ["2:3 `supervisor.shutdown_timeout` (5s) is shorter than \
             `pipeline_advancer.shutdown_timeout` (20s, the default): the supervisor would kill \
             it in the middle of its drain"]
    );
    let text = "\
job_worker:
  shutdown_timeout: { default: 20, Orders: 5m }
supervisor:
  shutdown_timeout: 60
";
    assert_eq!(
        Desk::with(text).problems(),
        ["4:3 `supervisor.shutdown_timeout` (60s) is shorter than \
             `job_worker.shutdown_timeout` of Orders (300s, line 2): the supervisor would kill it \
             in the middle of its drain"]
    );
    assert_eq!(
        Desk::with(&text.replace("60", "300"))
            .var("DUCTWORK_SUPERVISOR__SHUTDOWN_TIMEOUT", "7")
            .problems(),
        [
            "2:36 `supervisor.shutdown_timeout` (7s, by DUCTWORK_SUPERVISOR__SHUTDOWN_TIMEOUT) is \
             shorter than `job_worker.shutdown_timeout` of Orders (300s): the supervisor would \
             kill it in the middle of its drain"
        ]
    );
    // Nobody kills a role of its own.
    Desk::with(text).var("DUCTWORK_ROLE", "worker").config();
    let fits = text.replace("60", "300");
    let config = Desk::with(&fits).config();
    assert_eq!(config.supervisor.shutdown_timeout, Duration::from_secs(300));
}

#[test]
fn variables_that_no_step_can_inherit_are_refused() {
    for (list, expected) in [
        ("[A, 1B]", "2:12 `1B` is not the name of a variable"),
        ("[\"*\"]", "2:9 `*` stands alone, not in a list"),
        ("[A, inherit]", "2:12 `inherit` stands alone, not in a list"),
        (
            "[DATABASE_URL]",
            "2:9 `DATABASE_URL` is the daemon's own, and no step inherits it",
        ),
        (
            "[[A]]",
            "2:9 `job_worker.env` takes `inherit` or a list of variables, not a list",
        ),
    ] {
        let desk = Desk::with(&only("job_worker.env", list));
        assert_eq!(desk.problems(), [expected], "{list}");
    }
    let config =
        Desk::with("job_worker: {env: {default: [A], P: inherit, Q: \"B, C_*\"}}\n").config();
    let only = |names: &[&str]| Inherit::Only(names.iter().map(|name| (*name).into()).collect());
    assert_eq!(config.job_worker.env("x"), &only(&["A"]));
    assert_eq!(config.job_worker.env("P"), &Inherit::All);
    assert_eq!(config.job_worker.env("Q"), &only(&["B", "C_*"]));
}

/// The warnings of a configuration that is used, with places.
fn warned(desk: &Desk) -> Vec<String> {
    let config = desk.config();
    let told = config.warnings().iter().map(|warning| {
        let help = warning.help.as_deref().unwrap_or_default();
        match &warning.at {
            Some(at) => format!("{}:{} {}; {help}", at.line, at.column, warning.message),
            None => format!("{}; {help}", warning.message),
        }
    });
    let told = told.collect();
    for warning in config.warnings().iter().filter(|one| one.at.is_some()) {
        assert_eq!(warning.file.as_deref(), Some(Path::new("ductwork.yml")));
    }
    told
}

#[test]
fn a_key_that_has_no_meaning_any_more_is_told_and_keeps_nobody_from_starting() {
    let why = "`database.pool` has no meaning any more: each process has two connections, \
               whatever `count` is; remove it";
    let desk = Desk::with("default:\n  database: { url: \"sqlite://a.db\", pool: 2 }\n");
    assert_eq!(warned(&desk), [format!("2:37 {why}")]);
    let desk = Desk::new().var("DUCTWORK_DATABASE__POOL", "7");
    assert_eq!(warned(&desk), [format!("DUCTWORK_DATABASE__POOL: {why}")]);
    assert_eq!(warned(&Desk::with(REFERENCE)), Vec::<String>::new());
}

#[test]
fn a_console_that_answers_anybody_behind_a_proxy_is_told() {
    let told = |more: &str| {
        let text = format!("console: {{listen: \"127.0.0.1:9410\", {more}}}\n");
        warned(&Desk::with(&text)).join("\n")
    };
    for behind in ["hosts: [a.example]", "proxy: {from: [127.0.0.1]}"] {
        let open = told(&format!("visitors: anybody, {behind}"));
        assert!(open.contains("answered without a token"), "{open}");
        for closed in ["known", "auto"] {
            assert_eq!(told(&format!("visitors: {closed}, {behind}")), "");
        }
    }
    assert_eq!(told("visitors: anybody"), "");
}

#[test]
fn a_stop_that_waits_for_nothing_is_told() {
    let text = "\
supervisor: { shutdown_timeout: 0 }
pipeline_advancer: { shutdown_timeout: 0 }
job_worker:
  shutdown_timeout: { default: 0, Orders: 0 }
";
    let help = "write how long a stop may wait for them, such as `20s`";
    let steps = "running steps are ended at once, and they run again, from their beginning";
    assert_eq!(
        warned(&Desk::with(text)),
        [
            format!(
                "2:22 `pipeline_advancer.shutdown_timeout` is 0: when the daemon stops, \
                 advancements are given up at once, and they are made again; {help}"
            ),
            format!(
                "4:3 `job_worker.shutdown_timeout` is 0: when the daemon stops, {steps}; {help}"
            ),
            format!(
                "4:35 `job_worker.shutdown_timeout` of Orders is 0: when the daemon stops, {steps}; \
                 {help}"
            ),
        ]
    );
}

#[test]
fn a_misspelt_variable_without_two_underscores_is_told_and_what_steps_are_handed_is_not() {
    for (name, meant) in [
        ("DUCTWORK_ROEL", "DUCTWORK_ROLE"),
        ("DUCTWORK_CONFIGS", "DUCTWORK_CONFIG"),
        ("DUCTWORK_EVN", "DUCTWORK_ENV"),
        ("DUCTWORK_DATABASE_URI", "DUCTWORK_DATABASE_URL"),
        ("DUCTWORK_PIPELINE_PATH", "DUCTWORK_PIPELINES_PATH"),
        ("DUCTWORK_JOBWORKER_CONT", "DUCTWORK_JOB_WORKER__COUNT"),
        ("DUCTWORK_RETENTON", "DUCTWORK_RETENTION"),
    ] {
        let told = warned(&Desk::new().var(name, "x"));
        let expected = format!("{name}: nothing reads this variable; did you mean {meant}?");
        assert_eq!(told, [expected]);
    }
    for name in [
        "CONFIG",
        "ENV",
        "RUN_ID",
        "STEP",
        "STEP_ID",
        "EXECUTION_ID",
        "ATTEMPT",
        "OUTPUT",
        "PROCESS",
        "IDEMPOTENCY_KEY",
        "FENCING_TOKEN",
        "CONTEXT",
        "CONTEXT_SOCKET",
        "TEST_POSTGRES_URL",
        "FAIL",
        "BLESS",
        "EXPLORER",
    ] {
        let desk = Desk::new().var(&format!("DUCTWORK_{name}"), "");
        assert_eq!(warned(&desk), Vec::<String>::new());
        let desk = Desk::with("default: {}\nx: {}\n").var(&format!("DUCTWORK_{name}"), "x");
        let desk = match name {
            "CONFIG" => continue,
            _ => desk,
        };
        assert_eq!(warned(&desk), Vec::<String>::new(), "{name}");
    }
    // It differs by one letter from a key, and every step is handed it.
    let desk = Desk::new().var("DUCTWORK_PIPELINE", "P");
    assert_eq!(warned(&desk), Vec::<String>::new());
}

#[test]
fn an_empty_file_is_as_good_as_none() {
    let none = Desk::new().config();
    for text in ["", "\n\n", "# nothing\n", "---\n", "\u{feff}"] {
        let found = Desk::new().file("ductwork.yml", text).config();
        assert_eq!(found.job_worker, none.job_worker, "{text:?}");
    }
}

#[test]
fn a_file_that_is_none_is_refused() {
    let huge = format!("role: all\n#{}\n", "x".repeat(1024 * 1024));
    for (bytes, expected) in [
        (
            huge.as_bytes(),
            "the configuration file is larger than 1 MiB",
        ),
        (b"\xff\xfer\0o\0", "the configuration file is UTF-16"),
        (
            b"role: all\npipelines: a\xffb\n",
            "2:13 a byte that is not UTF-8",
        ),
        (b"\xff", "1:1 a byte that is not UTF-8"),
        (
            b"role: all\n---\nrole: all\n",
            "2:1 a second document begins here",
        ),
        (
            b"role: all\nrole: all\n",
            "2:1 `role` appears twice in one map",
        ),
        (b"database:\n\turl: x\n", "2:1 a tab in the indentation"),
        (
            b"default: {role: all}\ndefault: {role: all}\n",
            "2:1 `default` appears twice in one map",
        ),
    ] {
        let desk = Desk::new().file("ductwork.yml", bytes);
        assert_eq!(desk.problems(), [expected]);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let desk = Desk::new().file("dir/ductwork.yml", "role: all");
    let said_of = |file: &str| said(desk.load_as(Some(file), None).unwrap_err());
    assert_eq!(said_of("dir"), ["the configuration file is a directory"]);
    assert_eq!(
        said_of("none.yml"),
        ["the configuration file does not exist"]
    );
    std::os::unix::fs::symlink("loop.yml", desk.dir.path().join("loop.yml")).unwrap();
    let found = said_of("loop.yml");
    assert!(
        found[0].starts_with("the configuration file cannot be read: "),
        "{found:?}"
    );
    std::os::unix::fs::symlink("gone", desk.dir.path().join("ductwork.yml")).unwrap();
    assert_eq!(
        desk.problems(),
        ["the configuration file does not exist"],
        "a dangling link is not skipped"
    );
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&desk.dir.path().join("pipe"), mode).unwrap();
    assert_eq!(said_of("pipe"), ["the configuration file is not a file"]);
    let found = said(desk.load_as(Some("dir/ductwork.yml/x"), None).unwrap_err());
    assert!(
        found[0].starts_with("the configuration file cannot be read: "),
        "{found:?}"
    );
}

#[test]
fn a_byte_order_mark_and_carriage_returns_change_no_place() {
    let desk = Desk::with("\u{feff}role: worker\r\njob_worker:\r\n  count: 3\r\n");
    let config = desk.config();
    assert_eq!(
        (config.role, config.job_worker.count("P")),
        (DaemonRole::Worker, 3)
    );
    let desk = Desk::with("\u{feff}role: king\r\njob_worker:\r\n  count: 0\r\n");
    assert_eq!(
        desk.problems(),
        [
            "1:7 `role` is one of `all`, `advancer`, `worker`, `console`, not `king`",
            "3:10 `job_worker.count` takes a whole number from 1 to 1000, not `0`",
        ]
    );
}

#[test]
fn a_small_file_that_would_become_a_large_tree_is_refused_at_once() {
    let mut text = String::from("x0: &x0 [a, a, a, a, a, a, a, a, a]\n");
    for level in 1..20 {
        let items = vec![format!("*x{}", level - 1); 9].join(", ");
        text.push_str(&format!("x{level}: &x{level} [{items}]\n"));
    }
    text.push_str("default: {hooks: {worker: {start: *x19}}}\n");
    let began = std::time::Instant::now();
    let said = Desk::with(&text).problems();
    assert!(said[0].contains("more than 10000 values"), "{said:?}");
    assert!(began.elapsed() < seconds(5));
}

#[test]
fn the_schema_has_each_key_with_its_default_and_what_it_is_for() {
    let schema = json_schema();
    for key in KEYS.iter().filter(|key| !key.path.contains(".backoff.")) {
        for start in [&schema, &schema["$defs"]["settings"]] {
            let mut place = start;
            for name in key.path.split('.') {
                assert_eq!(
                    place["additionalProperties"] == false,
                    place["$schema"].is_null()
                );
                assert!(place["patternProperties"]["^x-"].is_object());
                place = &place["properties"][name];
            }
            assert_eq!(place["description"], key.doc, "{}", key.path);
            let forms = place["anyOf"].as_array().unwrap().len();
            assert_eq!(forms, if key.scope == Scope::One { 1 } else { 2 });
            if key.kind != Kind::Backoff {
                let default = place["default"].to_string();
                assert_eq!(default.trim_matches('"'), key.default, "{}", key.path);
            }
        }
    }
    let group = &schema["$defs"]["settings"]["properties"]["job_worker"];
    assert!(group["properties"]["<<"].is_object());
    let backoff = &group["properties"]["backoff"]["anyOf"][0];
    assert_eq!(backoff["properties"]["initial"]["default"], "10s");
    assert_eq!(
        schema["properties"]["production"]["$ref"],
        "#/$defs/settings"
    );
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn endpoints_hear_of_what_they_name_and_of_all_where_they_name_nothing() {
    let text = "console:\n  webhooks:\n    - {name: a, url: \"https://a.example/x?y=1\", secret: \"${S}\"}\n    \
                - name: b\n      url: \"http://[::1]:8080\"\n      secret: [\"${NEW}\", \"${S}\"]\n      \
                events: [run.halted, run.dampened]\n      pipelines: P\n";
    let newer = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let config = Desk::with(text).var("S", SECRET).var("NEW", newer).config();
    let [a, b] = config.console.webhooks.as_slice() else {
        panic!("{:?}", config.console)
    };
    assert_eq!((a.url.host(), a.url.port_u16()), (Some("a.example"), None));
    assert_eq!(
        (a.interest.events.len(), a.interest.pipelines.len()),
        (4, 0)
    );
    assert_eq!(
        (b.url.host(), b.url.port_u16()),
        (Some("[::1]"), Some(8080))
    );
    assert_eq!(b.interest.pipelines, ["P"]);
    let lengths =
        |it: &Endpoint| -> Vec<usize> { it.secrets.iter().map(|it| it.expose().len()).collect() };
    assert_eq!((lengths(a), lengths(b)), (vec![24], vec![32, 24]));
    for secret in ["S", "NEW", "DUCTWORK_CONSOLE__WEBHOOKS"] {
        assert!(
            config.secret_variables().contains(&secret.to_owned()),
            "{secret}"
        );
    }
    assert!(!format!("{config:?}").contains("MfKQ9r"));
}

#[test]
fn an_endpoint_that_cannot_be_meant_is_refused_with_the_way_out() {
    let endpoint = |more: &str| format!("{{name: a, url: \"https://a/\", secret: {SECRET}{more}}}");
    let url = |url: &str| format!("{{name: a, url: \"{url}\", secret: {SECRET}}}");
    let many = vec![endpoint(""); 17].join(", ");
    for (items, part) in [
        ("{a: 1}".to_owned(), "takes a list of endpoints, not a map"),
        ("[a]".to_owned(), "is a map, not `a`"),
        (format!("[{many}]"), "takes at most 16 endpoints"),
        ("[{}]".to_owned(), "has no `name`"),
        (
            format!("[{{url: \"http://a\", secret: {SECRET}}}]"),
            "has no `name`",
        ),
        (format!("[{{name: a, secret: {SECRET}}}]"), "has no `url`"),
        (
            "[{name: a, url: \"http://a\"}]".to_owned(),
            "has no `secret`",
        ),
        (
            format!("[{}, {}]", endpoint(""), endpoint("")),
            "two endpoints are named `a`",
        ),
        (
            format!("[{}]", endpoint(", event: x")),
            "did you mean `events`?",
        ),
        (
            format!("[{}]", endpoint(", events: [run.halt]")),
            "did you mean `run.halted`?",
        ),
        (
            format!("[{}]", endpoint(", events: halted")),
            "did you mean `run.halted`?",
        ),
        (
            format!("[{}]", endpoint(", events: []")),
            "there is no event",
        ),
        (
            format!("[{}]", endpoint(", pipelines: []")),
            "the endpoint would receive nothing",
        ),
        (
            format!("[{}]", endpoint(", pipelines: [{a: 1}]")),
            "takes names of pipelines",
        ),
        (format!("[{}]", url("ftp://a/")), "begins neither with"),
        (
            format!("[{}]", url("a.example/x")),
            "the `url` of an endpoint",
        ),
        (format!("[{}]", url("https://")), "the `url` of an endpoint"),
        (format!("[{}]", url("https://u:p@a/")), "contains a user"),
        (format!("[{}]", url("https://a:0/")), "has an invalid port"),
        (
            format!("[{}]", url("https://a:99999/")),
            "the `url` of an endpoint",
        ),
        (
            format!("[{}]", url(&format!("https://a/{}", "x".repeat(2_000)))),
            "longer than 2000 bytes",
        ),
        (
            format!("[{}]", endpoint(", ca: [a]")),
            "is a path, not a list",
        ),
        (
            format!("[{{name: a, url: \"http://a\", ca: a.pem, secret: {SECRET}}}]"),
            "has no effect",
        ),
        (
            "[{name: \"a b\", url: \"http://a\", secret: x}]".to_owned(),
            "is a word, not",
        ),
        (
            "[{name: a, url: \"http://a\", secret: hunter2}]".to_owned(),
            "is not `whsec_` and 24 to 64 bytes",
        ),
        (
            "[{name: a, url: \"http://a\", secret: whsec_c2hvcnQ=}]".to_owned(),
            "is not `whsec_` and 24 to 64 bytes",
        ),
        (
            format!("[{{name: a, url: \"http://a\", secret: [{SECRET}, hunter2]}}]"),
            "is not `whsec_` and 24 to 64 bytes",
        ),
        (
            format!("[{{name: a, url: \"http://a\", secret: [{SECRET}, {SECRET}]}}]"),
            "contains one secret twice",
        ),
        (
            "[{name: a, url: \"http://a\", secret: []}]".to_owned(),
            "takes one secret, or a list of up to 3",
        ),
        (
            "[{name: a, url: \"http://a\", secret: [a, b, c, d]}]".to_owned(),
            "takes one secret, or a list of up to 3",
        ),
    ] {
        let desk = Desk::with(&format!("console: {{webhooks: {items}}}\n"));
        let said = desk.load_as(None, None).expect_err("problems").to_string();
        assert!(said.contains(part), "{items}: {said}");
        assert!(
            !said.contains("hunter2") && !said.contains("MfKQ9r"),
            "{said}"
        );
    }
    // Nor where each is on a line of its own.
    for secret in [
        format!("\n        - hunter2\n        - {SECRET}"),
        "\n        hunter2".to_owned(),
    ] {
        let text = format!(
            "console:\n  webhooks:\n    - name: a\n      url: \"http://a/\"\n      secret:{secret}\n"
        );
        let desk = Desk::with(&text);
        let said = desk.load_as(None, None).expect_err("problems").to_string();
        assert!(
            said.contains("is not `whsec_`") && said.contains("ductwork.yml:3:"),
            "{said}"
        );
        assert!(
            !said.contains("hunter2") && !said.contains("MfKQ9r"),
            "{said}"
        );
    }
}

#[test]
fn traces_are_sent_where_the_endpoint_says_with_headers_that_nothing_shows() {
    assert_eq!(Desk::with("").config().console.traces.endpoint, None);
    let text = "console:\n  traces:\n    endpoint: \"https://[::1]:4318/v1/traces\"\n    \
                headers: { authorization: \"Bearer ${T}\", X-Scope: a }\n    ca: keys/ca.pem\n";
    let config = Desk::with(text).var("T", "hunter2").config();
    let collector = config.console.traces.clone();
    let endpoint = collector.endpoint.expect("it is configured");
    assert_eq!(endpoint.path(), "/v1/traces");
    let headers = collector.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(
        headers,
        [("authorization", "Bearer hunter2"), ("x-scope", "a")]
    );
    assert_eq!(collector.ca, Some(config.base_dir.join("keys/ca.pem")));
    for secret in ["T", "DUCTWORK_CONSOLE__TRACES__HEADERS"] {
        assert!(config.secret_variables().contains(&secret.to_owned()));
    }
    assert!(!format!("{config:?}").contains("hunter2"));
    let url = "http://a:4318/v1/traces";
    let given = Desk::with("").var("DUCTWORK_CONSOLE__TRACES__ENDPOINT", url);
    let collector = given.config().console.traces;
    assert_eq!(
        collector.endpoint.map(|it| it.to_string()).as_deref(),
        Some(url)
    );
    assert!(collector.ca.is_none() && collector.headers.is_empty());
}

#[test]
fn a_collector_that_cannot_be_meant_is_refused_with_the_way_out() {
    let many: Vec<String> = (0..17).map(|n| format!("h{n}: x")).collect();
    for (settings, part) in [
        (
            "endpoint: collector:4318",
            "`console.traces.endpoint` begins neither with",
        ),
        ("endpoint: \"http://u:p@a/\"", "contains a user"),
        ("endpoint: [a]", "`console.traces.endpoint` is not a URL"),
        ("endpiont: a", "did you mean `endpoint`?"),
        ("headers: a=b", "takes a map of headers, not `a=b`"),
        ("headers: {\"a b\": c}", "this is not a valid header name"),
        (
            "headers: {Content-Type: c}",
            "`content-type` cannot be set here",
        ),
        (
            "headers: {a: \"${T}\"}",
            "the value of `a` is not a valid header value",
        ),
        ("headers: {a: }", "the value of `a` is not a valid"),
        (
            &format!("headers: {{{}}}", many.join(", ")),
            "takes at most 16 headers",
        ),
        ("ca: [a]", "`console.traces.ca` takes a path, not a list"),
    ] {
        let desk = Desk::with(&format!(
            "console: {{listen: \"127.0.0.1:0\", traces: {{{settings}}}}}\n"
        ));
        let desk = desk.var("T", "hunter2\u{1}x");
        let read = desk
            .load_as(None, None)
            .and_then(|config| config.complete());
        let said = read.expect_err(settings).to_string();
        assert!(said.contains(part), "{settings}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
