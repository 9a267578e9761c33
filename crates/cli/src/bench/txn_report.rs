//! What a run of transactions found, for people and for programs.

use std::collections::BTreeMap;

use anyhow::Result;
use farside_fabric::Counts;
use farside_sim::Busy;
use farside_workloads::driver::{KindTally, Tally};
use farside_workloads::load::Kind;
use serde::Serialize;

use super::BenchArgs;
use super::report::{rate, time};
use crate::output::say;
use crate::protocol::ProtocolArg;

#[derive(Serialize)]
pub(super) struct TxnReport {
    workload: &'static str,
    protocol: &'static str,
    without: Vec<&'static str>,
    fabric: String,
    simulated: bool,
    replicas: u16,
    compute: u16,
    threads: usize,
    coordinators: u16,
    seed: u64,
    seconds: f64,
    committed: u64,
    aborted: u64,
    unknown: u64,
    abort_rate: f64,
    throughput_tps: f64,
    latency_us: Latency,
    per_txn: PerTxn,
    by_type: BTreeMap<&'static str, ByType>,
    /// The most attempts that one transaction took.
    most_attempts: u32,
    /// Transactions that committed while the run was warming up; not counted above.
    warmup_committed: u64,
    /// Transactions that arrived and were not begun, where more arrive than can be served.
    unserved: u64,
    invariants: String,
    /// How busy simulated machines were: what is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) busy: Option<Busy>,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Verbs of a transaction, on average.
#[derive(Serialize, Default)]
struct PerTxn {
    round_trips: f64,
    reads: f64,
    writes: f64,
    cas: f64,
    faa: f64,
    flushes: f64,
    calls: f64,
    bytes_out: f64,
    bytes_in: f64,
}

#[derive(Serialize)]
struct ByType {
    committed: u64,
    aborted: u64,
    p50_us: f64,
    p99_us: f64,
    round_trips: f64,
    /// Of those that committed, the shares that waited for a lock to read, and that read an older version.
    waited: f64,
    hopped: f64,
}

impl PerTxn {
    fn new(counts: &Counts, txns: u64) -> Self {
        let each = |count: u64| count as f64 / txns.max(1) as f64;
        PerTxn {
            round_trips: each(counts.round_trips),
            reads: each(counts.reads),
            writes: each(counts.writes),
            cas: each(counts.cas),
            faa: each(counts.faa),
            flushes: each(counts.flushes),
            calls: each(counts.calls),
            bytes_out: each(counts.bytes_out),
            bytes_in: each(counts.bytes_in),
        }
    }
}

impl ByType {
    fn new(kind: &KindTally) -> Self {
        let us = |quantile| kind.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let share = |count: u64| count as f64 / kind.committed.max(1) as f64;
        ByType {
            committed: kind.committed,
            aborted: kind.aborted,
            p50_us: us(0.5),
            p99_us: us(0.99),
            round_trips: share(kind.round_trips),
            waited: share(kind.waited),
            hopped: share(kind.hopped),
        }
    }
}

impl TxnReport {
    pub(super) fn new(
        args: &BenchArgs,
        kind: Kind,
        tally: &Tally,
        invariants: &std::result::Result<(), String>,
    ) -> Self {
        let reference = args.protocol == ProtocolArg::Reference;
        let (committed, aborted) = (tally.committed(), tally.aborted());
        let latencies = tally.latencies();
        let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        TxnReport {
            workload: kind.name(),
            protocol: args.protocol.name(),
            without: args.without.iter().map(|part| part.0.name()).collect(),
            fabric: args.fabric.to_string(),
            simulated: args.fabric.profile().is_some(),
            // The reference engine keeps one copy, and posts no verbs.
            replicas: if reference { 1 } else { args.replicas },
            compute: args.compute,
            threads: args.threads(),
            coordinators: args.coordinators,
            seed: args.seed,
            seconds: tally.seconds(),
            committed,
            aborted,
            unknown: tally.unknown(),
            abort_rate: aborted as f64 / (committed + aborted).max(1) as f64,
            throughput_tps: committed as f64 / tally.seconds().max(1e-9),
            latency_us: Latency {
                p50: us(0.5),
                p99: us(0.99),
                p999: us(0.999),
                max: latencies.max() as f64 / 1e3,
            },
            per_txn: PerTxn::new(&tally.counts, committed + tally.uncounted),
            by_type: tally.kinds.iter().map(|kind| (kind.name, ByType::new(kind))).collect(),
            most_attempts: tally.most_tries,
            warmup_committed: tally.uncounted,
            unserved: tally.unserved,
            invariants: match invariants {
                Ok(()) => "ok".into(),
                Err(why) => format!("violated: {why}"),
            },
            busy: None,
        }
    }

    pub(super) fn print(&self, json: bool) -> Result<()> {
        if json {
            say!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        say!(
            "{} on {}{}, protocol {}, {} threads with {} coordinators each, {:.3} s counted",
            self.workload,
            self.fabric,
            if self.simulated { " (simulated)" } else { "" },
            self.protocol,
            self.threads,
            self.coordinators,
            self.seconds,
        );
        say!("");
        say!(
            "{:<26} {:>11} {:>11} {:>10} {:>10} {:>12}",
            "",
            "committed",
            "aborted",
            "p50",
            "p99",
            "round trips"
        );
        for (name, kind) in &self.by_type {
            say!(
                "{name:<26} {:>11} {:>11} {:>10} {:>10} {:>12.2}",
                kind.committed,
                kind.aborted,
                time(kind.p50_us),
                time(kind.p99_us),
                kind.round_trips
            );
        }
        say!(
            "{:<26} {:>11} {:>11} {:>10} {:>10} {:>12.2}",
            "all",
            self.committed,
            self.aborted,
            time(self.latency_us.p50),
            time(self.latency_us.p99),
            self.per_txn.round_trips
        );
        say!("");
        say!(
            "{}/s; {:.2} % of attempts aborted; at most {} attempts for one transaction",
            rate(self.throughput_tps),
            self.abort_rate * 100.0,
            self.most_attempts
        );
        if self.unserved > 0 {
            say!("overloaded: about {} transactions arrived and were not begun", self.unserved);
        }
        if let Some(Busy { core, sending, receiving, serving, memory }) = self.busy {
            let percent = [core, sending, receiving, serving, memory].map(|share| 100.0 * share);
            let [core, sending, receiving, serving, memory] = percent;
            say!(
                "busy, of the time: cores {core:.0} %, NICs of clients {sending:.0} % sending and {receiving:.0} % receiving, of memory nodes {serving:.0} %, their memory {memory:.0} %"
            );
        }
        say!("invariants: {}", self.invariants);
        Ok(())
    }
}
