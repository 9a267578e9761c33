//! What SmallBank transactions cost, in instructions, by kind and by phase.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cost::collected;
use crate::shell::{cargo, output, root, step};

const TXNS: u64 = 2000;

const KINDS: [&str; 7] = [
    "amalgamate",
    "balance",
    "deposit-checking",
    "send-payment",
    "transact-savings",
    "write-check",
    "the mix",
];

/// Phases by the functions that they are, callees included.
const PHASES: [(&str, &str); 6] = [
    ("find and execute", "farside_index::tx::Tx::look::"),
    ("  of that, execute", "farside_txn::txn::Txn>::access::"),
    ("write", "farside_index::tx::Tx::put::"),
    ("commit", "farside_index::tx::Tx::commit::"),
    ("  of that, validate", "farside_txn::txn::Txn>::validate::"),
    ("  of that, release", "farside_txn::release::Release::detach"),
];

pub(crate) fn run() -> Result<()> {
    let build =
        ["build", "--release", "--package", "farside-workloads", "--example", "smallbank_cost"];
    step("build of smallbank_cost", &mut cargo(&build))?;
    let program = root().join("target/release/examples/smallbank_cost");
    let profile = root().join("target/smallbank_cost.callgrind");
    println!("instructions of a SmallBank transaction on local, 3 copies, one thread");
    for (number, kind) in KINDS.iter().enumerate() {
        println!("{kind:<22} {:>7}", count(&program, number, &profile)? / TXNS);
    }
    let mut annotate = Command::new("callgrind_annotate");
    annotate.args(["--inclusive=yes", "--threshold=100"]).arg(&profile);
    let lines = output(&mut annotate)?;
    println!("the mix, by phase");
    for (phase, function) in PHASES {
        let line = lines.lines().filter(|line| line.contains('[')).find(|l| l.contains(function));
        let count = line.and_then(|line| line.trim().split(' ').next());
        let count: u64 = count.context("a phase is missing")?.replace(',', "").parse()?;
        println!("{phase:<22} {:>7}", count / TXNS);
    }
    Ok(())
}

fn count(program: &Path, kind: usize, profile: &Path) -> Result<u64> {
    let mut run = Command::new("valgrind");
    run.args(["--tool=callgrind", "--toggle-collect=*smallbank_cost*one*"]);
    run.arg(format!("--callgrind-out-file={}", profile.display()));
    collected(run.arg(program).args([kind.to_string(), TXNS.to_string()]))
}
