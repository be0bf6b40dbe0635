//! The roster's tables, and random lives of a roster.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    reaper_timeout: Duration::from_secs(30),
    shutdown_timeout: Duration::from_secs(20),
};
const SLOT: SlotId = SlotId(0);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn worker(pipeline: &str) -> ChildKind {
    ChildKind::Worker {
        pipeline: pipeline.to_owned(),
    }
}

fn order_spawn() -> Order {
    Order::Spawn {
        slot: SLOT,
        kind: ChildKind::Advancer,
    }
}

fn order_recover(pid: Pid, cause: Cause) -> Order {
    Order::Recover {
        slot: SLOT,
        pid,
        cause,
    }
}

fn to(pid: Pid, word: Signal) -> Order {
    signal(SLOT, pid, word)
}

fn beat(pid: Pid, age: Option<Duration>, at: Duration) -> Event {
    Event::Heartbeat {
        slot: SLOT,
        pid,
        age,
        at,
    }
}

fn spawned(pid: Pid, at: Duration) -> Event {
    Event::Spawned {
        slot: SLOT,
        pid,
        at,
    }
}

fn seen(pid: Pid, frozen: bool, at: Duration) -> Event {
    Event::Seen {
        slot: SLOT,
        pid,
        frozen,
        at,
    }
}

fn stop(at: Duration) -> Event {
    Event::Stop {
        at,
        immediate: false,
    }
}

/// One advancer with pid 10, spawned at 0 and not registered.
fn starting() -> Roster {
    let mut roster = Roster::new(vec![ChildKind::Advancer], LIMITS);
    assert_eq!(roster.handle(Event::Tick { at: s(0) }), vec![order_spawn()]);
    assert_eq!(roster.handle(spawned(10, s(0))), vec![]);
    roster
}

/// The same, registered at 1 s.
fn up() -> Roster {
    let mut roster = starting();
    assert_eq!(roster.handle(beat(10, Some(s(0)), s(1))), vec![]);
    assert!(roster.is_ready());
    roster
}

fn standing(roster: &Roster) -> Option<Standing> {
    roster.children().next().map(|child| child.standing)
}

#[test]
fn an_exit_is_acted_on_at_once() {
    assert_eq!(
        up().handle(Event::Exited { pid: 10, at: s(2) }),
        vec![order_recover(10, Cause::Crash), order_spawn()]
    );
}

#[test]
fn a_child_that_dies_before_it_registers_is_restarted_as_well() {
    assert_eq!(
        starting().handle(Event::Exited { pid: 10, at: ms(5) }),
        vec![order_recover(10, Cause::Crash), order_spawn()]
    );
}

#[test]
fn replacements_come_ever_later_and_a_crash_loop_is_reported_from_the_fifth_death() {
    let mut roster = starting();
    let mut at = s(0);
    let mut waits = vec![];
    let mut reports = vec![];
    for death in 1..=13u32 {
        let pid = roster.children().next().unwrap().pid.unwrap();
        let mut orders = roster.handle(Event::Exited { pid, at });
        let mut waited = Duration::ZERO;
        for order in &orders {
            if let Order::ReportCrashLoop {
                deaths, retry_in, ..
            } = order
            {
                reports.push((*deaths, *retry_in));
            }
        }
        if !orders.contains(&order_spawn()) {
            let due = roster.next_deadline().expect("a replacement is due");
            waited = due - at;
            assert_eq!(roster.handle(Event::Tick { at: due - ms(1) }), vec![]);
            at = due;
            orders = roster.handle(Event::Tick { at });
            assert_eq!(orders, vec![order_spawn()]);
        }
        waits.push(waited.as_millis());
        assert_eq!(roster.handle(spawned(100 + death as Pid, at)), vec![]);
    }
    assert_eq!(
        waits,
        [
            0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000, 30_000
        ]
    );
    assert_eq!(reports[0], (5, ms(800)));
    assert_eq!(reports.len(), 9);
}

#[test]
fn a_healthy_minute_ends_the_count() {
    for (lived, orders_spawn_now) in [(s(59), false), (s(60), true)] {
        let mut roster = starting();
        let _ = roster.handle(Event::Exited { pid: 10, at: s(0) });
        let _ = roster.handle(spawned(11, s(0)));
        let _ = roster.handle(beat(11, Some(s(0)), s(1)));
        let orders = roster.handle(Event::Exited {
            pid: 11,
            at: s(1) + lived,
        });
        assert_eq!(
            orders.contains(&order_spawn()),
            orders_spawn_now,
            "{lived:?}"
        );
    }
}

#[test]
fn a_minute_without_having_registered_is_not_healthy() {
    let mut roster = starting();
    let _ = roster.handle(Event::DatabaseLost);
    let _ = roster.handle(Event::Exited { pid: 10, at: s(90) });
    let _ = roster.handle(spawned(11, s(90)));
    let orders = roster.handle(Event::Exited {
        pid: 11,
        at: s(200),
    });
    assert_eq!(orders, vec![order_recover(11, Cause::Crash)]);
}

#[test]
fn a_stale_heartbeat_kills_and_the_replacement_waits_for_the_exit() {
    let mut roster = up();
    let asks = vec![to(10, Signal::SIGTTOU)];
    assert_eq!(roster.handle(beat(10, Some(s(25)), s(40))), asks);
    assert_eq!(
        roster.handle(beat(10, Some(s(25) + ms(1)), s(41))),
        vec![to(10, Signal::SIGKILL)]
    );
    // S6: it is killed once, and nobody takes its place while it lives.
    assert_eq!(roster.handle(beat(10, Some(s(29)), s(44))), vec![]);
    assert_eq!(roster.handle(Event::Tick { at: s(45) }), vec![]);
    assert_eq!(
        roster.handle(Event::Exited { pid: 10, at: s(45) }),
        vec![order_recover(10, Cause::Crash), order_spawn()]
    );
}

#[test]
fn a_child_that_ends_because_the_database_keeps_it_out_is_released() {
    let mut roster = up();
    assert_eq!(roster.handle(beat(10, Some(s(20)), s(30))), vec![]);
    let asks = vec![to(10, Signal::SIGTTOU)];
    assert_eq!(roster.handle(beat(10, Some(s(20) + ms(1)), s(31))), asks);
    assert_eq!(roster.handle(beat(10, Some(s(22)), s(32))), asks);
    assert_eq!(
        roster.handle(Event::GaveUp { pid: 10, at: s(32) }),
        vec![order_recover(10, Cause::Stopped), order_spawn()]
    );
}

#[test]
fn a_child_whose_silence_is_seen_late_is_asked_before_it_is_killed() {
    let mut roster = up();
    let asks = vec![to(10, Signal::SIGTTOU)];
    assert_eq!(roster.handle(beat(10, Some(s(26)), s(36))), asks);
    assert_eq!(roster.handle(beat(10, Some(s(26)), s(36) + ms(900))), asks);
    let kills = vec![to(10, Signal::SIGKILL)];
    assert_eq!(roster.handle(beat(10, Some(s(27)), s(37))), kills);
    // It was about to end by itself.
    assert_eq!(
        roster.handle(Event::GaveUp { pid: 10, at: s(37) }),
        vec![order_recover(10, Cause::Stopped), order_spawn()]
    );
}

#[test]
fn a_child_that_drains_is_asked_too() {
    let mut roster = up();
    let _ = roster.handle(replace(&[], s(20)));
    let asks = vec![to(10, Signal::SIGTTOU)];
    assert_eq!(roster.handle(beat(10, Some(s(21)), s(30))), asks);
    assert_eq!(
        roster.handle(Event::GaveUp { pid: 10, at: s(30) }),
        vec![order_recover(10, Cause::Stopped)]
    );
}

#[test]
fn nobody_gives_up_unasked() {
    let crashed = vec![order_recover(10, Cause::Crash), order_spawn()];
    let gave_up = Event::GaveUp { pid: 10, at: s(32) };
    assert_eq!(up().handle(gave_up.clone()), crashed);
    let mut seen_again = up();
    let _ = seen_again.handle(beat(10, Some(s(21)), s(31)));
    let _ = seen_again.handle(beat(10, Some(s(0)), s(32)));
    assert_eq!(seen_again.handle(gave_up), crashed);
    // The supervisor that the database keeps out, too, has nobody to ask.
    let mut lost = up();
    let _ = lost.handle(Event::DatabaseLost);
    assert_eq!(lost.handle(beat(10, Some(s(21)), s(31))), vec![]);
}

#[test]
fn a_child_that_never_registers_is_stale_too() {
    let mut roster = starting();
    assert_eq!(roster.handle(beat(10, None, s(100))), vec![]);
    assert_eq!(
        roster.handle(beat(10, None, s(100) + ms(1))),
        vec![to(10, Signal::SIGKILL)]
    );
}

#[test]
fn a_child_whose_row_was_reaped_gets_time_to_register_anew() {
    let mut roster = up();
    assert_eq!(roster.handle(beat(10, None, s(100))), vec![]);
    assert_eq!(standing(&roster), Some(Standing::Starting));
    assert_eq!(roster.handle(beat(10, None, s(125))), vec![]);
    assert_eq!(
        roster.handle(beat(10, None, s(126))),
        vec![to(10, Signal::SIGKILL)]
    );
}

#[test]
fn word_of_a_predecessor_is_not_held_against_its_replacement() {
    let mut roster = up();
    let _ = roster.handle(Event::Exited { pid: 10, at: s(30) });
    let _ = roster.handle(spawned(11, s(30)));
    assert_eq!(roster.handle(beat(10, Some(s(29)), s(31))), vec![]);
    assert_eq!(roster.handle(seen(10, true, s(31))), vec![]);
    assert_eq!(roster.next_deadline(), None);
    assert_eq!(standing(&roster), Some(Standing::Starting));
}

#[test]
fn an_unkillable_child_is_reported_once_and_blocks_nobody_else() {
    let mut roster = Roster::new(vec![ChildKind::Advancer, worker("a")], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    let _ = roster.handle(spawned(10, s(0)));
    let other = SlotId(1);
    let _ = roster.handle(Event::Spawned {
        slot: other,
        pid: 11,
        at: s(0),
    });
    assert_eq!(
        roster.handle(beat(10, Some(s(26)), s(26))),
        vec![to(10, Signal::SIGKILL)]
    );
    assert_eq!(roster.next_deadline(), Some(s(31)));
    assert_eq!(roster.handle(Event::Tick { at: s(30) }), vec![]);
    assert_eq!(
        roster.handle(Event::Tick { at: s(31) }),
        vec![Order::ReportUnkillable {
            slot: SLOT,
            pid: 10
        }]
    );
    assert_eq!(roster.handle(Event::Tick { at: s(60) }), vec![]);
    // The other child is replaced as always.
    assert_eq!(roster.handle(Event::Exited { pid: 11, at: s(61) }).len(), 2);
    let _ = roster.handle(Event::Spawned {
        slot: other,
        pid: 12,
        at: s(61),
    });
    // Nor does it block the exit.
    let _ = roster.handle(stop(s(62)));
    assert_eq!(
        roster.handle(Event::Exited { pid: 12, at: s(63) }),
        vec![
            Order::Recover {
                slot: other,
                pid: 12,
                cause: Cause::Stopped
            },
            Order::Exit { code: 1 }
        ]
    );
}

#[test]
fn with_the_database_lost_nobody_is_judged_and_afterwards_there_is_grace() {
    let mut roster = up();
    assert_eq!(roster.handle(Event::DatabaseLost), vec![]);
    assert_eq!(roster.handle(beat(10, Some(s(600)), s(600))), vec![]);
    assert_eq!(roster.handle(Event::Tick { at: s(600) }), vec![]);
    assert_eq!(roster.handle(Event::DatabaseBack { at: s(601) }), vec![]);
    // A child that has not come back by now is asked, and not judged.
    let asks = vec![to(10, Signal::SIGTTOU)];
    assert_eq!(roster.handle(beat(10, Some(s(611)), s(612))), asks);
    assert_eq!(
        roster.handle(beat(10, Some(s(612)), s(613))),
        vec![to(10, Signal::SIGKILL)]
    );
}

/// It may be the process that keeps the database from being written.
#[test]
fn a_child_that_stands_still_for_long_is_killed_whatever_the_database_says() {
    for lost in [false, true] {
        for mut roster in [starting(), up()] {
            if lost {
                assert_eq!(roster.handle(Event::DatabaseLost), vec![]);
            }
            assert_eq!(roster.handle(seen(10, false, s(1))), vec![]);
            assert_eq!(roster.next_deadline(), None);
            for second in 2..27 {
                assert_eq!(roster.handle(seen(10, true, s(second))), vec![]);
                assert_eq!(roster.next_deadline(), Some(s(27)));
            }
            assert_eq!(
                roster.handle(seen(10, true, s(27))),
                vec![to(10, Signal::SIGKILL)]
            );
            assert_eq!(roster.handle(seen(10, true, s(28))), vec![]);
        }
    }
}

#[test]
fn a_child_that_goes_on_in_time_is_left_alone() {
    let mut roster = up();
    for second in 2..100 {
        let frozen = second % 20 != 0;
        assert_eq!(roster.handle(seen(10, frozen, s(second))), vec![]);
    }
}

/// The supervisor stood still as well: it does not hold against anybody what it did not see.
#[test]
fn standing_still_is_counted_only_while_somebody_looks() {
    let mut roster = up();
    assert_eq!(roster.handle(seen(10, true, s(2))), vec![]);
    assert_eq!(roster.handle(seen(10, true, s(600))), vec![]);
    assert_eq!(roster.next_deadline(), Some(s(625)));
    assert_eq!(roster.handle(seen(10, true, s(604))), vec![]);
    assert_eq!(roster.next_deadline(), Some(s(625)));
}

#[test]
fn a_child_that_stands_still_while_it_is_to_end_has_until_its_deadline() {
    let mut roster = up();
    assert_eq!(roster.handle(seen(10, true, s(2))), vec![]);
    assert_eq!(roster.handle(stop(s(3))), vec![to(10, Signal::SIGTERM)]);
    for second in 4..23 {
        assert_eq!(roster.handle(seen(10, true, s(second))), vec![]);
    }
    assert_eq!(
        roster.handle(Event::Tick { at: s(23) }),
        vec![to(10, Signal::SIGKILL)]
    );
}

#[test]
fn a_child_born_during_an_outage_has_all_its_time_to_register_afterwards() {
    let mut roster = starting();
    let _ = roster.handle(Event::DatabaseLost);
    let _ = roster.handle(Event::DatabaseBack { at: s(300) });
    assert_eq!(roster.handle(beat(10, None, s(400))), vec![]);
    assert_eq!(
        roster.handle(beat(10, None, s(401))),
        vec![to(10, Signal::SIGKILL)]
    );
}

#[test]
fn a_death_during_an_outage_is_replaced_at_once() {
    let mut roster = up();
    let _ = roster.handle(Event::DatabaseLost);
    assert_eq!(
        roster.handle(Event::Exited { pid: 10, at: s(50) }),
        vec![order_recover(10, Cause::Crash), order_spawn()]
    );
}

#[test]
fn stop_terminates_then_kills_then_exits() {
    let mut roster = up();
    assert_eq!(roster.handle(stop(s(100))), vec![to(10, Signal::SIGTERM)]);
    // A second polite request changes nothing.
    assert_eq!(roster.handle(stop(s(110))), vec![]);
    assert_eq!(roster.next_deadline(), Some(s(120)));
    assert_eq!(roster.handle(Event::Tick { at: ms(119_999) }), vec![]);
    assert_eq!(
        roster.handle(Event::Tick { at: s(120) }),
        vec![to(10, Signal::SIGKILL)]
    );
    assert_eq!(
        roster.handle(Event::Exited {
            pid: 10,
            at: s(121)
        }),
        vec![order_recover(10, Cause::Stopped), Order::Exit { code: 0 }]
    );
    assert_eq!(roster.handle(Event::Tick { at: s(130) }), vec![]);
}

#[test]
fn a_second_stop_kills_at_once() {
    let mut roster = up();
    let _ = roster.handle(stop(s(100)));
    let now = Event::Stop {
        at: s(101),
        immediate: true,
    };
    assert_eq!(roster.handle(now), vec![to(10, Signal::SIGKILL)]);
}

#[test]
fn a_child_that_comes_up_while_stopping_is_told_again() {
    // It is born while the stop comes.
    let mut roster = Roster::new(vec![ChildKind::Advancer], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    assert_eq!(roster.handle(stop(s(1))), vec![]);
    assert_eq!(
        roster.handle(spawned(10, s(1))),
        vec![to(10, Signal::SIGTERM)]
    );
    // It registers after the stop.
    assert_eq!(
        roster.handle(beat(10, Some(s(0)), s(2))),
        vec![to(10, Signal::SIGTERM)]
    );
    assert_eq!(roster.handle(beat(10, Some(s(0)), s(3))), vec![]);
    // Its time counts from the stop, not from its birth.
    assert_eq!(roster.next_deadline(), Some(s(21)));
}

#[test]
fn a_child_born_after_an_immediate_stop_is_killed() {
    let mut roster = Roster::new(vec![ChildKind::Advancer], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    let _ = roster.handle(Event::Stop {
        at: s(1),
        immediate: true,
    });
    assert_eq!(
        roster.handle(spawned(10, s(1))),
        vec![to(10, Signal::SIGKILL)]
    );
}

const WATCHED: SlotId = SlotId(1);

/// An advancer with pid 10 and a console with pid 11, both up.
fn watched() -> Roster {
    let mut roster = Roster::new(vec![ChildKind::Advancer, ChildKind::Console], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    for (slot, pid) in [(SLOT, 10), (WATCHED, 11)] {
        let at = s(0);
        let _ = roster.handle(Event::Spawned { slot, pid, at });
        let age = Some(s(0));
        let _ = roster.handle(Event::Heartbeat { slot, pid, age, at });
    }
    roster
}

fn last_word() -> Order {
    signal(WATCHED, 11, Signal::SIGTERM)
}

#[test]
fn the_console_is_told_to_end_when_all_others_are_gone() {
    let mut roster = watched();
    assert_eq!(roster.handle(stop(s(100))), vec![to(10, Signal::SIGTERM)]);
    assert_eq!(roster.handle(Event::Tick { at: s(105) }), vec![]);
    let exited = Event::Exited {
        pid: 10,
        at: s(106),
    };
    assert_eq!(roster.handle(exited), vec![ended(SLOT, 10), last_word()]);
    assert_eq!(roster.next_deadline(), Some(s(120)));
    let exited = Event::Exited {
        pid: 11,
        at: s(107),
    };
    assert_eq!(
        roster.handle(exited),
        vec![ended(WATCHED, 11), Order::Exit { code: 0 }]
    );
}

#[test]
fn a_console_has_time_to_end_within_the_time_of_the_stop() {
    let mut roster = watched();
    let _ = roster.handle(stop(s(100)));
    assert_eq!(roster.next_deadline(), Some(s(114)));
    assert_eq!(roster.handle(Event::Tick { at: ms(113_999) }), vec![]);
    assert_eq!(roster.handle(Event::Tick { at: s(114) }), vec![last_word()]);
    let killed = vec![
        to(10, Signal::SIGKILL),
        signal(WATCHED, 11, Signal::SIGKILL),
    ];
    assert_eq!(roster.handle(Event::Tick { at: s(120) }), killed);
}

#[test]
fn a_console_is_not_left_to_watch_for_nobody_nor_when_nobody_is_waited_for() {
    let mut roster = watched();
    let now = Event::Stop {
        at: s(100),
        immediate: true,
    };
    let killed = vec![
        to(10, Signal::SIGKILL),
        signal(WATCHED, 11, Signal::SIGKILL),
    ];
    assert_eq!(roster.handle(now), killed);
    // The others are gone before the stop, or do not even die of SIGKILL.
    let mut roster = Roster::new(vec![ChildKind::Console], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    let _ = roster.handle(spawned(11, s(0)));
    assert_eq!(roster.handle(stop(s(1))), vec![to(11, Signal::SIGTERM)]);
    let mut roster = watched();
    for at in [s(1), s(2)] {
        let _ = roster.handle(beat(10, Some(s(26)), at));
    }
    let _ = roster.handle(stop(s(3)));
    let reported = Order::ReportUnkillable {
        slot: SLOT,
        pid: 10,
    };
    let orders = roster.handle(Event::Tick { at: s(7) });
    assert_eq!(orders, vec![reported, last_word()]);
}

#[test]
fn a_console_that_dies_while_the_others_drain_stays_away() {
    let mut roster = watched();
    let _ = roster.handle(stop(s(100)));
    let exited = Event::Exited {
        pid: 11,
        at: s(101),
    };
    let orders = roster.handle(exited);
    assert!(
        matches!(orders[..], [Order::Recover { pid: 11, .. }]),
        "{orders:?}"
    );
}

#[test]
fn a_roster_without_children_exits_on_stop() {
    assert_eq!(
        Roster::new(vec![], LIMITS).handle(stop(s(1))),
        vec![Order::Exit { code: 0 }]
    );
}

#[test]
fn a_child_that_waits_for_its_backoff_does_not_hold_up_the_exit() {
    let mut roster = starting();
    let _ = roster.handle(Event::Exited { pid: 10, at: s(1) });
    let _ = roster.handle(Event::SpawnFailed {
        slot: SLOT,
        at: s(1),
    });
    assert_eq!(standing(&roster), Some(Standing::Waiting));
    assert_eq!(roster.handle(stop(s(2))), vec![Order::Exit { code: 0 }]);
}

#[test]
fn what_could_not_be_spawned_is_tried_again_later_and_recovers_nothing() {
    let mut roster = Roster::new(vec![ChildKind::Advancer], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    let failed = Event::SpawnFailed {
        slot: SLOT,
        at: s(0),
    };
    assert_eq!(roster.handle(failed), vec![]);
    assert_eq!(roster.next_deadline(), Some(ms(100)));
    assert_eq!(
        roster.handle(Event::Tick { at: ms(100) }),
        vec![order_spawn()]
    );
}

fn replace(wanted: &[ChildKind], at: Duration) -> Event {
    replace_but(wanted, &[], at)
}

fn replace_but(wanted: &[ChildKind], stays: &[ChildKind], at: Duration) -> Event {
    let (wanted, stays) = (wanted.to_vec(), stays.to_vec());
    Event::Replace { wanted, stays, at }
}

/// The orders after the exit of a child that was told to end.
fn ended(slot: SlotId, pid: Pid) -> Order {
    let cause = Cause::Stopped;
    Order::Recover { slot, pid, cause }
}

fn order(slot: SlotId, kind: ChildKind) -> Order {
    Order::Spawn { slot, kind }
}

#[test]
fn changed_definitions_replace_the_console_alone_one_after_the_other() {
    let wanted = vec![ChildKind::Advancer, worker("w"), ChildKind::Console];
    let mut roster = Roster::new(wanted, LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    let up = |roster: &mut Roster, slot, pid| {
        let slot = SlotId(slot);
        roster.handle(Event::Spawned {
            slot,
            pid,
            at: s(0),
        })
    };
    for (slot, pid) in [(0, 10), (1, 11), (2, 12)] {
        assert_eq!(up(&mut roster, slot, pid), vec![]);
    }
    assert_eq!(
        roster.handle(Event::Redefined { at: s(1) }),
        vec![
            signal(SlotId(2), 12, Signal::SIGTERM),
            order(SlotId(3), ChildKind::Console)
        ]
    );
    assert_eq!(up(&mut roster, 3, 13), vec![]);
    // The previous one still drains: the next change waits for its end.
    assert_eq!(roster.handle(Event::Redefined { at: s(2) }), vec![]);
    assert_eq!(
        roster.handle(Event::Exited { pid: 12, at: s(3) }),
        vec![
            ended(SlotId(2), 12),
            signal(SlotId(3), 13, Signal::SIGTERM),
            order(SlotId(4), ChildKind::Console)
        ]
    );
}

#[test]
fn a_replacement_ends_everybody_and_starts_new_ones_at_once() {
    let mut roster = Roster::new(vec![ChildKind::Advancer, worker("old")], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    let _ = roster.handle(spawned(10, s(0)));
    let old = SlotId(1);
    let _ = roster.handle(Event::Spawned {
        slot: old,
        pid: 11,
        at: s(0),
    });
    assert!(!roster.is_draining());
    let wanted = [worker("new"), ChildKind::Advancer];
    assert_eq!(
        roster.handle(replace(&wanted, s(5))),
        vec![
            to(10, Signal::SIGTERM),
            signal(old, 11, Signal::SIGTERM),
            order(SlotId(2), worker("new")),
            order(SlotId(3), ChildKind::Advancer),
        ]
    );
    assert!(roster.is_draining());
    for (slot, pid) in [(old, 11), (SLOT, 10)] {
        let exited = Event::Exited { pid, at: s(6) };
        assert_eq!(roster.handle(exited), vec![ended(slot, pid)]);
    }
    assert_eq!(roster.children().count(), 2);
    assert!(!roster.is_draining());
}

#[test]
fn a_child_that_stays_in_every_replacement_goes_on() {
    let (a, b) = (worker("a"), worker("b"));
    let wanted = vec![ChildKind::Advancer, a.clone(), b.clone()];
    let mut roster = Roster::new(wanted, LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    for (slot, pid) in [(0, 10), (1, 11), (2, 12)] {
        let (slot, at) = (SlotId(slot), s(0));
        let _ = roster.handle(Event::Spawned { slot, pid, at });
    }
    // `b` is not wanted any more, whatever stays.
    let wanted = [a.clone(), worker("c"), ChildKind::Advancer];
    assert_eq!(
        roster.handle(replace_but(&wanted, &[a.clone(), b], s(5))),
        vec![
            to(10, Signal::SIGTERM),
            signal(SlotId(2), 12, Signal::SIGTERM),
            order(SlotId(3), worker("c")),
            order(SlotId(4), ChildKind::Advancer),
        ]
    );
    for (slot, pid) in [(3, 13), (4, 14)] {
        let (slot, at) = (SlotId(slot), s(5));
        let _ = roster.handle(Event::Spawned { slot, pid, at });
    }
    // Two replacements wait. `a` stays in both, and `c` in the second one alone.
    for stays in [&[a.clone()][..], &[a.clone(), worker("c")]] {
        let waits = roster.handle(replace_but(&wanted, stays, s(6)));
        assert_eq!(waits, vec![]);
    }
    let exited = Event::Exited { pid: 12, at: s(7) };
    assert_eq!(roster.handle(exited), vec![ended(SlotId(2), 12)]);
    assert_eq!(
        roster.handle(Event::Exited { pid: 10, at: s(7) }),
        vec![
            ended(SLOT, 10),
            signal(SlotId(3), 13, Signal::SIGTERM),
            signal(SlotId(4), 14, Signal::SIGTERM),
            order(SlotId(5), worker("c")),
            order(SlotId(6), ChildKind::Advancer),
        ]
    );
    let pids: Vec<Option<Pid>> = roster.children().map(|child| child.pid).collect();
    assert_eq!(pids[0], Some(11));
}

#[test]
fn a_child_that_does_not_die_or_waits_for_its_turn_does_not_stay() {
    let only = [ChildKind::Advancer];
    let anew = order(SlotId(1), ChildKind::Advancer);
    let mut stuck = up();
    let frozen = |at| Event::Seen {
        slot: SLOT,
        pid: 10,
        frozen: true,
        at: s(at),
    };
    let kill = vec![to(10, Signal::SIGKILL)];
    let killed = (20..90).find(|at| stuck.handle(frozen(*at)) == kill);
    let killed = killed.expect("it stood still for long");
    let at = s(killed + 5);
    let reported = Order::ReportUnkillable {
        slot: SLOT,
        pid: 10,
    };
    assert_eq!(stuck.handle(Event::Tick { at }), vec![reported]);
    let replaced = stuck.handle(replace_but(&only, &only, at));
    assert_eq!(replaced, vec![anew.clone()]);

    let mut waits = Roster::new(only.to_vec(), LIMITS);
    let _ = waits.handle(Event::Tick { at: s(0) });
    let failed = Event::SpawnFailed {
        slot: SLOT,
        at: s(0),
    };
    assert_eq!(waits.handle(failed), vec![]);
    let replaced = waits.handle(replace_but(&only, &only, s(0)));
    assert_eq!(replaced, vec![anew]);
}

#[test]
fn a_replacement_waits_for_the_end_of_the_one_before_it_and_the_last_of_several_wins() {
    let mut roster = up();
    let wanted = [ChildKind::Advancer];
    let (second, third) = (SlotId(1), SlotId(2));
    assert_eq!(
        roster.handle(replace(&wanted, s(2))),
        vec![to(10, Signal::SIGTERM), order(second, ChildKind::Advancer)]
    );
    let born = Event::Spawned {
        slot: second,
        pid: 20,
        at: s(2),
    };
    assert_eq!(roster.handle(born), vec![]);
    for pipeline in ["a", "b"] {
        let again = replace(&[worker(pipeline)], s(3));
        assert_eq!(roster.handle(again), vec![], "{pipeline}");
    }
    assert_eq!(roster.handle(Event::Tick { at: s(4) }), vec![]);
    assert_eq!(
        roster.handle(Event::Exited { pid: 10, at: s(5) }),
        vec![
            ended(SLOT, 10),
            signal(second, 20, Signal::SIGTERM),
            order(third, worker("b")),
        ]
    );
    // The order was carried out once.
    let _ = roster.handle(Event::Spawned {
        slot: third,
        pid: 30,
        at: s(5),
    });
    let exited = Event::Exited { pid: 20, at: s(6) };
    assert_eq!(roster.handle(exited), vec![ended(second, 20)]);
    assert_eq!(roster.handle(Event::Tick { at: s(7) }), vec![]);
    assert_eq!(roster.children().count(), 1);
}

#[test]
fn nothing_is_replaced_once_the_daemon_stops() {
    let mut roster = up();
    let _ = roster.handle(replace(&[], s(2)));
    let _ = roster.handle(replace(&[worker("a")], s(3)));
    let _ = roster.handle(stop(s(4)));
    let orders = roster.handle(Event::Exited { pid: 10, at: s(5) });
    assert_eq!(orders, vec![ended(SLOT, 10), Order::Exit { code: 0 }]);
}

#[test]
fn one_that_does_not_die_of_sigkill_holds_up_no_replacement() {
    let mut roster = up();
    let _ = roster.handle(replace(&[], s(2)));
    let _ = roster.handle(replace(&[worker("a")], s(3)));
    assert_eq!(
        roster.handle(Event::Tick { at: s(22) }),
        vec![to(10, Signal::SIGKILL)]
    );
    assert_eq!(
        roster.handle(Event::Tick { at: s(27) }),
        vec![
            Order::ReportUnkillable {
                slot: SLOT,
                pid: 10
            },
            order(SlotId(1), worker("a")),
        ]
    );
}

#[test]
fn a_child_replaced_while_it_was_being_started_is_terminated_when_it_is_born() {
    let mut roster = Roster::new(vec![ChildKind::Advancer], LIMITS);
    let _ = roster.handle(Event::Tick { at: s(0) });
    assert_eq!(roster.handle(replace(&[], s(1))), vec![]);
    assert_eq!(
        roster.handle(spawned(10, s(1))),
        vec![to(10, Signal::SIGTERM)]
    );
}

#[test]
fn quiet_is_handed_on_and_remembered_for_those_born_later() {
    let mut roster = up();
    assert_eq!(
        roster.handle(Event::Quiet(true)),
        vec![to(10, Signal::SIGTSTP)]
    );
    let _ = roster.handle(Event::Exited { pid: 10, at: s(9) });
    assert_eq!(
        roster.handle(spawned(11, s(9))),
        vec![to(11, Signal::SIGTSTP)]
    );
    assert_eq!(
        roster.handle(Event::Quiet(false)),
        vec![to(11, Signal::SIGCONT)]
    );
    let _ = roster.handle(Event::Exited { pid: 11, at: s(90) });
    let _ = roster.handle(Event::Tick { at: s(91) });
    assert_eq!(roster.handle(spawned(12, s(91))), vec![]);
}

#[test]
fn a_process_that_nobody_ordered_is_killed() {
    let mut roster = up();
    assert_eq!(
        roster.handle(spawned(66, s(2))),
        vec![to(66, Signal::SIGKILL)]
    );
    assert_eq!(roster.children().next().unwrap().pid, Some(10));
}

/// Every state that a slot can be in, with the pid of its process where it has one.
fn every_state() -> Vec<(&'static str, Roster)> {
    let mut waiting = starting();
    let _ = waiting.handle(Event::Exited { pid: 10, at: s(0) });
    let ordered = waiting.clone();
    let _ = waiting.handle(Event::SpawnFailed {
        slot: SLOT,
        at: s(0),
    });
    let mut stopping = up();
    let _ = stopping.handle(stop(s(2)));
    let mut retiring = up();
    let _ = retiring.handle(replace(&[], s(2)));
    let mut waited_for = retiring.clone();
    let _ = waited_for.handle(replace(&[worker("y")], s(2)));
    let mut killed = up();
    let _ = killed.handle(beat(10, Some(s(26)), s(2)));
    let mut reported = killed.clone();
    let _ = reported.handle(Event::Tick { at: s(7) });
    let mut stopping_killed = killed.clone();
    let _ = stopping_killed.handle(stop(s(3)));
    let mut watched_to_the_end = watched();
    let _ = watched_to_the_end.handle(stop(s(3)));
    let mut exited = Roster::new(vec![], LIMITS);
    let _ = exited.handle(stop(s(2)));
    vec![
        ("waiting", waiting),
        ("ordered", ordered),
        ("starting", starting()),
        ("up", up()),
        ("stopping", stopping),
        ("retiring", retiring),
        ("waited for", waited_for),
        ("killed", killed),
        ("reported", reported),
        ("stopping_killed", stopping_killed),
        ("watched", watched()),
        ("watched to the end", watched_to_the_end),
        ("exited", exited),
    ]
}

/// Every event, for the slot and process that exist, that don't, early and late.
fn every_event() -> Vec<Event> {
    let mut events = vec![Event::DatabaseLost, Event::Quiet(true), Event::Quiet(false)];
    for at in [s(0), s(8), s(1_000)] {
        events.push(Event::Redefined { at });
        events.push(Event::Tick { at });
        events.push(Event::DatabaseBack { at });
        for immediate in [false, true] {
            events.push(Event::Stop { at, immediate });
        }
        for wanted in [vec![], vec![ChildKind::Advancer], vec![worker("x")]] {
            events.push(replace(&wanted, at));
            events.push(replace_but(&wanted, &wanted, at));
        }
        for pid in [10, 99] {
            events.push(Event::Exited { pid, at });
            events.push(Event::GaveUp { pid, at });
            for slot in [SLOT, SlotId(7)] {
                events.push(Event::Spawned { slot, pid, at });
                events.push(Event::SpawnFailed { slot, at });
                for frozen in [false, true] {
                    events.push(Event::Seen {
                        slot,
                        pid,
                        frozen,
                        at,
                    });
                }
                for age in [None, Some(s(0)), Some(s(21)), Some(s(26))] {
                    events.push(Event::Heartbeat { slot, pid, age, at });
                }
            }
        }
    }
    events
}

#[test]
fn every_event_is_fine_in_every_state_and_keeps_the_rules() {
    for (name, roster) in every_state() {
        for first in every_event() {
            for second in every_event() {
                let mut roster = roster.clone();
                for event in [&first, &second] {
                    let stopping = roster.is_stopping();
                    let orders = roster.handle(event.clone());
                    for order in &orders {
                        let fine = match order {
                            Order::Spawn { .. } => !stopping && !roster.is_stopping(),
                            // The process is one of the roster's, or was never ordered.
                            Order::Signal { pid, .. } => {
                                roster.children().any(|child| child.pid == Some(*pid))
                                    || matches!(event, Event::Spawned { .. })
                            }
                            Order::Recover { pid, .. } => {
                                matches!(event, Event::Exited { pid: gone, .. }
                                    | Event::GaveUp { pid: gone, .. } if gone == pid)
                            }
                            Order::Exit { .. } => roster.is_stopping(),
                            Order::ReportCrashLoop { .. } | Order::ReportUnkillable { .. } => true,
                        };
                        assert!(fine, "{name}: {first:?}, {second:?} gave {order:?}");
                    }
                }
            }
        }
    }
}

/// A world that carries out orders: which processes live, and what they were told.
#[derive(Default)]
struct World {
    living: BTreeMap<Pid, (SlotId, bool)>,
    ordered: Vec<SlotId>,
    next_pid: Pid,
    stopped: bool,
    exits: usize,
}

impl World {
    fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Spawn { slot, .. } => {
                    assert!(!self.stopped, "spawned while stopping");
                    assert!(
                        !self.living.values().any(|(other, _)| *other == slot)
                            && !self.ordered.contains(&slot),
                        "two incarnations of one slot"
                    );
                    self.ordered.push(slot);
                }
                Order::Signal { pid, signal, .. } => {
                    let process = self.living.get_mut(&pid).expect("a signal to a stranger");
                    process.1 |= signal == Signal::SIGKILL;
                }
                Order::Exit { code } => {
                    self.exits += 1;
                    assert!(code == 1 || self.living.is_empty(), "exit left somebody");
                }
                Order::Recover { pid, .. } => {
                    assert!(!self.living.contains_key(&pid), "recovered the living");
                }
                Order::ReportCrashLoop { deaths, .. } => assert!(deaths >= 5),
                Order::ReportUnkillable { pid, .. } => assert!(self.living[&pid].1),
            }
        }
    }
}

proptest! {
    #[test]
    fn no_life_of_it_breaks_the_rules(choices in prop::collection::vec((0u8..14, any::<u8>(), 0u64..20_000), 1..120)) {
        let kinds = vec![ChildKind::Advancer, worker("a"), ChildKind::Console];
        let mut roster = Roster::new(kinds, LIMITS);
        let mut world = World { next_pid: 100, ..World::default() };
        let mut at = Duration::ZERO;
        for (what, which, passed) in choices {
            at += ms(passed);
            let some_slot = |world: &World| world.ordered.get(usize::from(which) % world.ordered.len().max(1)).copied();
            let some_pid = |world: &World| world.living.keys().nth(usize::from(which) % world.living.len().max(1)).copied();
            let event = match what {
                0..=2 => some_slot(&world).map(|slot| {
                    world.ordered.retain(|other| *other != slot);
                    world.next_pid += 1;
                    world.living.insert(world.next_pid, (slot, false));
                    Event::Spawned { slot, pid: world.next_pid, at }
                }),
                3 => some_slot(&world).map(|slot| {
                    world.ordered.retain(|other| *other != slot);
                    Event::SpawnFailed { slot, at }
                }),
                4 | 5 => some_pid(&world).map(|pid| {
                    world.living.remove(&pid);
                    match which % 2 {
                        0 => Event::Exited { pid, at },
                        _ => Event::GaveUp { pid, at },
                    }
                }),
                6 | 7 => some_pid(&world).map(|pid| Event::Heartbeat {
                    slot: world.living[&pid].0, pid, at,
                    age: (which % 3 > 0).then(|| s(u64::from(which) % 30)),
                }),
                8 => some_pid(&world).map(|pid| Event::Seen {
                    slot: world.living[&pid].0, pid, at, frozen: which % 4 > 0,
                }),
                9 => Some(Event::Quiet(which % 2 == 0)),
                10 => Some(Event::DatabaseLost),
                11 => Some(Event::DatabaseBack { at }),
                12 => {
                    let wanted = match which % 3 {
                        0 => vec![],
                        1 => vec![ChildKind::Advancer],
                        _ => vec![ChildKind::Advancer, ChildKind::Console, worker("c"), worker("c")],
                    };
                    let stays = [ChildKind::Console, worker("c")];
                    Some(replace_but(&wanted, &stays[..usize::from(which) % 5 % 3], at))
                }
                13 => Some(Event::Redefined { at }),
                _ if which < 64 => { world.stopped = true; Some(Event::Stop { at, immediate: which < 16 }) }
                _ => Some(Event::Tick { at }),
            };
            if let Some(event) = event {
                let orders = roster.handle(event);
                world.carry_out(orders);
            }
            // At most two generations, each of four at most; a killed child is waited for until the
            // roster reports that this is in vain.
            let alive = world.living.values().filter(|(_, killed)| !killed).count();
            prop_assert!(alive + world.ordered.len() <= 8, "a third generation");
        }
        // After any events, a stop ends all children within its time, and then exits once.
        world.stopped = true;
        let orders = roster.handle(stop(at));
        world.carry_out(orders);
        for slot in std::mem::take(&mut world.ordered) {
            world.next_pid += 1;
            world.living.insert(world.next_pid, (slot, false));
            let orders = roster.handle(Event::Spawned { slot, pid: world.next_pid, at });
            world.carry_out(orders);
        }
        at += LIMITS.shutdown_timeout;
        let orders = roster.handle(Event::Tick { at });
        world.carry_out(orders);
        prop_assert!(world.living.values().all(|(_, killed)| *killed), "somebody survived the deadline");
        for pid in world.living.keys().copied().collect::<Vec<_>>() {
            world.living.remove(&pid);
            let orders = roster.handle(Event::Exited { pid, at });
            world.carry_out(orders);
        }
        prop_assert_eq!(world.exits, 1);
    }
}
