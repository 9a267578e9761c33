//! Farside's own workloads on other stores, in this process: `farside-peers smallbank --store rocksdb --threads 2 DIR`.
//!
//! Nobody syncs, unless `--sync` says that a commit that was reported must survive the power.

mod fjall;
mod lmdb;
mod peer;
mod redb_store;
mod redis;
mod rocksdb;
mod rocksdb_ffi;
mod sqlite;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Parser, ValueEnum};
use farside_fabric::Worker;
use farside_workloads::driver::{self, Control, Plan, Until};
use farside_workloads::engine::Engine;
use farside_workloads::load::{Kind, Shape, Visit, Workload};

use crate::peer::{Blocking, Peer};

/// Runs a workload on another store, and prints transactions per second.
#[derive(Parser)]
struct Args {
    /// Which workload: smallbank, tatp or kvs
    workload: String,
    /// On which store
    #[arg(long)]
    store: Store,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// How long
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Requests that a thread has under way at a time (redis)
    #[arg(long, default_value_t = 1)]
    coordinators: usize,
    /// How many accounts SmallBank has
    #[arg(long)]
    accounts: Option<u64>,
    /// Commits survive the power
    #[arg(long)]
    sync: bool,
    /// A directory for its files, which is made and removed again
    dir: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Store {
    Fjall,
    Lmdb,
    LmdbWritemap,
    Redb,
    /// SmallBank alone
    Redis,
    Rocksdb,
    Sqlite,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let named = Kind::ALL.into_iter().find(|kind| kind.name() == args.workload);
    let kind = named.with_context(|| format!("'{}': no such workload", args.workload))?;
    ensure!(!args.dir.exists(), "{}: expected a directory that is not there", args.dir.display());
    std::fs::create_dir_all(&args.dir)?;
    let shape = Shape { accounts: args.accounts, threads: args.threads as u64, ..Shape::default() };
    let rate = match args.store {
        Store::Redis => run_redis(&args),
        _ => kind.visit(&shape, Run(&args)).map_err(|why| anyhow!(why)).flatten(),
    };
    std::fs::remove_dir_all(&args.dir)?;
    println!("{:.0}", rate?);
    Ok(())
}

fn run_redis(args: &Args) -> Result<f64> {
    ensure!(
        args.workload == "smallbank" && !args.sync,
        "redis: expected smallbank, without --sync"
    );
    let (accounts, span) =
        (args.accounts.unwrap_or(200_000), Duration::from_secs_f64(args.seconds));
    redis::smallbank(&args.dir, accounts, args.threads, args.coordinators.max(1), span)
}

struct Run<'a>(&'a Args);

impl Visit for Run<'_> {
    type Output = Result<f64>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Result<f64> {
        let (dir, sync): (&Path, bool) = (&self.0.dir, self.0.sync);
        match self.0.store {
            Store::Fjall => self.on(fjall::Fjall::open(dir, sync)?, workload),
            Store::Redis => Err(anyhow!("redis has a program of its own")),
            Store::Lmdb => self.on(lmdb::Lmdb::open(dir, sync, false)?, workload),
            Store::LmdbWritemap => self.on(lmdb::Lmdb::open(dir, sync, true)?, workload),
            Store::Redb => self.on(redb_store::Redb::open(dir, sync)?, workload),
            Store::Rocksdb => self.on(rocksdb::RocksDb::open(dir, sync)?, workload),
            Store::Sqlite => self.on(sqlite::Sqlite::open(dir, sync)?, workload),
        }
    }
}

impl Run<'_> {
    fn on<P: Peer, W: Workload + Send + 'static>(&self, peer: P, workload: W) -> Result<f64> {
        let (engine, workload) = (Blocking(peer), Arc::new(workload));
        let worker = Worker::new(1);
        worker.block_on(workload.setup(&engine, &worker))?;
        let span = Duration::from_secs_f64(self.0.seconds);
        let plan = Plan {
            threads: self.0.threads,
            coordinators: 1,
            until: Until::Time(span),
            warmup: span / 10,
            rate: None,
            drops: false,
            seed: 1,
        };
        let tally = driver::run(&engine, &workload, &plan, &Arc::new(Control::default()), None)?;
        let checked = worker.block_on(workload.check(&mut engine.session(&worker)));
        checked.map_err(|why| anyhow!(why))?;
        Ok(tally.committed() as f64 / tally.seconds())
    }
}
