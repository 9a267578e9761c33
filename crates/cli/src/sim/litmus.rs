//! The litmus programs as a workload.

use farside_sim::litmus::{Litmus, PROGRAMS, Scenario, Style};

use super::{STEPS, SeedResult, SimArgs};

/// Runs the chosen programs with one seed.
pub(super) fn run_seed(args: &SimArgs, seed: u64) -> SeedResult {
    let style = if args.careless { Style::Careless } else { Style::Careful };
    let steps = args.txns.unwrap_or(STEPS);
    let scenario = Scenario { seed, steps, faults: args.faults, style };
    let mut result = SeedResult::default();
    let chosen: Vec<&'static Litmus> =
        if args.program.is_empty() { PROGRAMS.iter().collect() } else { args.program.clone() };
    for program in chosen {
        let outcome = program.run(&scenario, args.trace);
        result.digest = result.digest.rotate_left(17) ^ outcome.digest;
        for (kind, count) in outcome.struck {
            *result.struck.entry(kind).or_default() += count;
        }
        result.trace.extend(outcome.trace);
        match outcome.violation {
            None => result.committed += 1,
            Some(why) => result.wrong.push(explain(program, &scenario, &why)),
        }
    }
    result.note = format!("{} runs", result.committed);
    result
}

/// What went wrong, and a smaller run that goes wrong, too.
fn explain(program: &Litmus, failing: &Scenario, why: &str) -> String {
    let small = program.shrink(failing);
    let faults = small.faults.unwrap_or_else(|| program.faults());
    let careless = if failing.style == Style::Careless { " --careless" } else { "" };
    format!(
        "{name}: {why}
              it relied on: {relied} ({contract})
              replay: farside sim --workload litmus --program {name} --seed {seed} --txns {steps} --faults {faults}{careless} --trace",
        name = program.name,
        relied = program.careless,
        contract = program.contract,
        seed = small.seed,
        steps = small.steps,
    )
}
