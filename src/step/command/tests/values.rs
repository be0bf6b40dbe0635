//! Inputs and outputs.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[tokio::test]
async fn the_input_comes_by_stdin_and_the_output_by_stdout() {
    let stage = Stage::new(r#"{"n": 1e400, "s": "\u0000\ud83d\ude00"}"#);
    assert_eq!(
        value(stage.run(&["cat"]).await),
        r#"{"n": 1e400, "s": "\u0000\ud83d\ude00"}"#
    );
    assert_eq!(
        value(
            stage
                .sh("od -An -c | tail -n 1 | grep -q '\\\\n' && echo 1")
                .await
        ),
        "1"
    );
}

#[tokio::test]
async fn a_large_input_and_a_large_output_do_not_wait_for_each_other() {
    let text = format!("\"{}\"", "x".repeat(3 * 1024 * 1024));
    assert_eq!(value(Stage::new(&text).run(&["cat"]).await), text);
}

#[tokio::test]
async fn no_output_is_null() {
    for script in [
        "true",
        "echo",
        "exec >&-",
        "printf ' \\n\\t'",
        "exec >&- 2>&- <&-",
    ] {
        assert_eq!(value(Stage::new("1").sh(script).await), "null", "{script}");
    }
}

#[tokio::test]
async fn an_output_without_a_newline_is_whole() {
    assert_eq!(value(Stage::new("1").sh("printf '[1,2]'").await), "[1,2]");
}

#[tokio::test]
async fn input_is_read_to_its_end_after_the_outputs_are_closed() {
    let text = format!("\"{}\"", "x".repeat(1024 * 1024));
    let stage = Stage::new(&text);
    let outcome = stage.sh("exec >&- 2>&-; cat > got").await;
    assert_eq!(value(outcome), "null");
    assert_eq!(
        std::fs::read_to_string(stage.path("got")).unwrap(),
        text + "\n"
    );
}

#[tokio::test]
async fn a_step_need_not_read_its_input() {
    let text = format!("\"{}\"", "x".repeat(1024 * 1024));
    for script in ["exec <&-; echo 1", "echo 1", "exec <&-; sleep 0.1; echo 1"] {
        assert_eq!(value(Stage::new(&text).sh(script).await), "1", "{script}");
    }
}

#[tokio::test]
async fn the_output_file_wins_over_chatter_and_is_removed() {
    let stage = Stage::new("1");
    let script = r#"echo chatter; test ! -s "$DUCTWORK_OUTPUT" || exit 1
        stat -c '%a' "$DUCTWORK_OUTPUT" "${DUCTWORK_OUTPUT%/*}" | tr '\n' ' ' > modes
        echo "$DUCTWORK_OUTPUT" > where; echo '"kept"' > "$DUCTWORK_OUTPUT""#;
    assert_eq!(value(stage.sh(script).await), r#""kept""#);
    assert_eq!(
        std::fs::read_to_string(stage.path("modes")).unwrap(),
        "600 700 "
    );
    let place = std::fs::read_to_string(stage.path("where")).unwrap();
    assert!(!Path::new(place.trim()).exists());
    assert!(!Path::new(place.trim()).parent().unwrap().exists());
}

#[tokio::test]
async fn an_output_file_that_is_no_file_any_more_wedges_nothing() {
    let stage = Stage::new("1");
    let outcome = stage
        .sh(r#"rm "$DUCTWORK_OUTPUT"; mkfifo "$DUCTWORK_OUTPUT""#)
        .await;
    assert_eq!(error(outcome).class, "output_invalid");
    assert_eq!(
        value(stage.sh(r#"rm "$DUCTWORK_OUTPUT"; echo 2"#).await),
        "2"
    );
    let outcome = stage.sh(r#"ln -sf /etc/passwd "$DUCTWORK_OUTPUT""#).await;
    assert_eq!(error(outcome).class, "output_invalid");
}

#[tokio::test]
async fn an_output_that_is_not_json_is_an_error_that_says_what_and_where() {
    // The advice to print only the value is given only where there may be other text.
    for (script, part, among_text) in [
        (
            "print('hello')",
            "expected a value, or a text in double quotes at line 1, column 1",
            true,
        ),
        ("print('NaN')", "`NaN` is not JSON", false),
        (
            "print('{}\\n{}')",
            "more text follows the value at line 2, column 1",
            true,
        ),
        ("print('\\ufeff{}')", "byte order mark", false),
        ("print('\"\\0\"')", "control character", false),
        (
            "import sys; sys.stdout.buffer.write(b'\"abc\\xff\"')",
            "not UTF-8 at byte 4",
            false,
        ),
        (
            "print('[' * 129 + ']' * 129)",
            "nests deeper than 128",
            false,
        ),
        ("print('[' * 1000000)", "nests deeper than 128", false),
    ] {
        let stage = Stage::new("1").env("PYTHONIOENCODING", "utf-8");
        let error = error(stage.python(script).await);
        assert_eq!(
            (error.class.as_str(), error.retryable),
            ("output_invalid", true)
        );
        assert!(error.message.contains(part), "{script}: {}", error.message);
        let advised = error.message.contains("$DUCTWORK_OUTPUT");
        assert_eq!(advised, among_text, "{script}: {}", error.message);
    }
    let deep = Stage::new("1").python("print('[' * 128 + ']' * 128)").await;
    assert_eq!(value(deep).len(), 256);
}

/// Text for people is not the output, however much it is, and neither is it a reason to end the step.
#[tokio::test]
async fn a_step_may_print_more_than_the_limit_when_its_output_is_in_the_file() {
    let stage = Stage::new("1").max_payload(1000);
    let chatty = "seq 1000; echo 7 > $DUCTWORK_OUTPUT; seq 1000";
    assert_eq!(value(stage.sh(chatty).await), "7");
    let report = r#"{"error": {"message": "no", "retryable": false}}"#;
    let fails = format!("seq 1000; echo '{report}' > $DUCTWORK_OUTPUT; exit 3");
    let error = error(stage.sh(&fails).await);
    assert_eq!((error.message.as_str(), error.retryable), ("no", false));
}

#[tokio::test]
async fn an_output_over_the_limit_is_refused_and_its_writer_ended() {
    let stage = Stage::new("1")
        .max_payload(1000)
        .grace(Duration::from_millis(300));
    for script in [
        "head -c 64000000 /dev/zero | tr '\\0' 1",
        "yes",
        "trap '' TERM PIPE; while :; do echo 1234567890; done",
        "printf '1%01000d' 1",
        "printf '1%01000d' 1 > $DUCTWORK_OUTPUT",
        // Cut off at the limit, it would be another number.
        "printf '%1001d%02d' 1 2",
        "printf '%1001d%02d' 1 2 > $DUCTWORK_OUTPUT",
    ] {
        let error = error(stage.sh(script).await);
        assert_eq!(error.class, "output_too_large", "{script}");
        assert!(
            error.message.contains("1000 bytes (max_payload)"),
            "{}",
            error.message
        );
    }
    for script in [
        "printf '1%0999d' 1",
        "printf '1%0999d\\r\\n' 1",
        "printf '1%0999d\\n' 1 > $DUCTWORK_OUTPUT",
    ] {
        assert_eq!(value(stage.sh(script).await).len(), 1000, "{script}");
    }
    let most = format!("1{}", "0".repeat(999));
    let stage = Stage::new(&most).max_payload(1000);
    assert_eq!(value(stage.sh("cat").await), most);
}

/// Meanwhile the other work of the runtime's one thread goes on, beats among it.
#[tokio::test]
async fn a_large_output_is_read_on_a_thread_of_its_own() {
    let seen = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let looks = {
        let (seen, over) = (Arc::clone(&seen), Arc::clone(&over));
        move || {
            while !over.load(Ordering::SeqCst) {
                let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
                let names = threads.map(|it| std::fs::read_to_string(it.path().join("comm")));
                let found = names.flatten().any(|name| name.trim() == ASIDE);
                seen.fetch_or(found, Ordering::SeqCst);
            }
        }
    };
    let looking = std::thread::spawn(looks);
    let stage = Stage::new("1").max_payload(64 << 20);
    // Other tests of the same process read large outputs as well.
    let alone = std::env::var_os("NEXTEST").is_some();
    // As long as it takes for somebody to see the thread.
    let large = "head -c 16000000 /dev/zero | tr '\\0' 1";
    for (script, aside) in [
        ("echo 1".to_owned(), false),
        ("printf '1%0262143d'".to_owned(), false),
        (large.to_owned(), true),
        (format!("{large} > $DUCTWORK_OUTPUT"), true),
        (format!("{large} > made; mv made $DUCTWORK_OUTPUT"), true),
    ] {
        seen.store(false, Ordering::SeqCst);
        value(stage.sh(&script).await);
        if aside || alone {
            assert_eq!(seen.load(Ordering::SeqCst), aside, "{script}");
        }
    }
    over.store(true, Ordering::SeqCst);
    looking.join().unwrap();
}

#[tokio::test]
async fn work_on_a_thread_of_its_own_that_panics_is_no_panic_of_ours() {
    assert_eq!(aside(|| 7).await, Some(7));
    assert_eq!(aside(|| -> i32 { panic!("on purpose") }).await, None);
}

#[tokio::test]
async fn a_large_error_report_is_read_as_a_small_one() {
    let script = r#"printf '{"error": {"type": "T", "message": "%0300000d"}}' 1; exit 1"#;
    assert_eq!(error(Stage::new("1").sh(script).await).class, "T");
}
