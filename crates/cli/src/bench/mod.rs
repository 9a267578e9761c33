//! `farside bench`: workloads on fabrics.

mod clients;
mod measure;
mod place;
mod report;
mod txn_report;
mod txns;
mod verbs;

pub(crate) use clients::{ClientArgs, run_client};

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use farside_workloads::load::Kind;

use crate::credentials::Credentials;
use crate::durability::Durability;
use crate::fabric_arg::FabricArg;
use crate::level::LevelArg;
use crate::protocol::{ProtocolArg, TechniqueArg};
use crate::rdma_args::RdmaArgs;
use crate::shape::ShapeArgs;

/// Options of `farside bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    workload: Workload,

    /// Where the memory is: `local` (this process), `shm` (shared between processes), `tcp` (a
    /// memory node process), `rdma` (the same, through this machine's NIC), or `sim:PROFILE` (simulated: `sim:connectx-5`; `sim:connectx-5+pm` with persistent memory)
    #[arg(long, default_value = "local")]
    fabric: FabricArg,

    /// How transactions are made (all but verbs)
    #[arg(long, default_value = "farside")]
    protocol: ProtocolArg,

    /// What transactions promise (all but verbs)
    #[arg(long, default_value = "strict")]
    level: LevelArg,

    /// Switch a technique off, to see what it is worth (repeatable; of those that the protocol has)
    #[arg(long)]
    without: Vec<TechniqueArg>,

    /// What a commit that was reported survives: with flush, nodes keep journals (all but verbs; tcp)
    #[arg(long, default_value = "none")]
    durability: Durability,

    /// Copies of each region, the primary included (all but verbs; the reference engine has one)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=5))]
    replicas: u16,

    /// Memory nodes (all but verbs; the reference engine has none) [default: as many as replicas]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    nodes: Option<u16>,

    /// Tasks of each thread (all but verbs)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    coordinators: u16,

    /// Transactions that arrive in a second, over all coordinators (all but verbs) [default: each begins
    /// when the one before is over]
    #[arg(long, value_parser = arrivals)]
    rate: Option<f64>,

    /// Do not begin aborted transactions again: the next one is another, and latencies are those of single attempts
    /// (all but verbs)
    #[arg(long)]
    drop_aborted: bool,

    /// Let threads pay for the code between verbs, too, by the instructions that were counted, and not for verbs and
    /// switches alone (simulated)
    #[arg(long)]
    charge_code: bool,

    /// Write what every attempt did and saw to this file, for `farside check` (all but verbs)
    #[arg(long)]
    history: Option<PathBuf>,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Client processes (shm, tcp, rdma), or machines (sim)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    compute: u16,

    /// Threads of each process [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,

    /// How long to measure, over all lines of the result; virtual time in the simulator
    /// [default: 10, simulated 0.01]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,

    /// Run this many transactions over all coordinators, instead of a time; for verbs so many per line and
    /// thread
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    txns: Option<u64>,

    /// Use a running memory node (verbs: tcp:HOST:PORT or rdma:HOST:PORT), or a running cluster (any database
    /// URL), instead of starting one
    #[arg(long)]
    connect: Option<String>,

    #[command(flatten)]
    credentials: Credentials,

    #[command(flatten)]
    rdma: RdmaArgs,

    /// Everything random derives from it
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only this verb (verbs; repeatable) [default: all]
    #[arg(long)]
    verb: Vec<verbs::Verb>,

    /// Only this size in bytes (verbs; repeatable) [default: 8, 64, 512, 4096]
    #[arg(long)]
    bytes: Vec<usize>,

    /// Only this many rounds in flight at once per thread (verbs; repeatable) [default: 1, 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    outstanding: Vec<u32>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy)]
enum Workload {
    Verbs,
    Txns(Kind),
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Self] {
        use Kind::{Counter, Kvs, ListAppend, MultiGet, SmallBank, Tatp, Transfer};
        const ALL: [Workload; 8] = [
            Workload::Verbs,
            Workload::Txns(Kvs),
            Workload::Txns(SmallBank),
            Workload::Txns(Tatp),
            Workload::Txns(ListAppend),
            Workload::Txns(Counter),
            Workload::Txns(Transfer),
            Workload::Txns(MultiGet),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = match self {
            Workload::Verbs => ("verbs", "Raw READ, WRITE, CAS, FAA and FLUSH"),
            Workload::Txns(kind) => (kind.name(), kind.about()),
        };
        Some(PossibleValue::new(name).help(about))
    }
}

fn arrivals(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected transactions per second between 0.001 and 1000000000".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds between 0.0001 and 86400".into()),
    }
}

/// Runs `farside bench`.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    match args.workload {
        Workload::Verbs => verbs::run(args),
        Workload::Txns(kind) => txns::run(args, kind),
    }
}

impl BenchArgs {
    /// The running memory node to use, if one was given.
    fn node(&self) -> Result<Option<&str>> {
        let Some(url) = &self.connect else {
            ensure!(!self.credentials.given(), "a secret or TLS is for a running node: --connect");
            return Ok(None);
        };
        let address = url.strip_prefix(&format!("{}:", self.fabric));
        let expected = || format!("--connect {url}: expected {}:HOST:PORT", self.fabric);
        address.map(Some).with_context(expected)
    }

    fn seconds(&self) -> f64 {
        let usual = if self.fabric.profile().is_some() { 0.01 } else { 10.0 };
        self.seconds.unwrap_or(usual)
    }

    fn threads(&self) -> usize {
        match self.threads {
            Some(threads) => threads.into(),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
