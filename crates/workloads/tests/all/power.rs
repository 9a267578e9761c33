//! Losses of power, in the simulator: nodes have again what was flushed, and some of what came after it.

use crate::common;
use farside_sim::Faults;
use farside_txn::{Protocol as Phases, Trap};
use farside_workloads::load::Kind;
use farside_workloads::trial::{Protocol, Trial};

fn trial(seed: u64, trap: Option<Trap>) -> Trial {
    let faults: Faults = "reorder,tear,delay=2000".parse().expect("names of faults");
    let unordered = seed.is_multiple_of(2);
    Trial {
        seed,
        txns: 200,
        protocol: Protocol::Durable { phases: Phases::FARSIDE, unordered, copies: 3, trap },
        faults,
    }
}

/// Seed 16 of lists found that a session's place on the board, and what is given up there, has to be flushed, too.
#[test]
fn what_was_committed_survives() {
    for kind in [Kind::ListAppend, Kind::Transfer, Kind::SmallBank] {
        let (committed, _) =
            common::all_are_sound(kind, &kind.small(), 20, |seed| trial(seed, None));
        assert!(committed > 1000);
    }
    common::all_are_reached(&[
        "all nodes lose their power",
        "one node loses its power",
        "a session finds that it was fenced",
        "a transaction of a dead session is committed",
        "a transaction of a dead session is aborted",
    ]);
}

#[test]
fn each_flush_is_there_for_something() {
    common::each_is_needed(&Trap::OF_PERSISTENCE, |trap, seed| {
        let kind = Kind::ListAppend;
        Some((kind, common::goes_wrong(kind, &common::tight(kind), trial(seed, Some(trap)))?))
    });
}
