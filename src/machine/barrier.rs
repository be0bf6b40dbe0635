//! Fan-in: arithmetic on the barrier, O(1) per arrival.

/// A barrier just after arrivals were written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierView {
    /// How many branches the fan-out has.
    pub width: u64,
    /// How many of them have ended, in whatever way.
    pub arrived: u64,
    /// How many of these halted.
    pub halted: u64,
}

/// The meaning of the arrivals for the branch that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Others are still to come.
    Waits,
    /// All are here: the waiting branch goes on with the array of their outputs.
    Fires,
    /// All are here, but some halted: there is no array, so the waiting branch halts.
    Halts,
}

/// "Am I the last?", answered from counters that the arrival itself has just raised by a
/// guarded write: of two last siblings exactly one sees `arrived == width` (I13).
pub fn arrive(view: BarrierView) -> Arrival {
    if view.arrived < view.width {
        Arrival::Waits
    } else if view.halted > 0 {
        Arrival::Halts
    } else {
        Arrival::Fires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_fires_only_when_all_have_arrived_and_none_halted() {
        for width in 1..5 {
            for arrived in 0..=width {
                for halted in 0..=arrived {
                    let view = BarrierView {
                        width,
                        arrived,
                        halted,
                    };
                    let expected = match (arrived == width, halted > 0) {
                        (false, _) => Arrival::Waits,
                        (true, true) => Arrival::Halts,
                        (true, false) => Arrival::Fires,
                    };
                    assert_eq!(arrive(view), expected, "{view:?}");
                }
            }
        }
    }
}
