//! Transactions in the simulator: their histories and invariants are checked.

use farside_sim::Faults;
use farside_workloads::load::Kind;
use farside_workloads::trial::{self, Outcome, Trial};

use super::{SeedResult, SimArgs};
use crate::durability::Durability;
use crate::level::LevelArg;

/// Transactions of a run.
const TXNS: u64 = 500;

/// Runs a workload with one seed.
pub(super) fn run_seed(args: &SimArgs, kind: Kind, seed: u64) -> SeedResult {
    let txns = args.txns.unwrap_or(TXNS);
    let phases = args.phases().ok().flatten();
    let (protocol, faults) = match phases {
        None => (trial::Protocol::Reference(None), Faults::none()),
        Some(phases) => {
            let usual = || "reorder,tear,delay=2000".parse().expect("names of faults");
            let faults = args.faults.unwrap_or_else(usual);
            let level = args.level.map_or_else(Default::default, LevelArg::promise);
            let protocol = match args.durability {
                Durability::None => {
                    trial::Protocol::Farside { phases, copies: 3, trap: None, level }
                }
                // Persistent memory and journals, in turn.
                Durability::Flush => {
                    let unordered = seed.is_multiple_of(2);
                    trial::Protocol::Durable { phases, unordered, copies: 3, trap: None }
                }
            };
            (protocol, faults)
        }
    };
    let run = |txns| {
        let trial = Trial { seed, txns, protocol, faults };
        kind.visit(&kind.simulated(), trial)?.map_err(|why| why.to_string())
    };
    let explain = |why: &str| explain(args, kind, seed, txns, why, &run);
    match run(txns) {
        Err(why) => SeedResult { wrong: vec![explain(&why)], ..SeedResult::default() },
        Ok(outcome) => {
            let wrong = outcome.wrong().map(|why| explain(&why));
            SeedResult {
                digest: outcome.digest,
                struck: outcome.struck,
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

/// What went wrong, and a shorter run that goes wrong, too.
fn explain(
    args: &SimArgs,
    kind: Kind,
    seed: u64,
    txns: u64,
    why: &str,
    run: &dyn Fn(u64) -> Result<Outcome, String>,
) -> String {
    let mut fewest = txns;
    while fewest > 1 && run(fewest / 2).map_or(true, |outcome| outcome.wrong().is_some()) {
        fewest /= 2;
    }
    let mut protocol = String::new();
    if let Some(preset) = args.protocol {
        protocol += &format!(" --protocol {}", preset.name());
    }
    for part in &args.without {
        protocol += &format!(" --without {}", part.0.name());
    }
    if let Some(faults) = args.faults {
        protocol += &format!(" --faults {faults}");
    }
    let durability = match args.durability {
        Durability::None => "",
        Durability::Flush => " --durability flush",
    };
    let level = args.level.map_or_else(String::new, |level| format!(" --level {}", level.name()));
    format!(
        "{why}
              replay: farside sim --workload {}{protocol}{level}{durability} --seed {seed} --txns {fewest}",
        kind.name()
    )
}
