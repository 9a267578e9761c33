//! What a doorbell costs, in instructions: exact, and the same on a busy machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::shell::{cargo, root, step};

/// The most instructions that an awaited doorbell of four verbs may cost over the bare copies.
const LIMIT: u64 = 400;

/// Counted over this many rounds more, so that start-up drops out.
const ROUNDS: u64 = 10_000;

pub(crate) fn run() -> Result<()> {
    let build = ["build", "--release", "--package", "farside-fabric", "--example", "doorbell_cost"];
    step("build of doorbell_cost", &mut cargo(&build))?;
    let program = root().join("target/release/examples/doorbell_cost");
    let copies = per_round(&program, "copies")?;
    eprintln!("bare copies of the same words:   {copies} instructions");
    for fabric in ["local", "shm"] {
        let doorbell = per_round(&program, fabric)?;
        let over = doorbell.saturating_sub(copies);
        eprintln!(
            "awaited doorbell of 4 verbs on {fabric:<6} {doorbell} instructions, {over} over the copies"
        );
        ensure!(
            over < LIMIT,
            "a doorbell on {fabric} costs {over} instructions, the limit is {LIMIT}"
        );
    }
    Ok(())
}

fn per_round(program: &Path, mode: &str) -> Result<u64> {
    let (few, many) = (count(program, mode, ROUNDS)?, count(program, mode, 2 * ROUNDS)?);
    Ok((many - few) / ROUNDS)
}

/// All instructions of a run.
fn count(program: &Path, mode: &str, rounds: u64) -> Result<u64> {
    let mut run = Command::new("valgrind");
    run.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    collected(run.arg(program).args([mode, &rounds.to_string()]))
}

/// The instructions that callgrind says it has counted.
pub(crate) fn collected(run: &mut Command) -> Result<u64> {
    let output = run.stdout(Stdio::null()).output().context("starting valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, number) =
        collected.with_context(|| format!("no count in what valgrind said: {said}"))?;
    Ok(number.trim().parse()?)
}
