//! A pool under faults as a workload.

use farside_sim::{FaultKind, Faults};
use farside_workloads::pool::{EVENTS, Scenario, run};

use super::{SeedResult, SimArgs};

fn usual() -> Faults {
    [FaultKind::Reorder, FaultKind::Tear, FaultKind::Error, FaultKind::Clock]
        .into_iter()
        .fold(Faults::none(), Faults::with)
}

/// Runs a pool with one seed.
pub(super) fn run_seed(args: &SimArgs, seed: u64) -> SeedResult {
    let events = args.txns.unwrap_or(EVENTS);
    let faults = args.faults.unwrap_or_else(usual);
    let scenario = Scenario { seed, events, faults, without: None };
    let outcome = run(&scenario, args.trace);
    let wrong = outcome.violation.as_ref().map(|why| explain(&scenario, why));
    SeedResult {
        digest: outcome.digest,
        struck: outcome.struck,
        committed: outcome.writes,
        aborted: outcome.lost,
        unknown: 0,
        note: format!(
            "{} writes, {} changes, unserved at most {:?}",
            outcome.writes, outcome.changes, outcome.unserved
        ),
        wrong: wrong.into_iter().collect(),
        trace: outcome.trace,
    }
}

/// What went wrong, and a smaller run that goes wrong, too.
fn explain(failing: &Scenario, why: &str) -> String {
    let small = failing.shrink();
    let Scenario { seed, events, faults, .. } = small;
    format!(
        "{why}
              replay: farside sim --workload pool --seed {seed} --txns {events} --faults {faults} --trace"
    )
}
