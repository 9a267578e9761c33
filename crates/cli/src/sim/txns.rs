//! Transactions in the simulator: their histories and invariants are checked.

use farside_workloads::check::Level;
use farside_workloads::load::{Kind, Shape, Visit, Workload};
use farside_workloads::trial::{self, Outcome, plan};

use super::{SeedResult, SimArgs};

/// Transactions of a run.
const TXNS: u64 = 500;

/// Small enough that transactions meet.
fn shape(kind: Kind) -> Shape {
    let mut shape = Shape { threads: 4, ..Shape::default() };
    match kind {
        Kind::Kvs => shape.keys = Some(200),
        Kind::SmallBank | Kind::Transfer => shape.accounts = Some(100),
        Kind::Tatp => shape.subscribers = Some(100),
        Kind::ListAppend | Kind::Counter => shape.keys = Some(8),
    }
    shape
}

struct Trial {
    seed: u64,
    txns: u64,
}

impl Visit for Trial {
    type Output = Result<Outcome, String>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Result<Outcome, String> {
        let plan = plan(self.seed, self.txns);
        trial::run(workload, &plan, None, Level::Strict).map_err(|why| why.to_string())
    }
}

/// Runs a workload with one seed.
pub(super) fn run_seed(args: &SimArgs, kind: Kind, seed: u64) -> SeedResult {
    let txns = args.txns.unwrap_or(TXNS);
    let run = |txns| kind.visit(&shape(kind), Trial { seed, txns }).and_then(|outcome| outcome);
    match run(txns) {
        Err(why) => SeedResult { wrong: vec![why], ..SeedResult::default() },
        Ok(outcome) => {
            let wrong = wrong(&outcome).map(|why| explain(kind, seed, txns, &why, &run));
            SeedResult {
                digest: outcome.digest,
                committed: outcome.tally.committed(),
                aborted: outcome.tally.aborted(),
                unknown: outcome.tally.unknown(),
                note: format!(
                    "{} committed, {} aborted, {}",
                    outcome.tally.committed(),
                    outcome.tally.aborted(),
                    outcome.report.verdict
                ),
                wrong: wrong.into_iter().collect(),
                ..SeedResult::default()
            }
        }
    }
}

fn wrong(outcome: &Outcome) -> Option<String> {
    if let Some(anomaly) = outcome.report.anomalies.first() {
        let found = &outcome.report.found;
        return Some(format!("{found:?}, as {:?} {}", anomaly.transactions, anomaly.why));
    }
    if outcome.report.undecided > 0 {
        return Some(format!("{} reads could not be judged", outcome.report.undecided));
    }
    outcome.invariants.clone().err()
}

/// What went wrong, and a shorter run that goes wrong, too.
fn explain(
    kind: Kind,
    seed: u64,
    txns: u64,
    why: &str,
    run: &dyn Fn(u64) -> Result<Outcome, String>,
) -> String {
    let mut fewest = txns;
    while fewest > 1 && run(fewest / 2).map_or(true, |outcome| wrong(&outcome).is_some()) {
        fewest /= 2;
    }
    format!(
        "{why}
              replay: farside sim --workload {} --seed {seed} --txns {fewest}",
        kind.name()
    )
}
