//! Runs experiments: point by point, on all cores, each a world of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farside_sim::{Busy, Profile};
use farside_txn::{EXECUTE, INSTALL, LOG, RELEASE, VALIDATE};
use farside_workloads::shapes::{self, Bed, Shape, Taken};
use serde::Serialize;

use crate::experiment::{CountOf, Load, Runs, Work, protocol};
use crate::measure::Measure;
use crate::verdict::{Verdict, compare, verdict};
use crate::{Experiment, Failed};

/// What an experiment found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Which.
    pub id: String,
    /// The simulated hardware.
    pub profile: String,
    /// Virtual time, not that of a machine.
    pub simulated: bool,
    /// Everything random derives from it.
    pub seed: u64,
    /// What is drawn.
    pub series: Vec<Series>,
    /// What is drawn besides: not of workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
    /// What is compared.
    pub claims: Vec<Verdict>,
}

/// A protocol on a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Both.
    pub name: String,
    /// The workload, by its name in the experiment.
    pub workload: String,
    /// The protocol.
    pub protocol: String,
    /// One for each load.
    pub points: Vec<Point>,
}

/// A line that is not made of runs of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it shows.
    pub name: String,
    /// What is to the right.
    pub x: String,
    /// What is upwards.
    pub y: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Threads.
    pub threads: usize,
    /// Coordinators of each.
    pub coordinators: usize,
    /// Of a hundred accesses, those that only read, where that was varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_share: Option<u64>,
    /// Objects of a transaction, where that was varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// The skew, where that was varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew: Option<f64>,
    /// Committed transactions in a second.
    pub throughput_tps: f64,
    /// The median latency.
    pub p50_us: f64,
    /// The latency that one of a hundred exceeds.
    pub p99_us: f64,
    /// Of all attempts, those that were aborted.
    pub abort_rate: f64,
    /// For how long locks are held, on the average.
    pub lock_us: f64,
    /// Of a hundred, the time that is spent with waiting for what is about to be committed.
    pub wait_percent: f64,
    /// Rows that transactions of the first kind read in a second, and what they took, where the number of objects was varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Rows>,
    /// Latencies in microseconds, and the share of transactions that took no longer.
    pub latencies: Vec<(f64, f64)>,
    /// How busy what is busiest was.
    pub busy: Busy,
}

/// What those did who read many rows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rows {
    /// Rows that they read in a second.
    pub per_second: f64,
    /// What each took, on the average.
    pub mean_us: f64,
}

/// How thorough, and who is told how far it is.
pub struct Pace<'a> {
    /// In a fraction of the time.
    pub quick: bool,
    /// Called when a run is over.
    pub tell: &'a (dyn Fn() + Sync),
}

/// A run that is to be done.
struct Todo<'e> {
    series: usize,
    work: &'e Work,
    protocol: &'e str,
    load: Load,
}

impl Experiment {
    /// Runs it.
    pub fn run(&self, pace: &Pace<'_>) -> Result<Outcome, Failed> {
        let failed = |why: String| Failed { experiment: self.id.clone(), why };
        let series = match &self.runs {
            Some(runs) => self.run_all(runs, pace).map_err(failed)?,
            None => Vec::new(),
        };
        let (mut claims, mut curves) = (Vec::new(), Vec::new());
        for count in &self.counts {
            let measured = self.count(count).map_err(failed)?;
            claims.push(verdict(&count.claim, Some(measured), &self.why).map_err(failed)?);
        }
        for rule in &self.compare {
            claims.extend(compare(rule, &series, &self.why).map_err(failed)?);
        }
        if let Some(census) = &self.census {
            claims.extend(self.run_census(census).map_err(failed)?);
        }
        let clocks = self.clocks.iter().map(|clocks| self.run_clocks(clocks, pace));
        let lookups = self.lookups.iter().map(|lookups| self.run_lookups(lookups, pace));
        let losses = self.losses.iter().map(|losses| self.run_losses(losses, pace));
        let mixed = self.mixed.iter().map(|mixed| self.run_mixed(mixed, pace));
        for found in clocks.chain(lookups).chain(losses).chain(mixed) {
            let (drawn, judged) = found.map_err(failed)?;
            curves.extend(drawn);
            claims.extend(judged);
        }
        let Experiment { id, profile, seed, .. } = self.clone();
        Ok(Outcome { id, profile, simulated: true, seed, series, curves, claims })
    }

    /// How many runs it takes.
    pub fn size(&self, quick: bool) -> usize {
        let size = |runs: &Runs| {
            let loads = runs.loads.iter().filter(|load| load.quick || !quick).count();
            runs.workloads.len() * runs.protocols.len() * loads
        };
        self.runs.as_ref().map_or(0, size)
            + self.clocks.as_ref().map_or(0, |clocks| clocks.sizes(quick).len())
            + self.lookups.as_ref().map_or(0, |lookups| lookups.sizes(quick).len())
            + self.losses.as_ref().map_or(0, |losses| losses.size(quick))
            + self.mixed.as_ref().map_or(0, |mixed| mixed.sizes(quick).len())
    }

    fn run_all(&self, runs: &Runs, pace: &Pace<'_>) -> Result<Vec<Series>, String> {
        let mut series = Vec::new();
        let mut todo = Vec::new();
        for work in &runs.workloads {
            for protocol in &runs.protocols {
                for load in runs.loads.iter().filter(|load| load.quick || !pace.quick) {
                    todo.push(Todo { series: series.len(), work, protocol, load: *load });
                }
                let (workload, name) = (work.name.clone(), format!("{} {protocol}", work.name));
                let protocol = protocol.clone();
                series.push(Series { name, workload, protocol, points: Vec::new() });
            }
        }
        let millis = if pace.quick { runs.quick_milliseconds } else { runs.milliseconds };
        let found = on_all_cores(&todo, |todo| {
            let more = todo.load.objects.unwrap_or(0) as f64 * runs.microseconds_per_object;
            let point = self.run_one(todo, Duration::from_secs_f64(millis / 1e3 + more / 1e6));
            (pace.tell)();
            point
        });
        for (todo, point) in todo.iter().zip(found) {
            let Load { read_share, objects, skew, .. } = todo.load;
            let rows = point.as_ref().ok().and_then(|point| point.rows);
            let rows = rows.filter(|_| objects.is_some());
            series[todo.series].points.push(Point { read_share, objects, skew, rows, ..point? });
        }
        Ok(series)
    }

    fn run_one(&self, todo: &Todo<'_>, span: Duration) -> Result<Point, String> {
        let kind = todo.work.kind().ok_or("no such workload")?;
        let (protocol, old_versions) = protocol(todo.protocol).ok_or("no such protocol")?;
        let measure = Measure {
            profile: named(todo.work.profile.as_ref().unwrap_or(&self.profile))?,
            protocol,
            old_versions,
            copies: self.copies,
            machines: self.machines,
            durable: self.durable,
            one_primary: self.one_primary,
            drops: self.drops,
            code: self.code,
            seed: self.seed,
            threads: todo.load.threads,
            coordinators: todo.load.coordinators,
            objects: todo.load.objects.unwrap_or(0),
            span,
        };
        let told = |why: String| format!("{} by {}: {why}", todo.work.name, todo.protocol);
        measure.run(kind, &todo.work.shape(&todo.load)).map_err(told)
    }

    /// What a single transaction takes.
    fn count(&self, count: &CountOf) -> Result<f64, String> {
        let bed = Bed {
            profile: named(count.profile.as_ref().unwrap_or(&self.profile))?,
            protocol: protocol(&count.protocol).ok_or("no such protocol")?.0,
            copies: usize::from(self.copies),
            durable: count.durable,
        };
        let shape = Shape { updates: count.updates, reads: count.reads };
        let taken = shapes::measure(bed, shape).map_err(|failure| failure.to_string())?;
        let parts = count.what.iter().map(|what| counted(&taken, what));
        let sum = parts.sum::<Option<u64>>().ok_or("nothing of that name is counted")?;
        Ok(sum as f64 / count.of - count.less)
    }
}

/// What comes of each, in their order; all cores share the work.
pub(crate) fn on_all_cores<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(one) = all.get(at) else { return };
        let result = of(one);
        found.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads.min(all.len())).for_each(|_| _ = scope.spawn(work));
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, result)| result).collect()
}

pub(crate) fn named(profile: &str) -> Result<Profile, String> {
    Profile::named(profile).ok_or_else(|| format!("no profile {profile}"))
}

fn counted(taken: &Taken, what: &str) -> Option<u64> {
    match what {
        "round-trips" => return Some(taken.round_trips),
        "lock-phases" => return Some(taken.holding.phases),
        _ => {}
    }
    let (phase, verbs) = what.split_once('.')?;
    let phase = match phase {
        "execute" => EXECUTE,
        "validate" => VALIDATE,
        "log" => LOG,
        "commit" => INSTALL,
        "release" => RELEASE,
        _ => return None,
    };
    let counts = taken.phase(phase);
    Some(match verbs {
        "round-trips" => counts.round_trips,
        "reads" => counts.reads,
        "writes" => counts.writes,
        "cas" => counts.cas,
        "flushes" => counts.flushes,
        _ => return None,
    })
}
