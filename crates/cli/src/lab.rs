//! `farside lab`: figures of the papers, drawn again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use farside_lab::{Experiment, Outcome, Pace, experiment, report};

use crate::output::say;
use crate::progress::Progress;

/// Options of `farside lab`.
#[derive(Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// List the experiments
    List,
    /// Run an experiment, and say which claims hold
    Run {
        /// Which, by its name in the list
        id: String,
        /// Shorter runs, and fewer of them
        #[arg(long)]
        quick: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Run all experiments, and write one page with plots and claims
    Report {
        /// Where to write index.html
        #[arg(long)]
        out: PathBuf,
        /// Shorter runs, and fewer of them
        #[arg(long)]
        quick: bool,
        /// Only this experiment (repeatable) [default: all]
        #[arg(long)]
        only: Vec<String>,
    },
}

/// Runs `farside lab`.
pub(crate) fn run(args: &LabArgs) -> Result<ExitCode> {
    match &args.command {
        LabCommand::List => list(),
        LabCommand::Run { id, quick, json } => run_one(id, *quick, *json),
        LabCommand::Report { out, quick, only } => write_report(out, *quick, only),
    }
}

fn list() -> Result<ExitCode> {
    for experiment in experiment::all() {
        let (runs, claims) = (experiment.size(false), experiment.claim_ids().len());
        say!("{:<12} {:<42} {runs:>3} runs, {claims:>2} claims", experiment.id, experiment.title);
    }
    Ok(ExitCode::SUCCESS)
}

fn find(id: &str) -> Result<Experiment> {
    let all = experiment::all();
    let names: Vec<_> = all.iter().map(|experiment| experiment.id.clone()).collect();
    let found = all.into_iter().find(|experiment| experiment.id == id);
    found.ok_or_else(|| anyhow!("{id}: no such experiment; there are: {}", names.join(", ")))
}

fn run_one(id: &str, quick: bool, json: bool) -> Result<ExitCode> {
    let experiment = find(id)?;
    let clock = Clock::start(experiment.size(quick));
    let outcome = clock.run(&experiment, quick)?;
    drop(clock);
    if json {
        say!("{}", serde_json::to_string(&outcome)?);
    } else {
        print(&experiment, &outcome);
    }
    Ok(ExitCode::from(u8::from(outcome.claims.iter().any(|claim| !claim.holds))))
}

fn write_report(out: &PathBuf, quick: bool, only: &[String]) -> Result<ExitCode> {
    let experiments = match only.is_empty() {
        true => experiment::all(),
        false => only.iter().map(|id| find(id)).collect::<Result<Vec<_>>>()?,
    };
    std::fs::create_dir_all(out).with_context(|| format!("--out {}", out.display()))?;
    let clock = Clock::start(experiments.iter().map(|it| it.size(quick)).sum());
    let mut found = Vec::new();
    for experiment in experiments {
        let outcome = clock.run(&experiment, quick)?;
        found.push((experiment, outcome));
    }
    drop(clock);
    let path = out.join("index.html");
    std::fs::write(&path, report::page(&found, quick))
        .with_context(|| format!("writing {}", path.display()))?;
    let claims = || found.iter().flat_map(|(_, outcome)| &outcome.claims);
    let hold = claims().filter(|claim| claim.holds).count();
    say!("{}: {hold} of {} claims hold (simulated)", path.display(), claims().count());
    Ok(ExitCode::SUCCESS)
}

/// How far it is, and how long it will take.
struct Clock {
    done: Arc<AtomicUsize>,
    _progress: Progress,
}

impl Clock {
    fn start(runs: usize) -> Self {
        let (done, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let counted = Arc::clone(&done);
        let progress = Progress::show(move || {
            let (done, seconds) = (counted.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
            let left = match done {
                0 => "?".into(),
                _ => format!("{:.0}", seconds / done as f64 * runs.saturating_sub(done) as f64),
            };
            format!("{done} of {runs} runs, {seconds:.0} s, about {left} s left")
        });
        Clock { done, _progress: progress }
    }

    fn run(&self, experiment: &Experiment, quick: bool) -> Result<Outcome> {
        let tell = || _ = self.done.fetch_add(1, Ordering::Relaxed);
        Ok(experiment.run(&Pace { quick, tell: &tell })?)
    }
}

fn print(experiment: &Experiment, outcome: &Outcome) {
    say!("{}: {} (simulated, {})", outcome.id, experiment.title, outcome.profile);
    for series in &outcome.series {
        say!("");
        say!("{}", series.name);
        for point in &series.points {
            let varied = [
                point.read_share.map(|share| format!("{share} % only read")),
                point.objects.map(|objects| format!("{objects} objects")),
                point.skew.map(|skew| format!("skew {skew}")),
                point.rows.map(|rows| format!("{:.0} rows read/s", rows.per_second)),
            ];
            say!(
                "  {:>3} × {:<3} {:>12.0}/s   p50 {:>8.1} µs   p99 {:>8.1} µs   {:>5.1} % aborted   locks {:>6.1} µs   {}",
                point.threads,
                point.coordinators,
                point.throughput_tps,
                point.p50_us,
                point.p99_us,
                point.abort_rate * 100.0,
                point.lock_us,
                varied.into_iter().flatten().collect::<Vec<_>>().join(", ")
            );
        }
    }
    // Timelines are for plots.
    for curve in outcome.curves.iter().filter(|curve| curve.points.len() <= 20) {
        say!("");
        say!("{}", curve.name);
        curve.points.iter().for_each(|(x, y)| say!("  {x:>6} {}   {y:.2}", curve.x));
    }
    say!("");
    for claim in &outcome.claims {
        let measured = claim.measured.map_or("–".into(), |measured| format!("{measured:.2}"));
        say!(
            "{:<8} {measured:>9}   {} {:<8} {}",
            if claim.holds { "holds" } else { "differs" },
            claim.relation.sign(),
            claim.expected,
            claim.what
        );
        if let Some(why) = &claim.why {
            say!("                     {why}");
        }
    }
}
