//! Chores of this repository: `cargo xtask` lists them.

mod cost;
mod determinism;
mod embedded_peers;
mod initramfs;
mod peers;
mod power;
mod programs;
mod rdma;
mod sanitize;
mod setup;
mod shell;
mod tcp_peers;
mod test;
mod txn_cost;
mod ucx;
mod vm;

use std::process::ExitCode;

use anyhow::Result;

/// A chore: its name, what it does, and how.
type Chore = (&'static str, &'static str, fn() -> Result<()>);

const CHORES: &[Chore] = &[
    ("test", "install what the tests need, then run all of them: this is what CI runs", test::run),
    ("cost", "count the instructions of a doorbell (needs valgrind)", cost::run),
    ("loom", "model-check the small concurrent pieces", test::loom),
    (
        "determinism",
        "compare the simulator's digests in debug and release builds",
        determinism::run,
    ),
    (
        "sanitize",
        "run the fabric's tests under sanitizers (needs a nightly toolchain)",
        sanitize::run,
    ),
    ("rdma-test", "run the RDMA tests on soft-RoCE in a virtual machine (needs QEMU)", rdma::run),
    (
        "power-test",
        "kill a virtual machine that has a database in a file, again and again",
        power::run,
    ),
    ("compare-ucx", "measure READ and CAS over shm beside UCX's (needs ucx-utils)", ucx::run),
    ("compare-tcp", "measure verbs over tcp beside UCX's and a bare ping-pong", tcp_peers::run),
    (
        "compare-embedded",
        "measure SmallBank beside LMDB, RocksDB, fjall, redb and SQLite (needs librocksdb-dev)",
        embedded_peers::run,
    ),
    (
        "compare-peers",
        "measure SmallBank, TATP and kvs on all fabrics beside all peers, Redis among them",
        embedded_peers::all,
    ),
    ("compare-durable", "the same with commits that survive the power", embedded_peers::durable),
    (
        "txn-cost",
        "count the instructions of SmallBank transactions (needs valgrind)",
        txn_cost::run,
    ),
];

fn main() -> ExitCode {
    let asked = std::env::args().nth(1);
    let Some((_, _, chore)) = CHORES.iter().find(|(name, ..)| Some(*name) == asked.as_deref())
    else {
        eprintln!("usage: cargo xtask CHORE");
        CHORES.iter().for_each(|(name, what, _)| eprintln!("  {name:<16} {what}"));
        return ExitCode::from(2);
    };
    match chore() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
