//! Memory nodes that die, stop or are out of reach under transactions, while machines die, too: nothing that was acknowledged
//! is lost, and in the end every region has its copies again, which are alike.

use farside_sim::Faults;
use farside_txn::Trap;
use farside_workloads::load::{Kind, Shape};
use farside_workloads::trial::{Protocol, Trial};

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

fn trial(seed: u64, trap: Option<Trap>) -> Trial {
    let faults: Faults = "all".parse().expect("all of them");
    Trial { seed, txns: 300, protocol: Protocol::Farside { copies: 3, trap }, faults }
}

/// What can come of it: all of it happens.
const BRANCHES: [&str; 16] = [
    "a copy ends with an error, and is begun again",
    "a copy is taken over from one who died",
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
    "an install is posted again",
    "objects are copied",
    "the regions moved under a transaction",
];

#[test]
fn nothing_is_lost_with_up_to_two_nodes_of_three_copies() {
    let first = number("FARSIDE_FIRST", 1);
    for kind in [Kind::ListAppend, Kind::Transfer, Kind::SmallBank] {
        let (mut committed, mut aborted) = (0, 0);
        for seed in first..first + number("FARSIDE_SEEDS", 60) {
            let outcome = kind.visit(&kind.simulated(), trial(seed, None)).unwrap();
            let name = format!("{} seed {seed}", kind.name());
            let outcome = outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
            assert_eq!(outcome.wrong(), None, "{name}");
            committed += outcome.tally.committed();
            aborted += outcome.tally.aborted();
        }
        println!("{}: {committed} committed, {aborted} aborted", kind.name());
        assert!(committed > aborted, "{}: {aborted} aborted", kind.name());
    }
    if farside_fabric::probe::enabled() {
        let reached = farside_fabric::probe::reached();
        let missed: Vec<_> = BRANCHES.iter().filter(|name| !reached.contains_key(*name)).collect();
        assert!(missed.is_empty(), "not reached: {missed:?}, of {reached:?}");
    }
}

/// So small that somebody is always at what is copied.
fn tight(kind: Kind) -> Shape {
    let mut shape = kind.small();
    shape.keys = shape.keys.map(|keys| keys / 4);
    shape.accounts = shape.accounts.map(|accounts| accounts / 4);
    shape
}

/// Whether something goes wrong with a seed when a rule is left out.
fn goes_wrong(trap: Trap, kind: Kind, seed: u64) -> Option<String> {
    match kind.visit(&tight(kind), trial(seed, Some(trap))).unwrap() {
        Err(failure) => Some(failure.to_string()),
        Ok(outcome) => outcome.wrong(),
    }
}

/// With the seeds with which it was found; and if those do not find it any more, with all up to 200.
#[test]
fn every_rule_of_moving_regions_is_there_for_something() {
    let known =
        [(Trap::CopyWithoutLocks, Kind::Transfer, 1), (Trap::CopyOfNothing, Kind::Transfer, 1)];
    let only = std::env::var("FARSIDE_TRAP").unwrap_or_default();
    for (trap, kind, seed) in known {
        if !format!("{trap:?}").contains(&only) {
            continue;
        }
        let all = (1..=200).flat_map(|seed| {
            [Kind::Transfer, Kind::ListAppend, Kind::SmallBank].map(|kind| (kind, seed))
        });
        let found = std::iter::once((kind, seed))
            .chain(all)
            .find_map(|(kind, seed)| Some((kind, seed, goes_wrong(trap, kind, seed)?)));
        let (kind, seed, why) = found.unwrap_or_else(|| panic!("{trap:?}: nothing goes wrong"));
        let why: String = why.chars().take(100).collect();
        println!("{trap:?}: {} seed {seed}: {why}", kind.name());
    }
}
