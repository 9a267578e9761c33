//! One run: a workload by a protocol under a load, in the simulator.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_sim::{Faults, Profile, Sim};
use farside_txn::{Limits, OldVersions, Protocol};
use farside_workloads::driver::{Plan, Until};
use farside_workloads::engine::{SimTables, TableShape};
use farside_workloads::load::{Kind, Shape, Visit, Workload};
use farside_workloads::trial::{Ran, simulate};

use crate::run::{Point, Rows};

/// How much of a run is warming up.
const WARMUP: f64 = 0.25;

/// Of latencies, these are kept.
const CENTILES: [f64; 14] =
    [0.1, 1.0, 5.0, 10.0, 25.0, 40.0, 50.0, 60.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];

/// What is run.
pub(crate) struct Measure {
    pub(crate) profile: Profile,
    pub(crate) protocol: Protocol,
    pub(crate) old_versions: OldVersions,
    pub(crate) copies: u16,
    pub(crate) machines: usize,
    pub(crate) durable: bool,
    pub(crate) one_primary: bool,
    pub(crate) drops: bool,
    pub(crate) code: bool,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) coordinators: usize,
    pub(crate) span: Duration,
    /// Of a transaction, where that matters.
    pub(crate) objects: usize,
}

impl Measure {
    /// Runs it.
    pub(crate) fn run(self, kind: Kind, shape: &Shape) -> Result<Point, String> {
        kind.visit(shape, self)?
    }
}

impl Visit for Measure {
    type Output = Result<Point, String>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Self::Output {
        let objects = self.objects;
        let sim = Rc::new(Sim::new(self.profile, self.seed, Faults::none()));
        let Measure { durable, old_versions, .. } = self;
        let alone = self.machines == 1;
        let limits = Limits { durable, old_versions, alone, ..Limits::default() };
        let copies = usize::from(self.copies);
        let room = TableShape::room(&workload.tables(), self.threads);
        let engine = SimTables::with_room(&sim, copies, copies.max(self.machines), room)
            .with_real_clocks()
            .with_code(self.code)
            .with_limits(|it| *it = limits.following(self.protocol));
        let engine = if self.one_primary { engine.with_one_primary() } else { engine };
        let plan = Plan {
            threads: self.threads,
            coordinators: self.coordinators,
            until: Until::Time(self.span),
            warmup: self.span.mul_f64(WARMUP),
            rate: None,
            drops: self.drops,
            seed: self.seed,
        };
        let thread = |number: usize| engine.add_thread((number % self.machines) as u64);
        let workload = Arc::new(workload);
        let ran = simulate(&sim, &thread, &engine, &workload, &plan, None);
        sim.end();
        let Ran { tally, invariants, busy } = ran.map_err(|failure| failure.to_string())?;
        invariants?;
        let (latencies, holding) = (tally.latencies(), tally.holding);
        let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        let (committed, aborted) = (tally.committed() as f64, tally.aborted() as f64);
        let waited_ns: u64 = tally.kinds.iter().map(|kind| kind.waited_ns).sum();
        let worked_ns = tally.seconds() * 1e9 * (self.threads * self.coordinators) as f64;
        let first = &tally.kinds[0];
        let rows = Rows {
            per_second: (first.committed * objects as u64) as f64 / tally.seconds().max(1e-9),
            mean_us: first.latencies.mean() / 1e3,
        };
        Ok(Point {
            threads: self.threads,
            coordinators: self.coordinators,
            read_share: None,
            objects: None,
            skew: None,
            rows: Some(rows),
            latencies: CENTILES.map(|centile| (us(centile / 100.0), centile / 100.0)).to_vec(),
            throughput_tps: committed / tally.seconds().max(1e-9),
            p50_us: us(0.5),
            p99_us: us(0.99),
            abort_rate: aborted / (committed + aborted).max(1.0),
            lock_us: holding.nanos as f64 / 1e3 / holding.transactions.max(1) as f64,
            busy,
            wait_percent: 100.0 * waited_ns as f64 / worked_ns.max(1.0),
        })
    }
}
