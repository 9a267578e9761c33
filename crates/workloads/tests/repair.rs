//! Machines that die in the middle of everything, or are taken for dead: what they left behind is repaired.

use farside_sim::Faults;
use farside_txn::Trap;
use farside_workloads::load::{Kind, Shape};
use farside_workloads::trial::{Protocol, Trial};

const FAULTS: &str = "reorder,tear,delay=2000,kill,pause";

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

fn trial(seed: u64, trap: Option<Trap>) -> Trial {
    let faults: Faults = FAULTS.parse().expect("names of faults");
    Trial { seed, txns: 300, protocol: Protocol::Farside { copies: 3, trap }, faults }
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
    let first = number("FARSIDE_FIRST", 1);
    for kind in Kind::ALL {
        let (mut committed, mut aborted) = (0, 0);
        for seed in first..first + number("FARSIDE_SEEDS", 15) {
            let outcome = kind.visit(&kind.simulated(), trial(seed, None)).unwrap();
            let name = format!("{} seed {seed}", kind.name());
            let outcome = outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
            let report = &outcome.report;
            assert_eq!(report.verdict, "strict-serializable", "{name}: {report:?}");
            assert_eq!((report.undecided, outcome.invariants.clone()), (0, Ok(())), "{name}");
            committed += outcome.tally.committed();
            aborted += outcome.tally.aborted();
        }
        println!("{}: {committed} committed, {aborted} aborted", kind.name());
        let contended = [Kind::Kvs, Kind::ListAppend].contains(&kind);
        assert!(contended || committed > aborted, "{}: {aborted} aborted", kind.name());
    }
    if farside_fabric::probe::enabled() {
        let reached = farside_fabric::probe::reached();
        let missed: Vec<_> = BRANCHES.iter().filter(|name| !reached.contains_key(*name)).collect();
        assert!(missed.is_empty(), "not reached: {missed:?}, of {reached:?}");
    }
}

/// So small that whoever dies is in somebody's way.
fn tight(kind: Kind) -> Shape {
    let mut shape = kind.small();
    shape.keys = shape.keys.map(|keys| keys / 4);
    shape.accounts = shape.accounts.map(|accounts| accounts / 4);
    shape
}

fn goes_wrong(trap: Trap) -> Option<(Kind, u64, String)> {
    for seed in 1..=200 {
        for kind in [Kind::Transfer, Kind::ListAppend, Kind::SmallBank] {
            match kind.visit(&tight(kind), trial(seed, Some(trap))).unwrap() {
                Err(failure) => return Some((kind, seed, failure.to_string())),
                Ok(outcome) => {
                    if let Some(anomaly) = outcome.report.anomalies.first() {
                        return Some((kind, seed, format!("{}: {}", anomaly.kind, anomaly.why)));
                    }
                    if let Err(why) = outcome.invariants {
                        return Some((kind, seed, why));
                    }
                }
            }
        }
    }
    None
}

#[test]
fn every_rule_of_repair_is_there_for_something() {
    let traps = [
        Trap::RacingRepairers,
        Trap::NoFence,
        Trap::RecordWithoutN,
        Trap::NotHeldIsCommitted,
        Trap::UndoReleasesAsItGoes,
    ];
    let only = std::env::var("FARSIDE_TRAP").ok();
    for trap in traps {
        if only.as_ref().is_some_and(|name| format!("{trap:?}") != *name) {
            continue;
        }
        let found = goes_wrong(trap);
        let (kind, seed, why) = found.unwrap_or_else(|| panic!("{trap:?}: nothing goes wrong"));
        println!(
            "{trap:?}: {} seed {seed}: {}",
            kind.name(),
            why.chars().take(100).collect::<String>()
        );
    }
}
