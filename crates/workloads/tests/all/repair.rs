//! Machines that die in the middle of everything, or are taken for dead: what they left behind is repaired.

use crate::common;
use farside_sim::Faults;
use farside_txn::{Level, Protocol as Phases, Trap};
use farside_workloads::load::Kind;
use farside_workloads::trial::{Protocol, Trial};

const FAULTS: &str = "reorder,tear,delay=2000,kill,pause";

/// The same, with verbs that are late more often: repairers race.
const LATE: &str = "reorder,tear,delay=20000,kill,pause";

fn trial(seed: u64, trap: Option<Trap>) -> Trial {
    let names = if trap.is_some() { LATE } else { FAULTS };
    let faults: Faults = names.parse().expect("names of faults");
    Trial {
        seed,
        txns: 300,
        protocol: Protocol::Farside {
            phases: Phases::FARSIDE,
            copies: 3,
            trap,
            level: Level::Strict,
        },
        faults,
    }
}

/// What can come of a death: all of it happens.
const BRANCHES: [&str; 10] = [
    "a dead session is repaired",
    "a lock is nobody's",
    "a machine died, and another takes its place",
    "a repair is taken over from one who died",
    "a session finds that it was fenced",
    "a slab of a dead owner is disowned",
    "a transaction of a dead session is aborted",
    "a transaction of a dead session is committed",
    "somebody else repairs a dead session",
    "what a dead session kept for readers is freed some time",
];

#[test]
fn histories_are_strictly_serializable_whoever_dies() {
    for kind in Kind::ALL {
        let (committed, aborted) =
            common::all_are_sound(kind, &kind.simulated(), 15, |seed| trial(seed, None));
        // Whoever waits for a turn of one that waits for a repair gives way now and then, and begins again.
        assert!(2 * committed > aborted, "{}: {aborted} aborted", kind.name());
    }
    common::all_are_reached(&BRANCHES);
}

/// What n is for is shown in `crashes.rs`, and that all is restored before the first lock is given back by the model of the
/// protocol: seeds meet that rarely.
#[test]
fn every_rule_of_repair_is_there_for_something() {
    let rules = [Trap::RacingRepairers, Trap::NoFence, Trap::NotHeldIsCommitted];
    common::each_is_needed(&rules, |trap, seed| {
        [Kind::Transfer, Kind::ListAppend, Kind::SmallBank].into_iter().find_map(|kind| {
            let why = common::goes_wrong(kind, &common::tight(kind), trial(seed, Some(trap)))?;
            Some((kind, why))
        })
    });
}
