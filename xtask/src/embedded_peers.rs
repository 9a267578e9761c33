//! Farside's workloads beside other stores, in one run: without syncs, and with one for every commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::median;
use crate::setup::{ensure_program, install};
use crate::shell::{cargo, output, root, step};

const TRIES: usize = 3;
const SECONDS: u32 = 4;

/// A store, its threads, and what it is called.
type Peer = (&'static str, u32, &'static str);

/// One that maps its file for writing takes a crash of the process for a damaged file: it does not count.
const MAPPED: &str = "LMDB, NO_SYNC and WRITE_MAP";

/// Nobody syncs; peers are on tmpfs, in memory as ours is.
pub(crate) fn run() -> Result<()> {
    let at_least = 5.0;
    compare(&["--threads", "2"], EMBEDDED, None, at_least)
}

const EMBEDDED: &[Peer] = &[
    ("lmdb", 2, "LMDB, NO_SYNC"),
    ("lmdb-writemap", 2, MAPPED),
    ("rocksdb", 2, "RocksDB, OptimisticTransactionDB, no log"),
    ("fjall", 2, "fjall, OptimisticTxDatabase, no sync"),
    ("redb", 2, "redb, Durability::None"),
    ("sqlite", 2, "SQLite, WAL, synchronous OFF"),
];

/// Every workload, on every store and on every fabric.
pub(crate) fn all() -> Result<()> {
    const OURS: [(&str, &[&str]); 5] = [
        ("farside, local, 3 copies", &["--fabric", "local"]),
        ("farside, shm, 3 copies", &["--fabric", "shm"]),
        ("farside, tcp, 1 copy", &["--fabric", "tcp", "--replicas", "1"]),
        ("farside, tcp, 3 copies", &["--fabric", "tcp"]),
        ("farside, tcp, 3 copies, 64 at a time", &["--fabric", "tcp", "--coordinators", "64"]),
    ];
    const WORKLOADS: [(&str, &[&str]); 3] = [
        ("smallbank", &["--accounts", "200000"]),
        ("tatp", &["--subscribers", "50000"]),
        ("kvs", &["--keys", "200000"]),
    ];
    let peers = build()?;
    let mut redis_is_there = true;
    for (workload, size) in WORKLOADS {
        println!("{workload}, 2 threads, transactions per second, measured");
        for (name, options) in OURS {
            let options = [options, &["--threads", "2"], size].concat();
            println!("  {name:<46} {:>10.0}", farside(workload, &options, None)?);
        }
        for peer in EMBEDDED {
            println!("  {:<46} {:>10.0}", peer.2, peer_rate(&peers, workload, peer, size, None)?);
        }
        for (name, under_way) in [("Redis, one at a time", "1"), ("Redis, 8 at a time", "8")] {
            redis_is_there &= ensure_program("redis-server", "redis-server");
            if redis_is_there {
                let size = [&["--coordinators", under_way], size].concat();
                let rate = peer_rate(&peers, workload, &("redis", 2, name), &size, None)?;
                println!("  {name:<46} {rate:>10.0}");
            }
        }
    }
    Ok(())
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

const SIZE: [&str; 2] = ["--accounts", "200000"];

/// What the package with RocksDB brings.
const ROCKSDB: &str = "/usr/include/rocksdb/c.h";

/// The program with the peers; the command is built, too.
fn build() -> Result<PathBuf> {
    if !Path::new(ROCKSDB).exists() && !install("librocksdb-dev") {
        eprintln!("── {ROCKSDB} is not there; install the package librocksdb-dev");
    }
    let manifest = root().join("benches/peers/Cargo.toml");
    let target = root().join("target/peers");
    let mut build = cargo(&["build", "--release", "--locked", "--manifest-path"]);
    build.arg(manifest).env("CARGO_TARGET_DIR", &target);
    step("build of the peers", &mut build)?;
    step("build", &mut cargo(&["build", "--release", "--package", "farside-cli"]))?;
    Ok(target.join("release/farside-peers"))
}

/// SmallBank: alternates between all of them; with a directory, everybody syncs there.
fn compare(ours: &[&str], peers: &[Peer], disk: Option<PathBuf>, at_least: f64) -> Result<()> {
    let program = build()?;
    let (mut rates, mut peer_rates) = (Vec::new(), vec![Vec::new(); peers.len()]);
    let ours = [ours, &SIZE].concat();
    for _ in 0..TRIES {
        rates.push(farside("smallbank", &ours, disk.as_deref())?);
        for (peer, rates) in peers.iter().zip(&mut peer_rates) {
            rates.push(peer_rate(&program, "smallbank", peer, &SIZE, disk.as_deref())?);
        }
    }
    let ours = median(rates);
    println!("SmallBank, {} accounts, median of {TRIES} alternating tries, measured", SIZE[1]);
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

fn farside(workload: &str, options: &[&str], disk: Option<&Path>) -> Result<f64> {
    let mut bench = Command::new(root().join("target/release/farside"));
    bench.args(["bench", workload, "--json"]).args(options);
    bench.args(["--seconds", &SECONDS.to_string()]);
    if let Some(disk) = disk {
        // Where its node keeps its journal.
        bench.env("TMPDIR", disk);
    }
    let report: serde_json::Value = serde_json::from_str(&output(&mut bench)?)?;
    ensure!(report["invariants"] == "ok", "the books do not balance: {report}");
    report["throughput_tps"].as_f64().context("no rate")
}

fn peer_rate(
    program: &Path,
    workload: &str,
    (store, threads, _): &Peer,
    options: &[&str],
    disk: Option<&Path>,
) -> Result<f64> {
    let place = disk.unwrap_or(Path::new("/dev/shm"));
    let mut peer = Command::new(program);
    peer.args([workload, "--store", store, "--threads", &threads.to_string()]);
    peer.args(["--seconds", &SECONDS.to_string()]).args(options);
    if disk.is_some() {
        peer.arg("--sync");
    }
    peer.arg(place.join(format!("farside-peer-{}", std::process::id())));
    Ok(output(&mut peer)?.trim().parse()?)
}
