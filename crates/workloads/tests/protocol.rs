//! The default protocol on arrays, in the simulator: reordering, tearing, delay, clocks that are off, three
//! copies, reads from backups; nobody dies.

use farside_sim::Faults;
use farside_txn::Trap;
use farside_workloads::check::Level;
use farside_workloads::engine::Failure;
use farside_workloads::load::{Kind, Shape, Visit, Workload};
use farside_workloads::trial::{Outcome, Protocol, plan, run_on};

/// Small enough that transactions meet.
fn small(kind: Kind) -> Shape {
    let mut shape = Shape { threads: 4, ..Shape::default() };
    match kind {
        Kind::Kvs => shape.keys = Some(50),
        Kind::SmallBank | Kind::Transfer => shape.accounts = Some(40),
        Kind::Tatp => shape.subscribers = Some(20),
        Kind::ListAppend | Kind::Counter => shape.keys = Some(8),
    }
    shape
}

struct Trial {
    seed: u64,
    txns: u64,
    copies: usize,
    faults: &'static str,
    trap: Option<Trap>,
}

impl Visit for Trial {
    type Output = Result<Outcome, Failure>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Self::Output {
        let protocol = Protocol::Farside { copies: self.copies, trap: self.trap };
        let faults: Faults = self.faults.parse().expect("names of faults");
        run_on(workload, &plan(self.seed, self.txns), protocol, faults, Level::Strict)
    }
}

const FAULTS: &str = "reorder,tear,delay=2000";

fn first_seed() -> u64 {
    std::env::var("FARSIDE_FIRST").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn seeds() -> u64 {
    std::env::var("FARSIDE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20)
}

/// Found on the way: a thread that told on the board that its oldest snapshot is 0 told nothing, and what it
/// read was overwritten (list-append, seed 114); a writer that waited for room in its ring held a lock that
/// the reader waited for whose snapshot kept the ring full (list-append, seed 212).
#[test]
fn histories_are_strictly_serializable_and_opaque() {
    for kind in Kind::ALL {
        let (mut committed, mut aborted) = (0, 0);
        for seed in first_seed()..first_seed() + seeds() {
            let copies = 1 + seed as usize % 5;
            let trial = Trial { seed, txns: 200, copies, faults: FAULTS, trap: None };
            let outcome = kind.visit(&small(kind), trial).unwrap();
            let name = format!("{} seed {seed}", kind.name());
            let outcome = outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
            let report = &outcome.report;
            assert_eq!(report.verdict, "strict-serializable", "{name}: {report:?}");
            assert_eq!((report.undecided, outcome.invariants.clone()), (0, Ok(())), "{name}");
            committed += outcome.tally.committed();
            aborted += outcome.tally.aborted();
        }
        println!("{}: {committed} committed, {aborted} aborted", kind.name());
    }
}

/// Whether something goes wrong when a rule is left out, and with which seed.
fn goes_wrong(trap: Trap) -> Option<(Kind, u64, String)> {
    for seed in 1..=200 {
        for kind in [Kind::ListAppend, Kind::SmallBank, Kind::Kvs] {
            let trial = Trial { seed, txns: 200, copies: 3, faults: FAULTS, trap: Some(trap) };
            match kind.visit(&small(kind), trial).unwrap() {
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

/// Each rule prevents something: without it the simulator finds that.
#[test]
fn every_rule_is_there_for_something() {
    let mut harmless = Vec::new();
    let only = std::env::var("FARSIDE_TRAP").unwrap_or_default();
    for trap in Trap::ALL.into_iter().filter(|trap| format!("{trap:?}").contains(&only)) {
        match goes_wrong(trap) {
            Some((kind, seed, why)) => println!("{trap:?}: {} seed {seed}: {why}", kind.name()),
            None => harmless.push(trap),
        }
    }
    assert!(harmless.is_empty(), "nothing goes wrong without {harmless:?}");
}
