//! Fan-in, every cell.

use super::{code, table};
use crate::machine::barrier::{Arrival, BarrierView, arrive};

/// Every barrier up to this width is tried.
const WIDEST: u64 = 6;

fn cells() -> impl Iterator<Item = BarrierView> {
    (1..=WIDEST).flat_map(|width| {
        (0..=width).flat_map(move |arrived| {
            (0..=arrived).map(move |halted| BarrierView {
                width,
                arrived,
                halted,
            })
        })
    })
}

/// The expectation, counted out: one word per branch of the fan-out.
fn expected(view: BarrierView) -> Arrival {
    let mut branches = vec!["completed"; (view.arrived - view.halted) as usize];
    branches.extend(vec!["halted"; view.halted as usize]);
    branches.resize(view.width as usize, "on its way");
    if branches.contains(&"on its way") {
        Arrival::Waits
    } else if branches.contains(&"halted") {
        Arrival::Halts
    } else {
        Arrival::Fires
    }
}

#[test]
fn a_barrier_fires_when_all_have_arrived_and_none_halted() {
    for view in cells() {
        assert_eq!(arrive(view), expected(view), "{view:?}");
    }
}

#[test]
fn of_all_arrivals_at_a_barrier_the_last_alone_moves_the_waiting_branch() {
    for width in 1..=WIDEST {
        for halting in 0..=width {
            let moves = (1..=width).filter(|arrived| {
                let halted = halting.min(*arrived);
                let view = BarrierView {
                    width,
                    arrived: *arrived,
                    halted,
                };
                arrive(view) != Arrival::Waits
            });
            assert_eq!(moves.collect::<Vec<_>>(), [width]);
        }
    }
}

#[test]
fn the_widest_barrier_is_counted_without_overflow() {
    let view = |arrived, halted| BarrierView {
        width: u64::MAX,
        arrived,
        halted,
    };
    assert_eq!(arrive(view(u64::MAX - 1, u64::MAX - 1)), Arrival::Waits);
    assert_eq!(arrive(view(u64::MAX, 0)), Arrival::Fires);
    assert_eq!(arrive(view(u64::MAX, u64::MAX)), Arrival::Halts);
}

pub fn chapter() -> String {
    let word = |arrival| match arrival {
        Arrival::Waits => "waits",
        Arrival::Fires => "goes on with the array of the outputs",
        Arrival::Halts => "halts",
    };
    let rows = (0..=3_u64).flat_map(|arrived| {
        (0..=arrived).map(move |halted| {
            let view = BarrierView {
                width: 3,
                arrived,
                halted,
            };
            assert_eq!(arrive(view), expected(view), "{view:?}");
            [code(arrived), code(halted), word(arrive(view)).to_owned()]
        })
    });
    format!(
        "## 4. Fan-in\n\n\
         A barrier has a width, and counts who has arrived and who of these halted. Each arrival\n\
         raises the counters by one guarded write and reads what it wrote, so of two last siblings\n\
         exactly one sees that all are here. For a fan-out of three:\n\n{}\n\
         The branch that waited goes on as the fan-out says: to its `combine` or `collapse`, across\n\
         the `converge` of the diverted path it stands on, or it ends with the array as its value.\n\n\
         A branch that ends with its step's success arrives with the commit of that result, unless it\n\
         would be the last: the last arrival, and whatever halts, is an advancer's.\n",
        table(&["arrived", "of these halted", "the waiting branch"], rows)
    )
}
