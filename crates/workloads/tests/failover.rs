//! Memory nodes that die, stop or are out of reach under transactions, while machines die, too: nothing that was acknowledged
//! is lost, and in the end every region has its copies again, which are alike.

use farside_sim::Faults;
use farside_workloads::load::Kind;
use farside_workloads::trial::{Protocol, Trial};

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// What can come of it: all of it happens.
const BRANCHES: [&str; 17] = [
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
    "a slab that was claimed with an error is known again",
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
            let faults: Faults = "all".parse().expect("all of them");
            let protocol = Protocol::Farside { copies: 3, trap: None };
            let trial = Trial { seed, txns: 300, protocol, faults };
            let outcome = kind.visit(&kind.simulated(), trial).unwrap();
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
