//! Memory nodes that die, stop or are out of reach under transactions, while machines die, too: nothing that was acknowledged
//! is lost, and in the end every region has its copies again, which are alike.

use crate::common;
use farside_sim::Faults;
use farside_txn::{Level, Protocol as Phases, Trap};
use farside_workloads::load::Kind;
use farside_workloads::trial::{Protocol, Trial};

fn trial(seed: u64, trap: Option<Trap>) -> Trial {
    let faults: Faults = "all".parse().expect("all of them");
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

/// What can come of it: all of it happens.
const BRANCHES: [&str; 16] = [
    "a copy ends with an error, and is begun again",
    "a copy of a region is begun",
    "a copy of a region is whole",
    "a heap follows its regions",
    "a node dies under transactions",
    "a node is out of somebody's reach",
    "a node stops for a while under transactions",
    "a node that was put out is not waited for",
    "a release is posted again",
    "a transaction of a dead session is aborted",
    "a transaction of a dead session is committed",
    "a transaction waits until all nodes answer",
    "a work is taken over from one who died",
    "an install is posted again",
    "objects are copied",
    "the regions moved under a transaction",
];

const KINDS: [Kind; 3] = [Kind::ListAppend, Kind::Transfer, Kind::SmallBank];

#[test]
fn nothing_is_lost_with_up_to_two_nodes_of_three_copies() {
    for kind in KINDS {
        let (committed, aborted) =
            common::all_are_sound(kind, &kind.simulated(), 60, |seed| trial(seed, None));
        assert!(committed > aborted, "{}: {aborted} aborted", kind.name());
    }
    common::all_are_reached(&BRANCHES);
}

/// TATP, 55: a row was deleted, and whoever freed its place died when it was free on the copies, and not at the primary. Nothing is lost but
/// the place; the copies were said to differ.
/// List-append, 250, 345: an early snapshot was given up for a later one just when the clock had moved, and what had been the latest that it may be
/// was later than anybody may give out; that was taken for a snapshot of the future.
/// List-append, 296: slabs of the dead became nobody's, and a copy in the making was to be told that with an error; nobody told it again.
/// List-append by FORD-LV, 702: somebody died who was making a record ring; one of three copies did not know of it. There was nothing in it; the
/// copies were said to differ.
/// List-append by DrTM+H, 813: the same of a record outside of a ring, by one who died while it wrote it; its transaction was aborted.
#[test]
fn what_went_wrong_once_is_well() {
    let usual = Phases::FARSIDE;
    let seeds = [
        (Kind::ListAppend, usual, 250),
        (Kind::ListAppend, usual, 345),
        (Kind::ListAppend, usual, 296),
        (Kind::ListAppend, Phases::FORD_LV, 702),
        (Kind::ListAppend, Phases::DRTM_H, 813),
        (Kind::Tatp, usual, 55),
    ];
    for (kind, phases, seed) in seeds {
        let protocol = Protocol::Farside { phases, copies: 3, trap: None, level: Level::Strict };
        let trial = Trial { txns: 500, protocol, ..trial(seed, None) };
        let outcome = kind.visit(&kind.simulated(), trial).unwrap().unwrap();
        assert_eq!(outcome.wrong(), None, "{} seed {seed}", kind.name());
    }
}

#[test]
fn every_rule_of_moving_regions_is_there_for_something() {
    let rules = [Trap::CopyWithoutLocks, Trap::CopyOfNothing];
    common::each_is_needed(&rules, |trap, seed| {
        KINDS.into_iter().find_map(|kind| {
            let why = common::goes_wrong(kind, &common::tight(kind), trial(seed, Some(trap)))?;
            Some((kind, why))
        })
    });
}
