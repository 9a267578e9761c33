//! `farside sim`: simulated clusters under faults.

mod litmus;
mod pool;
mod txns;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use farside_sim::Faults;
use farside_sim::litmus::{Litmus, PROGRAMS, STEPS};
use farside_txn::Protocol;
use farside_txn::protocol::Flush;
use farside_workloads::load::Kind;
use serde::Serialize;

use crate::durability::Durability;
use crate::level::LevelArg;
use crate::output::say;
use crate::progress::Progress;
use crate::protocol::{ProtocolArg, TechniqueArg};

/// Options of `farside sim`.
#[derive(Args)]
pub(crate) struct SimArgs {
    /// The seed to run: everything derives from it
    #[arg(long, conflicts_with = "seeds", default_value_t = 1)]
    seed: u64,

    /// Seeds to run: A..B (without B), or A..=B
    #[arg(long, value_parser = seeds)]
    seeds: Option<Seeds>,

    /// What the cluster does
    #[arg(long, default_value = "litmus")]
    workload: Workload,

    /// How transactions are made (workloads of transactions) [default: farside]
    #[arg(long)]
    protocol: Option<ProtocolArg>,

    /// Switch a technique off (repeatable; of those that the protocol has)
    #[arg(long)]
    without: Vec<TechniqueArg>,

    /// What transactions are promised, and histories are checked for [default: strict]
    #[arg(long)]
    level: Option<LevelArg>,

    /// What a commit that was reported survives: with flush, all machines and nodes lose their power at once, now and then, and nodes
    /// have again what was flushed (the protocol farside)
    #[arg(long, default_value = "none")]
    durability: Durability,

    /// What strikes it: none, all, or kinds with commas between, each perhaps with how often in a
    /// million opportunities (tear,delay=50000) [default: what each program needs; for a pool, beside the
    /// faults of its machines, reorder,tear,error,clock; for the protocol farside reorder,tear,delay=2000]
    #[arg(long)]
    faults: Option<Faults>,

    /// How many steps a litmus program takes [default: 60], how many faults strike a pool's machines
    /// [default: 12], or how many transactions run [default: 500]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    txns: Option<u64>,

    /// Only this litmus program (repeatable) [default: all]
    #[arg(long, value_parser = program)]
    program: Vec<&'static Litmus>,

    /// Let the litmus programs rely on a little more than is promised: they will go wrong
    #[arg(long)]
    careless: bool,

    /// Print the timeline of the run; for one seed and one program
    #[arg(long)]
    trace: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Workload {
    Litmus,
    Pool,
    Txns(Kind),
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Self] {
        use Kind::{Counter, Kvs, ListAppend, SmallBank, Tatp, Transfer};
        const ALL: [Workload; 8] = [
            Workload::Litmus,
            Workload::Pool,
            Workload::Txns(Kvs),
            Workload::Txns(SmallBank),
            Workload::Txns(Tatp),
            Workload::Txns(ListAppend),
            Workload::Txns(Counter),
            Workload::Txns(Transfer),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let about = match self {
            Workload::Litmus => "Small programs that rely on exactly what the fabric promises",
            Workload::Pool => {
                "A pool whose machines, clients, network and config store fail: never two primaries, \
                 and no region without one for long"
            }
            Workload::Txns(kind) => kind.about(),
        };
        Some(PossibleValue::new(self.name()).help(about))
    }
}

impl SimArgs {
    /// How transactions go through their phases; `None` is the reference engine.
    fn phases(&self) -> Result<Option<Protocol>> {
        let preset = self.protocol.unwrap_or(ProtocolArg::Preset(Protocol::FARSIDE));
        preset.protocol(&self.without)
    }
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Litmus => "litmus",
            Workload::Pool => "pool",
            Workload::Txns(kind) => kind.name(),
        }
    }
}

#[derive(Clone, Copy)]
struct Seeds {
    first: u64,
    count: u64,
}

fn seeds(text: &str) -> Result<Seeds, String> {
    let expected = || format!("'{text}': expected A..B or A..=B with A below B");
    let (first, rest) = text.split_once("..").ok_or_else(expected)?;
    let (last, inclusive) = rest.strip_prefix('=').map_or((rest, false), |last| (last, true));
    let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
    let (first, last) = (number(first)?, number(last)?);
    let end = if inclusive { last.checked_add(1).ok_or_else(expected)? } else { last };
    match end.checked_sub(first) {
        Some(count) if count > 0 => Ok(Seeds { first, count }),
        _ => Err(expected()),
    }
}

fn program(name: &str) -> Result<&'static Litmus, String> {
    Litmus::named(name).ok_or_else(|| {
        let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        format!("no such program; there are: {}", names.join(", "))
    })
}

/// What came of one seed.
#[derive(Default)]
struct SeedResult {
    digest: u64,
    struck: BTreeMap<&'static str, u64>,
    committed: u64,
    aborted: u64,
    unknown: u64,
    /// In a few words, if all is well.
    note: String,
    /// What went wrong, with the command that replays it; several lines each.
    wrong: Vec<String>,
    trace: Vec<String>,
}

#[derive(Serialize)]
struct Summary {
    workload: &'static str,
    simulated: bool,
    seeds: u64,
    ok: u64,
    failed: Vec<u64>,
    committed: u64,
    aborted: u64,
    unknown: u64,
    faults: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    probes: BTreeMap<&'static str, u64>,
    digest: String,
}

/// Options that do not go together.
fn check(args: &SimArgs, seeds: Seeds) -> Result<()> {
    let is_litmus = args.workload == Workload::Litmus;
    let one = seeds.count == 1 && (args.program.len() == 1 || !is_litmus);
    ensure!(!args.trace || one, "--trace needs --seed N, and for litmus one --program");
    let litmus_only = args.careless || !args.program.is_empty();
    let of_txns = matches!(args.workload, Workload::Txns(_));
    let verbless = args.protocol == Some(ProtocolArg::Reference);
    let protocol = args.phases()?;
    ensure!(
        !(verbless && args.faults.is_some()),
        "--faults: the reference engine posts no verbs that could be struck"
    );
    ensure!(!(of_txns && args.trace), "--trace is for litmus programs and pools");
    ensure!(
        of_txns || args.protocol.is_none() && args.without.is_empty(),
        "--protocol and --without are for workloads of transactions"
    );
    let is_durable = args.durability == Durability::Flush;
    let is_plain = !verbless && args.level.is_none();
    ensure!(
        !is_durable
            || of_txns && is_plain && !args.faults.is_some_and(|faults| faults.strikes_machines()),
        "--durability flush is for transactions of the protocol farside at its usual level, with faults of verbs; the power is what fails"
    );
    ensure!(
        !is_durable || protocol.is_none_or(|protocol| protocol.flush != Flush::Backups),
        "--durability flush: nodes come back with what they kept, and backups are flushed alone; expected --without selective-flush"
    );
    ensure!(
        args.level.is_none() || protocol.is_none_or(|protocol| protocol.opacity),
        "--level is for protocols with opacity"
    );
    ensure!(is_litmus || !litmus_only, "--program and --careless are for --workload litmus");
    Ok(())
}

/// Runs `farside sim`.
pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    let seeds = args.seeds.unwrap_or(Seeds { first: args.seed, count: 1 });
    check(args, seeds)?;
    let results = run_seeds(args, seeds);
    let mut summary = Summary {
        workload: args.workload.name(),
        simulated: true,
        seeds: seeds.count,
        ok: 0,
        failed: Vec::new(),
        committed: 0,
        aborted: 0,
        unknown: 0,
        faults: BTreeMap::new(),
        probes: BTreeMap::new(),
        digest: String::new(),
    };
    let mut digest = 0u64;
    for (seed, result) in (seeds.first..).zip(&results) {
        digest = (digest ^ result.digest).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        summary.committed += result.committed;
        summary.aborted += result.aborted;
        summary.unknown += result.unknown;
        for (kind, count) in &result.struck {
            *summary.faults.entry(kind).or_default() += count;
        }
        match result.wrong.is_empty() {
            true => summary.ok += 1,
            false => summary.failed.push(seed),
        }
        if !args.json {
            print_seed(seed, result);
        }
    }
    summary.probes = farside_fabric::probe::reached();
    summary.digest = format!("{digest:016x}");
    if args.json {
        say!("{}", serde_json::to_string(&summary)?);
    } else {
        let Summary { ok, seeds, digest, .. } = &summary;
        say!("{ok} of {seeds} seeds ok, digest {digest}, faults {:?}", summary.faults);
    }
    Ok(ExitCode::from(u8::from(!summary.failed.is_empty())))
}

/// All seeds, on all cores; each seed is a world of its own.
fn run_seeds(args: &SimArgs, seeds: Seeds) -> Vec<SeedResult> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let next = Arc::new(AtomicU64::new(0));
    let begun = Arc::clone(&next);
    let _progress = Progress::show(move || {
        format!("seed {} of {}", begun.load(Ordering::Relaxed).min(seeds.count), seeds.count)
    });
    let mut results: Vec<(u64, SeedResult)> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= seeds.count {
                    return mine;
                }
                mine.push((number, run_seed(args, seeds.first + number)));
            }
        };
        let workers: Vec<_> = (0..threads.min(seeds.count)).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

fn run_seed(args: &SimArgs, seed: u64) -> SeedResult {
    match args.workload {
        Workload::Litmus => litmus::run_seed(args, seed),
        Workload::Pool => pool::run_seed(args, seed),
        Workload::Txns(kind) => txns::run_seed(args, kind, seed),
    }
}

fn print_seed(seed: u64, result: &SeedResult) {
    result.trace.iter().for_each(|line| say!("{line}"));
    if result.wrong.is_empty() {
        say!("seed {seed:<8} ok      {}, digest {:016x}", result.note, result.digest);
    }
    for why in &result.wrong {
        say!("seed {seed:<8} FAILED  {why}");
    }
}
