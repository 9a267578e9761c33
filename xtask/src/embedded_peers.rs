//! SmallBank beside other embedded stores, in one run: without syncs, and with one for every commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::median;
use crate::shell::{cargo, output, root, step};

const TRIES: usize = 3;
const ACCOUNTS: u64 = 200_000;
const SECONDS: u32 = 4;

/// A store, its threads, and what it is called.
type Peer = (&'static str, u32, &'static str);

/// One that maps its file for writing takes a crash of the process for a damaged file: it does not count.
const MAPPED: &str = "LMDB, NO_SYNC and WRITE_MAP";

/// Nobody syncs; peers are on tmpfs, in memory as ours is.
pub(crate) fn run() -> Result<()> {
    let peers: &[Peer] = &[
        ("lmdb", 2, "LMDB, NO_SYNC"),
        ("lmdb-writemap", 2, MAPPED),
        ("rocksdb", 2, "RocksDB, OptimisticTransactionDB, no log"),
        ("fjall", 2, "fjall, OptimisticTxDatabase, no sync"),
        ("redb", 2, "redb, Durability::None"),
        ("sqlite", 2, "SQLite, WAL, synchronous OFF"),
    ];
    let at_least = 3.0;
    compare(&["--threads", "2"], peers, None, at_least)
}

/// Commits survive the power: on the disk that the build is on.
pub(crate) fn durable() -> Result<()> {
    // One node process and one client: as many transactions at a time as the peer with the most threads.
    let ours = ["--fabric", "tcp", "--durability", "flush", "--nodes", "1", "--replicas", "1"];
    let ours = [&ours[..], &["--threads", "1", "--coordinators", "64"]].concat();
    let peers: &[Peer] = &[
        ("lmdb", 2, "LMDB, 2 threads"),
        ("redb", 2, "redb, 2 threads"),
        ("sqlite", 2, "SQLite, WAL, synchronous FULL, 2 threads"),
        ("rocksdb", 2, "RocksDB, OptimisticTransactionDB, 2 threads"),
        ("rocksdb", 64, "RocksDB, OptimisticTransactionDB, 64 threads"),
    ];
    let at_least = 2.0;
    compare(&ours, peers, Some(root().join("target")), at_least)
}

/// Alternates between all of them; with a directory, everybody syncs there.
fn compare(ours: &[&str], peers: &[Peer], disk: Option<PathBuf>, at_least: f64) -> Result<()> {
    let manifest = root().join("benches/peers/Cargo.toml");
    let target = root().join("target/peers");
    let mut build = cargo(&["build", "--release", "--locked", "--manifest-path"]);
    build.arg(manifest).env("CARGO_TARGET_DIR", &target);
    step("build of the peers (needs librocksdb-dev)", &mut build)?;
    step("build", &mut cargo(&["build", "--release", "--package", "farside-cli"]))?;
    let program = target.join("release/farside-peers");
    let (mut rates, mut peer_rates) = (Vec::new(), vec![Vec::new(); peers.len()]);
    for _ in 0..TRIES {
        rates.push(farside(ours, disk.as_deref())?);
        for (peer, rates) in peers.iter().zip(&mut peer_rates) {
            rates.push(peer_rate(&program, peer, disk.as_deref())?);
        }
    }
    let ours = median(rates);
    println!("SmallBank, {ACCOUNTS} accounts, median of {TRIES} alternating tries, measured");
    println!("{:<46} {ours:>10.0} per second", "farside");
    let mut best = 0.0f64;
    for ((_, _, name), rates) in peers.iter().zip(peer_rates) {
        let rate = median(rates);
        if *name != MAPPED {
            best = best.max(rate);
        }
        println!("{name:<46} {rate:>10.0} per second   farside is {:.2} ×", ours / rate);
    }
    ensure!(ours >= at_least * best, "less than {at_least} times the best of the others");
    Ok(())
}

fn farside(options: &[&str], disk: Option<&Path>) -> Result<f64> {
    let mut bench = Command::new(root().join("target/release/farside"));
    bench.args(["bench", "smallbank", "--json"]).args(options);
    bench.args(["--seconds", &SECONDS.to_string(), "--accounts", &ACCOUNTS.to_string()]);
    if let Some(disk) = disk {
        // Where its node keeps its journal.
        bench.env("TMPDIR", disk);
    }
    let report: serde_json::Value = serde_json::from_str(&output(&mut bench)?)?;
    ensure!(report["invariants"] == "ok", "the books do not balance: {report}");
    report["throughput_tps"].as_f64().context("no rate")
}

fn peer_rate(program: &Path, (store, threads, _): &Peer, disk: Option<&Path>) -> Result<f64> {
    let place = disk.unwrap_or(Path::new("/dev/shm"));
    let mut peer = Command::new(program);
    peer.args(["smallbank", "--store", store, "--threads", &threads.to_string()]);
    peer.args(["--seconds", &SECONDS.to_string(), "--accounts", &ACCOUNTS.to_string()]);
    if disk.is_some() {
        peer.arg("--sync");
    }
    peer.arg(place.join(format!("farside-peer-{}", std::process::id())));
    Ok(output(&mut peer)?.trim().parse()?)
}
