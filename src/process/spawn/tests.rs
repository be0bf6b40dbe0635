//! Real children: born, signalled, reaped.

use super::super::testing::{Half, argv, eventually, lives, part, place, said, say};
use super::*;

const ME: &str = "process::spawn::tests";

fn me(test: &str) -> String {
    format!("{ME}::{test}")
}

#[test]
fn an_error_names_the_system_call_and_the_remedy() {
    let test = me("an_error_names_the_system_call_and_the_remedy");
    if part().is_some() {
        use nix::sys::resource::{Resource, setrlimit};
        setrlimit(Resource::RLIMIT_NOFILE, 0, 0).unwrap();
        let error = spawn(&argv(&test), &[], None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "open /dev/null: Too many open files (os error 24)"
        );
        assert!(remedy(&error).unwrap().contains("LimitNOFILE"));
        return;
    }
    let place = tempfile::tempdir().unwrap();
    Half::start(&test, "child", place.path(), &[]).succeeded();
    let of = |call, errno| remedy(&during(call)(io::Error::from_raw_os_error(errno)));
    assert!(of(EXEC, libc::ENOENT).unwrap().starts_with("mount /proc"));
    assert!(of("pidfd_open", libc::ENOSYS).unwrap().contains("seccomp"));
    assert!(of("fork", libc::ENFILE).unwrap().contains("fs.file-max"));
    assert_eq!(of("fork", libc::EINVAL), None);
    assert_eq!(remedy(&io::Error::other("on purpose")), None);
}

#[test]
fn the_word_of_a_child_that_did_not_become_the_daemon_names_the_system_call() {
    for call in InChild::ALL {
        let (from_child, to_parent) = nix::unistd::pipe().unwrap();
        let words = [libc::EPERM, call as i32].map(i32::to_ne_bytes);
        nix::unistd::write(&to_parent, words.as_flattened()).unwrap();
        let error = read_error(&from_child).unwrap_err();
        let said = format!("{}: Operation not permitted (os error 1)", call.name());
        assert_eq!(error.to_string(), said);
    }
    let (from_child, _) = nix::unistd::pipe().unwrap();
    assert!(read_error(&from_child).is_ok(), "it has closed its end");
}

#[test]
fn a_child_is_born_in_its_own_group_with_blocked_signals_and_nothing_of_ours() {
    let test = me("a_child_is_born_in_its_own_group_with_blocked_signals_and_nothing_of_ours");
    if part().is_some() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .collect();
        let inherited = open
            .iter()
            .any(|path| path.to_string_lossy().contains("leak"));
        let stdin = std::fs::read_link("/proc/self/fd/0").unwrap();
        let blocked = SigSet::thread_get_mask().unwrap();
        assert!(control_is_blocked(&blocked), "{blocked:?}");
        assert!(!blocked.contains(Signal::SIGCHLD));
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:\t"));
        let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
        // The C library keeps two numbers for itself.
        let ignored = ignored & !(0b11 << 31);
        assert_eq!(ignored, 1 << (libc::SIGPIPE - 1), "{status}");
        assert_eq!(nix::unistd::getpgrp(), nix::unistd::getpid());
        assert!(!inherited, "{open:?}");
        assert_eq!(stdin.to_str(), Some("/dev/null"));
        assert_eq!(std::env::var("DUCTWORK_TEST_SET").as_deref(), Ok("it=is"));
        assert!(std::env::var_os("DUCTWORK_TEST_PLACE").is_some());
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_none());
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // A descriptor that is inheritable on purpose, as one of a C library would be.
    let leak = std::fs::File::create(place.path().join("leak")).unwrap();
    nix::fcntl::fcntl(
        &leak,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .unwrap();
    let environment = [
        ("DUCTWORK_TEST_PART", Some("child")),
        ("DUCTWORK_TEST_PLACE", place.path().to_str()),
        ("DUCTWORK_TEST_SET", Some("it=is")),
        ("CARGO_MANIFEST_DIR", None),
    ]
    .map(|(name, value)| (name.into(), value.map(OsString::from)));
    let child = spawn(&argv(&test), &environment, None).unwrap();
    let (_, status) = eventually("its end", || wait_for(child.pid()).unwrap());
    assert!(status.success(), "{status}");
    // The thread that was blocked for the fork is unblocked again.
    let mask = SigSet::thread_get_mask().unwrap();
    assert!(!mask.contains(Signal::SIGTERM));
}

fn control_is_blocked(mask: &SigSet) -> bool {
    signal::control_signals()
        .iter()
        .all(|signal| mask.contains(signal))
}

#[test]
fn an_exec_that_fails_is_an_error_and_leaves_no_zombie() {
    // An argument beyond what the kernel takes.
    let error = spawn(&[OsString::from("x".repeat(4 << 20))], &[], None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ArgumentListTooLong, "{error}");
    assert!(
        error.to_string().starts_with("exec /proc/self/exe: "),
        "{error}"
    );
    let error = spawn(&[OsString::from("a\0b")], &[], None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_signal_to_a_dead_child_is_no_error() {
    let test = me("a_signal_to_a_dead_child_is_no_error");
    if part().is_some() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut half = Half::start(&test, "ends", place.path(), &[]);
    half.succeeded();
    half.process.send(Signal::SIGTERM).unwrap();
}

#[test]
fn children_die_with_their_parent() {
    let test = me("children_die_with_their_parent");
    match part().as_deref() {
        Some("parent") => {
            let half = Half::start(&test, "child", &place(), &[]);
            say("child", &half.pid().to_string());
            loop {
                std::thread::park();
            }
        }
        Some("child") => {
            let parent = std::os::unix::process::parent_id() as Pid;
            parent_watch(parent).unwrap();
            assert!(parent_watch(parent + 1).is_err());
            // SIGTERM is blocked, so it ends only a process that looks for it.
            assert_eq!(signal::control_signals().wait().unwrap(), Signal::SIGTERM);
            say("told", "");
        }
        _ => {
            let place = tempfile::tempdir().unwrap();
            let parent = Half::start(&test, "parent", place.path(), &[]);
            let child: Pid = said(place.path(), "child").parse().unwrap();
            drop(parent);
            said(place.path(), "told");
            eventually("the child ends", || (!lives(child)).then_some(()));
        }
    }
}

#[test]
fn wait_any_tells_children_from_adopted_ones_and_spares_those_of_others() {
    let test = me("wait_any_tells_children_from_adopted_ones_and_spares_those_of_others");
    match part().as_deref() {
        Some("parent") => {
            become_subreaper().unwrap();
            assert!(wait_any().unwrap().is_none());

            // The spared child dies first, so that the look shows it, and is still not reaped.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let _guard = runtime.enter();
            let mut command = tokio::process::Command::new("sh");
            let (mut hook, spared) = spawn_spared(command.args(["-c", "exit 7"])).unwrap();
            let hook_pid = hook.id().unwrap() as Pid;
            eventually("the hook ends", || (!lives(hook_pid)).then_some(()));
            assert!(is_spared(hook_pid));
            assert!(wait_any().unwrap().is_none());

            let child = Half::start(&test, "child", &place(), &[]);
            let mut ended = vec![];
            eventually("both end", || {
                ended.extend(wait_any().unwrap());
                (ended.len() == 2).then_some(())
            });
            let grandchild: Pid = said(&place(), "grandchild").trim().parse().unwrap();
            let of = |pid| ended.iter().find(|(other, _)| *other == pid).unwrap().1;
            assert_eq!(of(child.pid()).code(), Some(0));
            assert_eq!(of(grandchild).code(), Some(5));
            std::mem::forget(child);

            let status = runtime.block_on(hook.wait()).unwrap();
            assert_eq!(status.code(), Some(7));
            drop(spared);
            assert!(!is_spared(hook_pid));
        }
        Some("child") => {
            // It ends before its own child, which is then adopted.
            let script =
                "( sh -c 'echo $PPID' > $0/.g; mv $0/.g $0/grandchild; sleep 0.2; exit 5 ) &";
            let status = std::process::Command::new("sh")
                .args(["-c", script])
                .arg(place())
                .status()
                .unwrap();
            assert!(status.success());
        }
        _ => {
            let place = tempfile::tempdir().unwrap();
            Half::start(&test, "parent", place.path(), &[]).succeeded();
        }
    }
}
