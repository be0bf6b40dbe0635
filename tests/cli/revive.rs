//! A halted run, and what the verbs say about it until it has continued.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Ended, Place};

/// Runs a pipeline until it halts; returns the output, and the run's id.
fn halted(place: &Place, pipeline: &str) -> (Ended, String) {
    let ended = place.run(["run", pipeline]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let first = ended
        .stderr
        .lines()
        .find(|line| line.ends_with("triggered"));
    let id = first.and_then(|line| line.split(' ').nth(1)).unwrap();
    let id = id.to_owned();
    (ended, id)
}

/// Works until nothing is left.
fn work(place: &Place) {
    let mut command = place.command();
    let ended = command
        .args(["start", "--until-idle"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

fn revived(ended: &Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.trim().to_owned()
}

#[test]
fn a_run_whose_output_fits_no_way_on_says_so_and_goes_on_once_the_step_is_fixed() {
    let place = Place::ready();
    place.write("names.json", "\"in\"");
    let text = "pipeline: List\n\
                steps: { Names: { command: [cat, names.json] }, Greet: { command: [cat] } }\n\
                flow: [{ start: Names }, { expand: Greet }]\n";
    place.write("pipelines/list.yml", text);
    let (ended, id) = halted(&place, "List");
    let said = "Names returned a string; `expand: Greet` needs a list or an object; it is `\"in\"`";
    let remedy = format!("fix Names, then: ductworkd revive {}", &id[id.len() - 8..]);
    assert!(ended.stderr.contains(said), "{ended:?}");
    assert!(ended.stderr.contains(&remedy), "{ended:?}");
    for verb in ["why", "show"] {
        let told = place.run([verb, &id]);
        told.fine();
        assert!(told.stdout.contains(said), "{told:?}");
        assert!(told.stdout.contains(&remedy), "{told:?}");
    }
    let json = place.run(["show", &id, "--json"]).json();
    assert_eq!(json["halts"][0]["explanation"], said);

    place.write("names.json", "[1,2]");
    let next = revived(place.run(["revive", &id, "--by", "carl"]).fine());
    let shown = place.run(["show", &next]);
    let told = format!("continues  {id}, by carl (command line)\n");
    assert!(shown.stdout.contains(&told), "{shown:?}");
    // A person who means to stop or to answer it means the run that continues it.
    let short = &next[next.len() - 8..];
    let refused = |verb: &str, state: &str, help: &str| {
        let refused = place.run([verb, &id]);
        let said = format!("has ended: it is halted, and was revived as {next}, which is {state}");
        refused.failed(1, &said);
        assert!(refused.stderr.contains(help), "{refused:?}");
    };
    for verb in ["cancel", "resume"] {
        let (other, does) = match verb {
            "cancel" => ("cancel", "cancels"),
            // It asks nothing now.
            _ => ("show", "shows"),
        };
        let help = format!("`ductworkd {other} {short}` {does} that run");
        refused(verb, "running", &help);
    }
    work(&place);
    for verb in ["cancel", "resume"] {
        let help = format!("`ductworkd show {short}` shows that run");
        refused(verb, "completed", &help);
    }
    let shown = place.run(["show", &id]);
    let revived_as = format!("it was revived: ductworkd show {}", &next[next.len() - 8..]);
    assert!(shown.fine().stdout.contains(&revived_as), "{shown:?}");
    let listed = place.run(["runs", "--status", "halted"]);
    let revived_as = format!("revived as {}", &next[next.len() - 8..]);
    assert!(listed.fine().stdout.contains(&revived_as), "{listed:?}");
    let listed = place.run(["runs", "--status", "halted", "--json"]).json();
    assert_eq!(listed[0]["revived_as"], serde_json::json!(next), "{listed}");
    let json = place.run(["show", &next, "--json"]).json();
    assert_eq!(
        (&json["status"], &json["output"]),
        (&"completed".into(), &serde_json::json!([1, 2]))
    );
    assert_eq!(json["halts"], serde_json::Value::Null);
    let over = place.run(["revive", &next]);
    over.failed(1, "completed: there is nothing to revive");
    assert!(over.stderr.contains("ductworkd trigger List\n"), "{over:?}");
    place.run(["audit"]).fine();
}

#[test]
fn a_question_that_nobody_answered_is_told_as_that_alone() {
    let place = Place::ready();
    let text = "pipeline: Ask\n\
                steps: { A: { command: [cat] } }\n\
                flow: [{ start: A }, { dampen: { prompt: 'Go on?', timeout: 1s, then: halt } }]\n";
    place.write("pipelines/ask.yml", text);
    let id = place.run(["trigger", "Ask", "1"]).fine().stdout.clone();
    let mut command = place.command();
    let mut daemon = command.arg("start").stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let told = loop {
        let told = place.run(["watch", id.trim()]);
        // It waits for a person until the time is over.
        if told.code != Some(3) {
            break told;
        }
        assert!(Instant::now() < until, "{told:?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    super::send(&daemon, nix::sys::signal::Signal::SIGTERM);
    daemon.wait().unwrap();
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.stderr.contains("  unanswered: nobody answered at "),
        "{told:?}"
    );
    for other in ["0 attempts", "no error was reported"] {
        assert!(!told.stderr.contains(other), "{told:?}");
    }
}

#[test]
fn a_revival_says_that_the_file_differs_and_goes_on_with_it_when_asked_to() {
    let place = Place::ready();
    let write = |steps: &[(&str, &str)]| {
        let commands: Vec<String> = steps
            .iter()
            .map(|(step, command)| format!("{step}: {{ command: [{command}], max_retry: 0 }}"))
            .collect();
        let chain: Vec<String> = steps[1..]
            .iter()
            .map(|(step, _)| format!(", {{ chain: {step} }}"))
            .collect();
        let text = format!(
            "pipeline: Two\nsteps: {{ {} }}\nflow: [{{ start: A }}{}]\n",
            commands.join(", "),
            chain.concat()
        );
        place.write("pipelines/two.yml", &text);
    };
    write(&[("A", "cat"), ("B", "'false'"), ("C", "cat")]);
    let (_, first) = halted(&place, "Two");
    write(&[("A", "cat"), ("B", "cat"), ("C", "cat")]);
    let told = place.run(["revive", &first]);
    let second = revived(&told);
    let note =
        "Two has changed since (the step `B` has changed). The new run uses the old definition.";
    assert!(told.stderr.contains(note), "{told:?}");
    assert!(
        told.stderr.contains(&format!(
            "ductworkd revive {} --latest",
            &second[second.len() - 8..]
        )),
        "{told:?}"
    );
    work(&place);

    write(&[("A", "cat"), ("C", "cat"), ("B", "cat")]);
    let refused = place.run(["revive", &second, "--latest"]);
    refused.failed(1, "`A` does not lead to `B` there as it did in the run");
    write(&[("A", "cat"), ("C", "cat")]);
    let refused = place.run(["revive", &second, "--latest"]);
    refused.failed(1, "it has no `B`");
    assert!(
        refused.stderr.contains(&format!(
            "`ductworkd revive {}`",
            &second[second.len() - 8..]
        )),
        "{refused:?}"
    );
    place.write("pipelines/two.yml", "pipeline: [");
    place.run(["revive", &second, "--latest"]).failed(2, "");

    write(&[("A", "cat"), ("B", "cat")]);
    let third = place.run(["revive", &second, "--latest", "--without-context", "--json"]);
    let third = third.fine().json()["run_id"].as_str().unwrap().to_owned();
    work(&place);
    let json = place.run(["show", &third, "--json"]).json();
    assert_eq!(
        (&json["status"], &json["output"]),
        (&"completed".into(), &serde_json::Value::Null)
    );
    let before = place.run(["show", &second, "--json"]).json();
    assert_eq!(json["definition_was"], before["definition"]);
    assert_eq!(before["definition_was"], serde_json::Value::Null);
    let shown = place.run(["show", &third]);
    assert!(
        shown.fine().stdout.contains(", with another definition ("),
        "{shown:?}"
    );
    let gone = place.run(["revive", &second, "--latest"]);
    gone.failed(1, &format!("was already revived as {third}"));
    // The refusal comes before a person is asked about the definition of a run that will not be
    // made.
    write(&[("A", "cat"), ("B", "cat"), ("C", "cat")]);
    let asked = super::typed(&place, &format!("revive {second}"), b"y\n");
    let seen = format!("{}{}", asked.stdout, asked.stderr);
    assert!(seen.contains("was already revived as"), "{asked:?}");
    assert!(!seen.contains("[y/N]"), "{asked:?}");
    place.run(["audit"]).fine();
}

#[test]
fn a_file_that_cannot_continue_a_run_is_no_remedy_for_it() {
    let place = Place::ready();
    let write = |steps: &[(&str, &str)]| {
        let command = |(step, command): &(&str, &str)| {
            format!("{step}: {{ command: [{command}], max_retry: 0 }}")
        };
        let commands: Vec<String> = steps.iter().map(command).collect();
        let chain = steps[1..].iter();
        let chain: String = chain
            .map(|(step, _)| format!(", {{ chain: {step} }}"))
            .collect();
        let text = format!(
            "pipeline: Two\nsteps: {{ {} }}\nflow: [{{ start: A }}{chain}]\n",
            commands.join(", ")
        );
        place.write("pipelines/two.yml", &text);
    };
    write(&[("A", "cat"), ("B", "'false'"), ("C", "cat")]);
    let (ended, first) = halted(&place, "Two");
    let may_help = "# add --latest if you edited the pipeline's file";
    assert!(ended.stderr.contains(may_help), "{ended:?}");
    let told = |verb: &str, run: &str| {
        let told = place.run([verb, run]);
        format!("{}{}", told.stdout, told.stderr)
    };
    write(&[("A", "cat"), ("B", "cat")]);
    for verb in ["why", "show", "watch"] {
        let told = told(verb, &first);
        assert!(told.contains(may_help), "{verb}: {told}");
    }
    write(&[("A", "cat"), ("C", "cat")]);
    let refused = "# not with --latest: the pipeline's file cannot continue this run (it has no `B`); undo that";
    for verb in ["why", "show", "watch"] {
        let told = told(verb, &first);
        assert!(told.contains(refused), "{verb}: {told}");
        assert!(!told.contains(may_help), "{verb}: {told}");
    }
    let anew =
        "ductworkd trigger Two    # a new run does all work again, with new idempotency keys";
    let latest = place.run(["revive", &first, "--latest"]);
    latest.failed(1, "it has no `B`");
    assert!(latest.stderr.contains(anew), "{latest:?}");
    // Nobody is asked whether to do what would be refused.
    let asked = super::typed(&place, &format!("revive {first}"), b"y\n");
    let seen = format!("{}{}", asked.stdout, asked.stderr);
    assert!(!seen.contains("[y/N]"), "{asked:?}");
    for told in [
        "the new one cannot continue it (it has no `B`): --latest would be refused",
        anew,
    ] {
        assert!(seen.contains(told), "{told}: {asked:?}");
    }
    assert!(!seen.contains("halts again, try"), "{asked:?}");
    // Nobody can tell whether a file with a mistake has changed the pipeline.
    write(&[("A", "cat"), ("B", "'false'")]);
    let (_, second) = halted(&place, "Two");
    place.write("pipelines/two.yml", "pipeline: Two\nsteps: [");
    for verb in ["why", "show", "watch"] {
        let told = told(verb, &second);
        let mend = "; --latest and a new run need the mistake in a pipeline's file fixed (";
        assert!(
            told.contains(may_help) && told.contains(mend),
            "{verb}: {told}"
        );
        assert!(told.contains("two.yml:2"), "{verb}: {told}");
    }
    std::fs::remove_file(place.path().join("pipelines/two.yml")).unwrap();
    let needs = "; --latest and a new run need a configuration that has this pipeline";
    for verb in ["why", "show", "watch"] {
        let told = told(verb, &second);
        assert!(told.contains(needs), "{verb}: {told}");
    }
    place.write("pipelines/two.yml", "pipeline: Two\nsteps: [");
    let revived = place.run(["revive", &second]);
    assert_eq!(revived.code, Some(0), "{revived:?}");
    let note =
        "note: the new run uses the old definition of Two: a pipeline's file has a mistake (";
    assert!(revived.stderr.contains(note), "{revived:?}");
}

/// A step's `timeout` is frozen with its run: that the file has none any more is no remedy.
#[test]
fn a_repeated_key_explains_its_run_by_the_definition_with_which_that_run_began() {
    let place = Place::ready();
    let write = |timeout: &str| {
        let step = format!("{{ command: [sleep, '60'], max_retry: 0{timeout} }}");
        let text =
            format!("pipeline: Slow\nsteps: {{ Wait: {step} }}\nflow: [{{ start: Wait }}]\n");
        place.write("pipelines/slow.yml", &text);
    };
    write(", timeout: 1s");
    let keyed = |verb: &[&str]| place.run([verb, &["Slow", "7", "--key", "k"]].concat());
    assert_eq!(keyed(&["run"]).code, Some(1));
    write("");
    for verb in [&["run"][..], &["trigger"], &["trigger", "--wait"]] {
        let told = keyed(verb);
        let remedy = " --latest    # without --latest if you made the step faster\n";
        assert!(told.stderr.contains(remedy), "{verb:?}: {told:?}");
    }
}

#[test]
fn a_repeated_key_tells_how_its_run_is_doing_and_waits_for_the_run_that_continues_it() {
    let place = Place::ready();
    let text = "pipeline: Picky\n\
                steps: { Parse: { command: [sh, -c, 'test -e fixed && cat'], max_retry: 0 } }\n\
                flow: [{ start: Parse }]\n";
    place.write("pipelines/picky.yml", text);
    let keyed = |verb: &[&str], more: &[&str]| {
        place.run([verb, &["Picky", "7", "--key", "k"], more].concat())
    };
    let first = keyed(&["trigger"], &["--delay", "1h"])
        .fine()
        .stdout
        .trim()
        .to_owned();
    let told = |end: &str| {
        let told = keyed(&["trigger"], &[]);
        assert_eq!(
            (told.code, told.stdout.trim()),
            (Some(0), &*first),
            "{told:?}"
        );
        assert!(told.stderr.contains(end), "{end}: {told:?}");
        told.stderr
    };
    let due = place.run(["runs", "--json"]).json()[0]["due_at"].clone();
    let json = keyed(&["trigger"], &["--json"]).json();
    assert_eq!(
        (&json["due_at"], &json["status"]),
        (&due, &"in_progress".into())
    );
    let other = place.run([
        "trigger", "Picky", "7", "--key", "d", "--delay", "1h", "--json",
    ]);
    assert!(
        other.json()["due_at"].is_string() && other.json().get("status").is_none(),
        "{other:?}"
    );
    let note = "note: no run was started: this key belongs to a run that was triggered before; ";
    told(&format!("{note}it begins in "));
    let begin = "UPDATE ductwork_availabilities SET due_at = 0";
    let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
    conn.execute(begin, []).unwrap();
    told(&format!("{note}it is running\n"));
    let halted = keyed(&["run"], &[]);
    assert_eq!(halted.code, Some(1), "{halted:?}");
    let short = |run: &str| run[run.len() - 8..].to_owned();
    let said = told(&format!("{note}it halted "));
    assert!(
        said.contains(" ago, and keeps the key: revive it, or give another key\n"),
        "{said}"
    );
    let remedy = format!(
        "remedy: fix Parse, then: ductworkd revive {}",
        short(&first)
    );
    assert!(said.contains(&remedy), "{said}");
    let json = keyed(&["trigger"], &["--json"]).json();
    assert_eq!(
        (&json["status"], json.get("due_at")),
        (&"halted".into(), None)
    );
    // The same key would lead to the same run again, and to each that continues it.
    let anew = "or trigger it again with another input and another key\n";
    assert!(said.ends_with(anew), "{said}");

    let second = revived(&place.run(["revive", &first]));
    told(&format!(
        "{note}it halted, and was revived as {second}, which is running\n"
    ));
    let again = keyed(&["run"], &[]);
    assert_eq!(again.code, Some(1), "it halts again: {again:?}");
    assert!(
        again.stderr.contains(&format!("revive {}", short(&second))),
        "{again:?}"
    );
    for verb in ["why", "show", "watch"] {
        let ended = place.run([verb, &second]);
        let seen = format!("{}{}", ended.stdout, ended.stderr);
        assert!(seen.contains(anew), "{verb}: {ended:?}");
    }
    place.write("fixed", "");
    let third = revived(&place.run(["revive", &second]));
    for verb in [&["run"][..], &["trigger", "--wait"]] {
        let done = keyed(verb, &[]);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), "7\n"),
            "{done:?}"
        );
        let followed = format!("; it halted, and its outcome is that of the run {third}, which");
        assert!(done.stderr.contains(&followed), "{done:?}");
        let json = keyed(verb, &["--json"]).json();
        assert_eq!(json["run_id"], first, "{json}");
        assert_eq!(json["revived_as"], third, "{json}");
        assert_eq!(
            (&json["status"], &json["output"]),
            (&"completed".into(), &7.into())
        );
    }
    told(&format!(
        "it halted, and was revived as {third}, which completed "
    ));
    // `why` leads to the end of the line, too.
    let why = place.run(["why", &first]).fine().stdout.clone();
    let (next, last) = (short(&second), short(&third));
    let line = why.lines().find(|line| line.contains("it was revived as"));
    let line = line.unwrap_or_else(|| panic!("{why}"));
    assert!(
        line.contains(&next) && line.contains(", and last as ") && line.contains(&last),
        "{why}"
    );
    assert!(
        why.contains(&format!("`ductworkd why {last}` explains")),
        "{why}"
    );
    for verb in ["show", "watch"] {
        let seen = place.run([verb, &first]);
        let seen = format!("{}{}", seen.stdout, seen.stderr);
        assert!(
            seen.contains(&format!("ductworkd {verb} {last}\n")),
            "{seen}"
        );
    }
    let cancelled = place.run(["trigger", "Picky", "7", "--key", "c"]);
    let cancelled = cancelled.fine().stdout.trim().to_owned();
    place.run(["cancel", &cancelled]).fine();
    let told = place.run(["trigger", "Picky", "7", "--key", "c"]);
    assert!(told.stderr.contains("; it was cancelled "), "{told:?}");
    assert!(
        told.stderr.contains("give another key for a new run"),
        "{told:?}"
    );
}

#[test]
fn all_places_to_fix_are_counted_in_the_remedy_by_every_verb() {
    let place = Place::ready();
    let steps: Vec<String> = ('A'..='H')
        .map(|step| format!("{step}{step}: {{ command: ['false'], max_retry: 0 }}"))
        .collect();
    let paths: Vec<String> = ('A'..='H').map(|step| format!("{step}{step}")).collect();
    let text = format!(
        "pipeline: Eight\nsteps: {{ Begin: {{ command: [cat] }}, {} }}\nflow: [{{ start: Begin }}, {{ divide: [{}] }}]\n",
        steps.join(", "),
        paths.join(", ")
    );
    place.write("pipelines/eight.yml", &text);
    let (ended, id) = halted(&place, "Eight");
    let remedy = " and 5 more, then: ductworkd revive ";
    assert!(ended.stderr.contains(remedy), "{ended:?}");
    for verb in ["why", "show", "watch"] {
        let told = place.run([verb, &id]);
        let said = format!("{}{}", told.stdout, told.stderr);
        assert!(said.contains(remedy), "{verb}: {said}");
    }
}

/// A step that says it in its error object has refused just as well; at its last attempt nobody can tell.
#[test]
fn a_step_that_says_that_trying_again_is_useless_has_refused() {
    let place = Place::ready();
    for (retries, reason) in [(3, "step_refused"), (0, "job_retries_exhausted")] {
        place.write(
            "pipelines/says.yml",
            &format!(
                "pipeline: Says\n\
                 steps:\n  \
                   Never: {{ command: [sh, -c, 'echo \"{{\\\"error\\\":{{\\\"retryable\\\":false}}}}\"; exit 1'], max_retry: {retries} }}\n\
                 flow: [{{ start: Never }}]\n"
            ),
        );
        let refused = place.run(["run", "Says", "--json"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let halt = &refused.json()["halts"][0];
        assert_eq!(halt["reason"], reason, "{refused:?}");
        assert_eq!(halt["node"], "Never", "{refused:?}");
        let runs = place.run(["runs", "--status", "halted", "--json"]).json();
        assert_eq!(runs[0]["halt_reasons"], serde_json::json!([reason]));
        let why = place.run(["why", runs[0]["id"].as_str().unwrap()]);
        assert!(why.fine().stdout.contains(reason), "{why:?}");
    }
}

#[test]
fn a_step_that_waits_to_be_tried_again_and_one_that_refused_say_what_they_said_last() {
    let place = Place::ready();
    let text = "pipeline: Fails\n\
                steps:\n  \
                  Later: { command: [sh, -c, 'echo no such host >&2; exit 3'], backoff: { initial: 1h } }\n  \
                  Never: { command: [sh, -c, 'echo bad input >&2; exit 65'] }\n\
                flow: [{ start: Later }]\n";
    place.write("pipelines/fails.yml", &text.replace("  Never", "  # Never"));
    let other = text
        .replace("Fails", "Refuses")
        .replace("start: Later", "start: Never");
    place.write(
        "pipelines/refuses.yml",
        &other.replace("  Later", "  # Later"),
    );
    let refused = place.run(["run", "Refuses"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let runs = place.run(["runs", "--status", "halted", "--json"]).json();
    assert_eq!(runs[0]["halt_reasons"], serde_json::json!(["step_refused"]));

    let triggered = place.run(["trigger", "Fails"]);
    let id = triggered.fine().stdout.trim().to_owned();
    let mut daemon = place.command().arg("start").spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let fact = loop {
        let why = place.run(["why", &id, "--json"]).json();
        if why["cause"] == "not_due" || Instant::now() > until {
            break why["fact"].as_str().unwrap().to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    super::send(&daemon, nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().unwrap().success());
    assert!(
        fact.starts_with("Later waits to retry: attempt 2 is due in "),
        "{fact}"
    );
    assert!(fact.ends_with("; attempt 1 failed: no such host"), "{fact}");
}
