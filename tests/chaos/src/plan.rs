//! Which faults happen, and when. The plan follows from the seed alone.

use crate::dice::Dice;

/// What goes wrong. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    KillDaemon,
    /// The daemon is killed, and its successor while it starts.
    KillDaemonTwice,
    StopDaemon {
        lasts: u64,
    },
    /// An actor with all of its processes. The number says which one.
    KillActor {
        which: u64,
    },
    StopActor {
        which: u64,
        lasts: u64,
    },
    /// One `tt` process of any actor.
    KillClient {
        which: u64,
    },
    SlowDisk {
        lasts: u64,
        delay: u64,
    },
    FailingDisk {
        lasts: u64,
        percent: u64,
    },
    FullDisk {
        lasts: u64,
    },
    /// The wall clock is set.
    SetClock {
        ahead: i64,
    },
    /// The machine was suspended.
    Suspend {
        lasts: i64,
    },
    FewDescriptors {
        lasts: u64,
        spare: u64,
    },
}

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::KillDaemon => "kill daemon",
            Fault::KillDaemonTwice => "kill starting daemon",
            Fault::StopDaemon { .. } => "stop daemon",
            Fault::KillActor { .. } => "kill actor",
            Fault::StopActor { .. } => "stop actor",
            Fault::KillClient { .. } => "kill client",
            Fault::SlowDisk { .. } => "slow disk",
            Fault::FailingDisk { .. } => "failing disk",
            Fault::FullDisk { .. } => "full disk",
            Fault::SetClock { .. } => "set clock",
            Fault::Suspend { .. } => "suspend",
            Fault::FewDescriptors { .. } => "few descriptors",
        }
    }

    fn draw(dice: &mut Dice, daemon_may_die: bool) -> Self {
        const YEAR: i64 = 365 * 24 * 3600 * 1000;
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        loop {
            let fault = match dice.between(0, 22) {
                0..=3 => Fault::KillDaemon,
                4 => Fault::KillDaemonTwice,
                5..=6 => Fault::StopDaemon { lasts: dice.between(100, 4000) },
                7..=9 => Fault::KillActor { which: dice.next() },
                10..=11 => Fault::StopActor { which: dice.next(), lasts: dice.between(100, 3000) },
                12..=14 => Fault::KillClient { which: dice.next() },
                15 => Fault::SlowDisk { lasts: dice.between(500, 4000), delay: dice.between(5, 400) },
                16 => Fault::FailingDisk { lasts: dice.between(200, 2500), percent: dice.between(1, 60) },
                17 => Fault::FullDisk { lasts: dice.between(200, 2500) },
                18..=19 => {
                    let ahead = match dice.between(0, 4) {
                        0 => signed(dice.between(0, 10)) * YEAR,
                        1 => -signed(dice.between(0, 10)) * YEAR,
                        2 => signed(dice.between(0, 7_200_000)),
                        _ => -signed(dice.between(0, 7_200_000)),
                    };
                    Fault::SetClock { ahead }
                }
                20 => Fault::Suspend { lasts: signed(dice.between(1000, 7_200_000)) },
                _ => Fault::FewDescriptors { lasts: dice.between(500, 3000), spare: dice.between(0, 6) },
            };
            if daemon_may_die || !matches!(fault, Fault::KillDaemon | Fault::KillDaemonTwice) {
                return fault;
            }
        }
    }
}

/// A part of the run: faults, and then calm, in which everything must work again.
#[derive(Debug)]
pub(crate) struct Round {
    /// Each with the milliseconds since the round began.
    pub faults: Vec<(u64, Fault)>,
    pub lasts: u64,
}

/// A round takes this long, so that the run returns to calm often.
const ROUND_MS: u64 = 15_000;

/// The rounds of a run. In the last quarter of it the daemon is not killed, so that one daemon has lived through much in the
/// end, when its memory and descriptors are counted.
pub(crate) fn rounds(seed: u64, seconds: u64) -> Vec<Round> {
    let mut dice = Dice::new(seed, "plan");
    let count = (seconds * 1000 / ROUND_MS).max(1);
    let lasts = seconds * 1000 / count;
    let mut rounds = Vec::new();
    for number in 0..count {
        let daemon_may_die = number < count - count.div_ceil(4);
        let (mut at, mut faults) = (0, Vec::new());
        loop {
            at += dice.between(20, 700);
            if at >= lasts {
                break;
            }
            faults.push((at, Fault::draw(&mut dice, daemon_may_die)));
        }
        rounds.push(Round { faults, lasts });
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_the_daemon_is_left_alone_in_the_end() {
        let plan = |seed| rounds(seed, 120).into_iter().map(|round| round.faults).collect::<Vec<_>>();
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
        let kills = |faults: &Vec<(u64, Fault)>| {
            faults.iter().filter(|(_, f)| matches!(f, Fault::KillDaemon | Fault::KillDaemonTwice)).count()
        };
        let kills: Vec<usize> = plan(7).iter().map(kills).collect();
        assert_eq!(kills[6..], [0, 0]);
        assert!(kills[..6].iter().all(|count| *count > 0), "{kills:?}");
    }

    #[test]
    fn every_fault_is_drawn() {
        let all = rounds(7, 600);
        let names: std::collections::BTreeSet<_> =
            all.iter().flat_map(|round| &round.faults).map(|(_, fault)| fault.name()).collect();
        assert_eq!(names.len(), 12, "{names:?}");
    }
}
