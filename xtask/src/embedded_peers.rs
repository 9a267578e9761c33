//! SmallBank beside LMDB and RocksDB, in one run: nobody syncs, everybody has two threads.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::median;
use crate::shell::{cargo, output, root, step, which};

const TRIES: usize = 3;
const THREADS: u32 = 2;
const ACCOUNTS: u64 = 200_000;
const SECONDS: u32 = 4;

pub(crate) fn run() -> Result<()> {
    ensure!(which("g++").is_some(), "needs g++, liblmdb-dev and librocksdb-dev");
    let peer = root().join("target/peer-smallbank");
    let source = root().join("xtask/peers/smallbank.cc");
    let mut build = Command::new("g++");
    build.args(["-O2", "-std=c++17", "-o"]).arg(&peer).arg(&source);
    build.args(["-llmdb", "-lrocksdb", "-lpthread"]);
    step("build of the peers (needs liblmdb-dev and librocksdb-dev)", &mut build)?;
    step("build", &mut cargo(&["build", "--release", "--package", "farside-cli"]))?;
    let mut found: [(&str, Vec<f64>); 4] =
        ["farside", "lmdb", "lmdb-writemap", "rocksdb"].map(|name| (name, Vec::new()));
    for _ in 0..TRIES {
        for (name, rates) in &mut found {
            rates.push(if *name == "farside" { farside()? } else { peer_rate(&peer, name)? });
        }
    }
    let rates = found.map(|(name, rates)| (name, median(rates)));
    let ours = rates[0].1;
    println!(
        "SmallBank, {ACCOUNTS} accounts, {THREADS} threads, median of {TRIES} alternating tries"
    );
    for (name, rate) in rates {
        println!("{name:<14} {rate:>10.0} per second   farside is {:.2} ×", ours / rate);
    }
    // What maps its file for writing takes a crash of the process for a damaged file.
    let best = rates[1].1.max(rates[3].1);
    ensure!(ours >= 3.0 * best, "less than three times the best of LMDB (NOSYNC) and RocksDB");
    Ok(())
}

fn farside() -> Result<f64> {
    let mut bench = Command::new(root().join("target/release/farside"));
    bench.args(["bench", "smallbank", "--json", "--threads", &THREADS.to_string()]);
    bench.args(["--seconds", &SECONDS.to_string(), "--accounts", &ACCOUNTS.to_string()]);
    let report: serde_json::Value = serde_json::from_str(&output(&mut bench)?)?;
    ensure!(report["invariants"] == "ok", "the books do not balance: {report}");
    report["throughput_tps"].as_f64().context("no rate")
}

fn peer_rate(program: &std::path::Path, store: &str) -> Result<f64> {
    // In memory, as ours is.
    let dir = std::path::PathBuf::from(format!("/dev/shm/farside-peer-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let mut peer = Command::new(program);
    peer.arg(store).arg(&dir).args([
        ACCOUNTS.to_string(),
        THREADS.to_string(),
        SECONDS.to_string(),
    ]);
    let said = output(&mut peer);
    std::fs::remove_dir_all(&dir)?;
    Ok(said?.trim().parse()?)
}
