//! What the tests of the protocol in the simulator share: seeds, branches that have to be reached, and rules that are left out.

use farside_txn::Trap;
use farside_workloads::load::{Kind, Shape};
use farside_workloads::trial::Trial;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// As many seeds as a test usually takes; `FARSIDE_FIRST` and `FARSIDE_SEEDS` ask for others.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let first = number("FARSIDE_FIRST", 1);
    first..first + number("FARSIDE_SEEDS", usual)
}

/// Nothing is wrong with any seed. How many transactions have committed, and how many aborted.
pub(crate) fn all_are_sound(
    kind: Kind,
    shape: &Shape,
    usual: u64,
    trial: impl Fn(u64) -> Trial,
) -> (u64, u64) {
    let (mut committed, mut aborted) = (0, 0);
    for seed in seeds(usual) {
        let name = format!("{} seed {seed}", kind.name());
        let outcome = kind.visit(shape, trial(seed)).unwrap();
        let outcome = outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert_eq!(outcome.wrong(), None, "{name}");
        committed += outcome.tally.committed();
        aborted += outcome.tally.aborted();
    }
    println!("{}: {committed} committed, {aborted} aborted", kind.name());
    (committed, aborted)
}

/// All that can come of something has come of it.
pub(crate) fn all_are_reached(branches: &[&str]) {
    if farside_fabric::probe::enabled() {
        let reached = farside_fabric::probe::reached();
        let missed: Vec<_> = branches.iter().filter(|name| !reached.contains_key(*name)).collect();
        assert!(missed.is_empty(), "not reached: {missed:?}, of {reached:?}");
    }
}

/// So small that many transactions meet, and whoever dies is in somebody's way.
pub(crate) fn tight(kind: Kind) -> Shape {
    let mut shape = kind.small();
    shape.keys = shape.keys.map(|keys| keys / 4);
    shape.accounts = shape.accounts.map(|accounts| accounts / 4);
    shape.subscribers = shape.subscribers.map(|subscribers| subscribers / 8);
    shape
}

/// What goes wrong with a trial, if anything does: also if somebody notices that what it has in its hands cannot be.
pub(crate) fn goes_wrong(kind: Kind, shape: &Shape, trial: Trial) -> Option<String> {
    let run = std::panic::AssertUnwindSafe(|| kind.visit(shape, trial).unwrap());
    match std::panic::catch_unwind(run) {
        Err(_) => Some("a thread panics".into()),
        Ok(Err(failure)) => Some(failure.to_string()),
        Ok(Ok(outcome)) => outcome.wrong(),
    }
}

/// Without each of these rules something goes wrong with one of the first 200 seeds: `find` tells what. `FARSIDE_TRAP`
/// asks for one of them only.
pub(crate) fn each_is_needed(traps: &[Trap], find: impl Fn(Trap, u64) -> Option<(Kind, String)>) {
    let only = std::env::var("FARSIDE_TRAP").unwrap_or_default();
    let mut harmless = Vec::new();
    for trap in traps.iter().copied().filter(|trap| format!("{trap:?}").contains(&only)) {
        let found = (1..=200).find_map(|seed| Some((seed, find(trap, seed)?)));
        let Some((seed, (kind, why))) = found else {
            harmless.push(trap);
            continue;
        };
        let why: String = why.chars().take(100).collect();
        println!("{trap:?}: {} seed {seed}: {why}", kind.name());
    }
    assert!(harmless.is_empty(), "nothing goes wrong without {harmless:?}");
}
