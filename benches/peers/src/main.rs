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
    #[command(flatten)]
    shape: Sizes,
    /// Commits survive the power
    #[arg(long)]
    sync: bool,
    /// A directory for its files, which is made and removed again
    dir: PathBuf,
}

/// Size and shape of a workload, where it has them; what is not given is as Farside has it.
#[derive(clap::Args)]
struct Sizes {
    /// Accounts (smallbank)
    #[arg(long)]
    accounts: Option<u64>,
    /// Subscribers (tatp)
    #[arg(long)]
    subscribers: Option<u64>,
    /// Keys (kvs)
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes of a value (kvs)
    #[arg(long)]
    value_size: Option<usize>,
    /// How uneven keys are chosen: 0 evenly, 0.99 as usual (kvs)
    #[arg(long)]
    skew: Option<f64>,
    /// How many of a hundred transactions only read (kvs)
    #[arg(long)]
    read_share: Option<u64>,
    /// How many of a hundred objects a transaction only reads that writes others (kvs)
    #[arg(long)]
    mixed: Option<u64>,
    /// Objects of a transaction (kvs)
    #[arg(long)]
    objects: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Store {
    Fjall,
    Lmdb,
    LmdbWritemap,
    Redb,
    /// SmallBank, TATP, and keys and values
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
    let rate = kind.visit(&args.shape(), Run(&args)).map_err(|why| anyhow!(why)).flatten();
    std::fs::remove_dir_all(&args.dir)?;
    println!("{:.0}", rate?);
    Ok(())
}

impl Args {
    fn shape(&self) -> Shape {
        let Sizes { accounts, subscribers, keys, value_size, skew, read_share, mixed, objects } =
            self.shape;
        let threads = self.threads as u64;
        Shape {
            keys,
            value_size,
            skew,
            read_share,
            mixed,
            objects,
            accounts,
            subscribers,
            threads,
        }
    }

    /// How Redis is driven.
    fn redis(&self) -> Result<redis::Plan> {
        ensure!(!self.sync, "redis: expected no --sync");
        let span = Duration::from_secs_f64(self.seconds);
        let depth = self.coordinators.max(1);
        Ok(redis::Plan { dir: self.dir.clone(), threads: self.threads, depth, span })
    }
}

struct Run<'a>(&'a Args);

impl Visit for Run<'_> {
    type Output = Result<f64>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Result<f64> {
        let (dir, sync): (&Path, bool) = (&self.0.dir, self.0.sync);
        match self.0.store {
            Store::Fjall => self.on(fjall::Fjall::open(dir, sync)?, workload),
            Store::Redis => self.0.redis()?.run_any(Box::new(workload)),
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
