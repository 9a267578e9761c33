//! `farside check`: judges a history.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use farside_workloads::check::{Level, Report, check};

use crate::output::say;
use crate::progress::Progress;

/// Options of `farside check`.
#[derive(Args)]
pub(crate) struct CheckArgs {
    /// The history: JSON lines, one attempt each; `-` for stdin
    file: PathBuf,

    /// What it must be
    #[arg(long, default_value = "strict")]
    level: LevelArg,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    /// Strictly serializable, and opaque: reads of aborted attempts count, too
    Strict,
    /// Strictly serializable: what aborted attempts read does not count
    StrictCommitted,
    /// Some order explains all that committed, whatever the clock says
    Serializable,
    /// Each reads from one snapshot, and no two that overlap write the same
    Snapshot,
    /// What each client sees and does goes forward
    SessionGuarantees,
}

impl LevelArg {
    fn level(self) -> Level {
        match self {
            LevelArg::Strict => Level::Strict,
            LevelArg::StrictCommitted => Level::StrictCommitted,
            LevelArg::Serializable => Level::Serializable,
            LevelArg::Snapshot => Level::Snapshot,
            LevelArg::SessionGuarantees => Level::SessionGuarantees,
        }
    }
}

/// Counts what is read.
struct Counted<R> {
    input: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Runs `farside check`.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode> {
    let name = args.file.display();
    let (input, size): (Box<dyn Read>, u64) = if args.file.as_os_str() == "-" {
        (Box::new(std::io::stdin()), 0)
    } else {
        let file = File::open(&args.file).with_context(|| format!("opening {name}"))?;
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), size)
    };
    let bytes = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&bytes);
    let progress = Progress::show(move || match read.load(Ordering::Relaxed) {
        read if read < size => format!("reading: {:.0} %", read as f64 / size as f64 * 100.0),
        _ => "judging".into(),
    });
    let input = BufReader::with_capacity(1 << 20, Counted { input, bytes });
    let report = judge(input, args.level.level()).with_context(|| format!("{name}"));
    drop(progress);
    let report = report?;
    if args.json {
        say!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(ExitCode::from(u8::from(report.verdict == "violation")))
}

fn judge(input: impl BufRead, level: Level) -> Result<Report> {
    check(input, level).map_err(|flaw| anyhow!("{flaw}"))
}

fn print(report: &Report) {
    say!("{} transactions: {}", report.transactions, report.verdict);
    if report.undecided > 0 {
        say!(
            "{} reads or registers could not be decided: no order was recoverable",
            report.undecided
        );
    }
    if !report.found.is_empty() {
        say!("");
        for (kind, count) in &report.found {
            say!("{count:>8}  {kind}");
        }
    }
    for anomaly in &report.anomalies {
        say!("");
        say!("{}: attempts {:?}", anomaly.kind, anomaly.transactions);
        say!("  {}", anomaly.why.replace("; ", ";\n  "));
    }
}
