//! What SmallBank transactions cost, in instructions: by kind and by phase, and what a transaction, a round trip and a verb of each preset
//! take, which is what simulated threads pay for our code (`crates/workloads/src/engine/code.rs`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

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

const PRESETS: [&str; 5] = ["farside", "ford-lv", "ford", "drtm-h", "farm"];

/// One kind of transaction: its instructions, and what it posts.
struct Counted {
    instructions: f64,
    round_trips: f64,
    verbs: f64,
}

pub(crate) fn run() -> Result<()> {
    let build =
        ["build", "--release", "--package", "farside-workloads", "--example", "smallbank_cost"];
    step("build of smallbank_cost", &mut cargo(&build))?;
    let program = root().join("target/release/examples/smallbank_cost");
    let profile = root().join("target/smallbank_cost.callgrind");
    println!("instructions of a SmallBank transaction on local, 3 copies, one thread");
    for (number, kind) in KINDS.iter().enumerate() {
        let counted = count(&program, number, "farside", 3, &profile)?;
        println!("{kind:<22} {:>7.0}", counted.instructions);
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
    println!(
        "2 copies: the mix; of each transaction, round trip and verb (fitted); off by at most"
    );
    for preset in PRESETS {
        let kinds = 0..KINDS.len();
        let all: Vec<Counted> =
            kinds.map(|kind| count(&program, kind, preset, 2, &profile)).collect::<Result<_>>()?;
        let (mix, kinds) = all.split_last().context("there are kinds")?;
        let [transaction, round_trip, verb] = fit(kinds).context("kinds that are alike")?;
        let fitted = |it: &Counted| transaction + round_trip * it.round_trips + verb * it.verbs;
        let off = kinds.iter().map(|it| (fitted(it) / it.instructions - 1.0).abs());
        println!(
            "{preset:<22} {:>7.0} {transaction:>7.0} {round_trip:>5.0} {verb:>4.0} {:>4.1} %",
            mix.instructions,
            off.fold(0.0, f64::max) * 100.0
        );
    }
    Ok(())
}

fn count(
    program: &Path,
    kind: usize,
    preset: &str,
    copies: u64,
    profile: &Path,
) -> Result<Counted> {
    let args = [kind.to_string(), TXNS.to_string(), preset.to_owned(), copies.to_string()];
    let mut run = Command::new("valgrind");
    run.args(["--tool=callgrind", "--toggle-collect=*smallbank_cost*one*"]);
    run.arg(format!("--callgrind-out-file={}", profile.display()));
    let instructions = collected(run.arg(program).args(&args))? as f64 / TXNS as f64;
    let printed = output(Command::new(program).args(&args))?;
    let numbers: Vec<f64> = printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(numbers.len() == 3, "expected round trips, doorbells and verbs: {printed}");
    Ok(Counted { instructions, round_trips: numbers[0], verbs: numbers[2] })
}

/// The three figures that come nearest, by least squares.
fn fit(counted: &[Counted]) -> Option<[f64; 3]> {
    let mut rows = [[0.0; 4]; 3];
    for it in counted {
        let terms = [1.0, it.round_trips, it.verbs, it.instructions];
        for (row, term) in rows.iter_mut().zip(terms) {
            row.iter_mut().zip(terms).for_each(|(sum, other)| *sum += term * other);
        }
    }
    for at in 0..3 {
        let row = rows[at].map(|value| value / rows[at][at]);
        if !row[3].is_finite() {
            return None;
        }
        rows[at] = row;
        for (_, other) in rows.iter_mut().enumerate().filter(|(number, _)| *number != at) {
            let factor = other[at];
            other.iter_mut().zip(row).for_each(|(value, own)| *value -= factor * own);
        }
    }
    Some(rows.map(|row| row[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linear_is_found() {
        let all = [(1.0, 4.0), (3.0, 9.0), (3.0, 27.0), (4.0, 11.0)];
        let counted = all.map(|(round_trips, verbs)| Counted {
            instructions: 5000.0 + 900.0 * round_trips + 700.0 * verbs,
            round_trips,
            verbs,
        });
        let found = fit(&counted).unwrap().map(f64::round);
        assert_eq!(found, [5000.0, 900.0, 700.0]);
    }
}
