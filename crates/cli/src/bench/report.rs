//! What a run of `bench verbs` found, for people and for programs.

use anyhow::Result;
use serde::Serialize;

use super::BenchArgs;
use super::measure::{Sample, histogram};
use super::verbs::{Spec, Verb};
use crate::output::say;

#[derive(Serialize)]
pub(super) struct Report {
    workload: &'static str,
    fabric: String,
    simulated: bool,
    compute: u16,
    threads: usize,
    seed: u64,
    ops: Vec<Line>,
}

#[derive(Serialize)]
pub(super) struct Line {
    verb: Verb,
    bytes: usize,
    outstanding: u32,
    ops_per_s: f64,
    /// Time per verb as one thread sees it: what it took over how many it did.
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Line {
    pub(super) fn new(spec: &Spec, samples: &[Sample]) -> Self {
        let mut latencies = histogram();
        for (picoseconds, count) in samples.iter().flat_map(|sample| &sample.latencies) {
            latencies.saturating_record_n(*picoseconds, *count);
        }
        let rate = |sample: &Sample| sample.rounds as f64 / sample.nanoseconds.max(1) as f64;
        let rounds: u64 = samples.iter().map(|sample| sample.rounds).sum();
        let nanoseconds: u64 = samples.iter().map(|sample| sample.nanoseconds).sum();
        Line {
            verb: spec.verb,
            bytes: spec.bytes,
            outstanding: spec.outstanding,
            ops_per_s: samples.iter().map(rate).sum::<f64>() * 1e9,
            mean_us: nanoseconds as f64 / rounds.max(1) as f64 / 1e3,
            p50_us: latencies.value_at_quantile(0.5) as f64 / 1e6,
            p99_us: latencies.value_at_quantile(0.99) as f64 / 1e6,
        }
    }
}

impl Report {
    pub(super) fn new(args: &BenchArgs, ops: Vec<Line>) -> Self {
        Report {
            workload: "verbs",
            fabric: args.fabric.to_string(),
            simulated: args.fabric.profile().is_some(),
            compute: args.compute,
            threads: args.threads(),
            seed: args.seed,
            ops,
        }
    }

    pub(super) fn print(&self, json: bool) -> Result<()> {
        if json {
            say!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        say!(
            "verbs on {}{}, {} with {}",
            self.fabric,
            if self.simulated { " (simulated)" } else { "" },
            plural(self.compute.into(), "process").replace("processs", "processes"),
            plural(self.threads, "thread") + if self.compute > 1 { " each" } else { "" },
        );
        say!("");
        say!("verb    bytes  in flight       rate   mean time        p50        p99");
        for line in &self.ops {
            say!(
                "{:<5} {:>7}  {:>9} {:>9}/s {:>9} {:>10} {:>10}",
                format!("{:?}", line.verb).to_uppercase(),
                line.bytes,
                line.outstanding,
                rate(line.ops_per_s),
                time(line.mean_us),
                time(line.p50_us),
                time(line.p99_us),
            );
        }
        Ok(())
    }
}

pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

pub(super) fn time(us: f64) -> String {
    match us {
        t if t >= 1e3 => format!("{:.2} ms", t / 1e3),
        t if t >= 1.0 => format!("{t:.2} µs"),
        t => format!("{:.1} ns", t * 1e3),
    }
}
