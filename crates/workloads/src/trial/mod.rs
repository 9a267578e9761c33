//! A workload in the simulator: run with a seed, its history checked, its invariants, too.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod mortals;
mod power;

use farside_fabric::{Persistence, Worker};
use farside_sim::{Busy, FaultKind, Faults, Profile, Sim};
use farside_txn::{Level as Promise, Limits, Protocol as Phases, Technique, Trap};

use crate::check::{Level, Report, check};
use crate::driver::{Control, Plan, Running, Tally, Team, Until};
use crate::engine::{Engine, Failure, Flaw, Reference, SimTables};
use crate::history::Sink;
use crate::load::{Visit, Workload};

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was counted.
    pub tally: Tally,
    /// What the checker says.
    pub report: Report,
    /// What the workload's own check says.
    pub invariants: Result<(), String>,
    /// A hash of all that happened.
    pub digest: u64,
    /// How often each kind of fault struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// The history.
    pub history: Vec<u8>,
}

impl Outcome {
    /// What went wrong, if anything did: a violation, something that could not be judged, or the workload's own check.
    pub fn wrong(&self) -> Option<String> {
        if let Some(anomaly) = self.report.anomalies.first() {
            let found = &self.report.found;
            return Some(format!("{found:?}, as {:?} {}", anomaly.transactions, anomaly.why));
        }
        if self.report.undecided > 0 {
            return Some(format!("{} reads could not be judged", self.report.undecided));
        }
        self.invariants.clone().err()
    }
}

/// A history in memory.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Longer than any clock is off.
const SHORTLY: Duration = Duration::from_millis(1);

/// What a step of the reference engine takes.
const STEP: Duration = Duration::from_micros(2);

/// How transactions are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// The reference engine, sound or broken.
    Reference(Option<Flaw>),
    /// A protocol on tables, with so many copies; perhaps without one of its rules.
    Farside {
        /// How transactions go through their phases.
        phases: Phases,
        /// Copies of each region.
        copies: usize,
        /// The rule that is left out.
        trap: Option<Trap>,
        /// What transactions are promised; histories are checked for that.
        level: Promise,
    },
    /// The same on nodes that keep what is flushed, all of which lose their power at once now and then, or one of them does.
    Durable {
        /// How transactions go through their phases.
        phases: Phases,
        /// What was not flushed may survive in any order, as in persistent memory, and not as in a journal.
        unordered: bool,
        /// Copies of each region.
        copies: usize,
        /// The rule that is left out.
        trap: Option<Trap>,
    },
}

impl Protocol {
    /// On which hardware.
    fn profile(&self) -> Profile {
        let profile = match self {
            Protocol::Durable { unordered: true, .. } => "connectx-5+pm",
            Protocol::Durable { .. } => "tcp-10g+pm",
            _ => "connectx-5",
        };
        let mut profile = Profile::named(profile).expect("a profile of the table");
        if let Protocol::Durable { unordered: true, .. } = self {
            // As if caches were in between.
            profile.persistence = Persistence::Unordered;
        }
        profile
    }

    /// What histories are to be like.
    fn promises(&self) -> Level {
        match self {
            Protocol::Farside { level: Promise::Serializable, .. } => Level::Serializable,
            Protocol::Farside { level: Promise::StrictSnapshot | Promise::Snapshot, .. } => {
                Level::Snapshot
            }
            Protocol::Farside { phases, .. } | Protocol::Durable { phases, .. }
                if !phases.opacity =>
            {
                Level::StrictCommitted
            }
            _ => Level::Strict,
        }
    }
}

/// One run, of any workload.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Everything random derives from it.
    pub seed: u64,
    /// How many transactions.
    pub txns: u64,
    /// How they are made.
    pub protocol: Protocol,
    /// What strikes their verbs.
    pub faults: Faults,
}

impl Visit for Trial {
    type Output = Result<Outcome, Failure>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Self::Output {
        let plan = plan(self.seed, self.txns);
        run_on(workload, &plan, self.protocol, self.faults, self.protocol.promises())
    }
}

/// Runs so many transactions of a workload on the reference engine, sound or broken.
pub fn run<W: Workload + Send + 'static>(
    workload: W,
    plan: &Plan,
    flaw: Option<Flaw>,
    level: Level,
) -> Result<Outcome, Failure> {
    run_on(workload, plan, Protocol::Reference(flaw), Faults::none(), level)
}

/// Runs so many transactions of a workload under faults.
pub fn run_on<W: Workload + Send + 'static>(
    workload: W,
    plan: &Plan,
    protocol: Protocol,
    faults: Faults,
    level: Level,
) -> Result<Outcome, Failure> {
    let mut profile = protocol.profile();
    // Memory whose lines are of one moment is read in another way.
    profile.line_atomic &= plan.seed % 2 == 1;
    let sim = Rc::new(Sim::new(profile, plan.seed, faults));
    let page = Page::default();
    let sink = Sink::to(page.clone());
    let workload = Arc::new(workload);
    let tally = match protocol {
        Protocol::Reference(flaw) => {
            let engine = Reference::new(flaw).with_pause(STEP);
            let process = sim.add_process();
            let thread = |_| sim.add_thread(process);
            simulate(&sim, &thread, &engine, &workload, plan, Some(&sink)).map(Ran::judged)
        }
        Protocol::Durable { phases, copies, trap, .. } => {
            let engine = SimTables::small(&sim, copies, trap)
                .with_limits(|limits| *limits = limits.following(phases));
            power::simulate(&sim, engine, &workload, plan, &sink)
        }
        Protocol::Farside { phases, copies, trap, level } => {
            let engine = varied(&sim, plan.seed, &faults, phases, copies, trap).with_level(level);
            match faults.strikes_machines() {
                false => {
                    let thread = |number| engine.add_machine(number as u64).1;
                    simulate(&sim, &thread, &engine, &workload, plan, Some(&sink)).map(Ran::judged)
                }
                true => mortals::simulate(&sim, engine, &workload, plan, &sink, &faults),
            }
        }
    };
    if let Err(failure) = tally {
        // Coordinators that were left behind keep the sink open.
        sim.end();
        return Err(failure);
    }
    let broken = |error: io::Error| Failure::Broken(error.to_string());
    sink.finish().map_err(broken)?;
    let history = std::mem::take(&mut *page.0.lock().unwrap_or_else(PoisonError::into_inner));
    let (tally, invariants) = tally?;
    let report = check(&history[..], level).map_err(|flaw| Failure::Broken(flaw.to_string()))?;
    // The run's verbs, and what it has written down.
    let digest = history
        .iter()
        .fold(sim.digest(), |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let struck = sim.struck();
    sim.end();
    Ok(Outcome { tally, report, invariants, digest, struck, history })
}

/// A cluster that differs from seed to seed, so that rare branches are taken.
fn varied(
    sim: &Rc<Sim>,
    seed: u64,
    faults: &Faults,
    phases: Phases,
    copies: usize,
    trap: Option<Trap>,
) -> SimTables {
    // Clocks are good in some runs, and not so good in others; rings are short in some, and full at times.
    let offset_ns = [200, 5000, 5000, 60_000][seed as usize % 4];
    let ring_bytes = if seed % 4 == 1 { 1 << 10 } else { 24 << 10 };
    // Some look whether an early snapshot is late enough, others wait.
    let waiting = phases.without(Technique::EarlySnapshots);
    let phases = waiting.filter(|_| seed / 4 % 2 == 1).unwrap_or(phases);
    let engine = match faults.rate(FaultKind::NodeCrash) > 0 {
        false => SimTables::new(sim, copies, trap),
        true => {
            let versions = phases.versions.are_at_a_node();
            SimTables::managed(sim, mortals::shape(copies, versions), trap)
        }
    };
    engine
        .with_clocks(offset_ns)
        .with_limits(|limits| *limits = Limits { ring_bytes, ..*limits }.following(phases))
}

/// What a run without faults of machines was like.
#[derive(Debug)]
pub struct Ran {
    /// What became of the transactions.
    pub tally: Tally,
    /// What the workload promises.
    pub invariants: Result<(), String>,
    /// What was short.
    pub busy: Busy,
}

impl Ran {
    fn judged(self) -> (Tally, Result<(), String>) {
        (self.tally, self.invariants)
    }
}

/// Runs a workload on simulated threads, which are made one by one, and checks its invariants.
pub fn simulate<E, W>(
    sim: &Sim,
    thread: &dyn Fn(usize) -> Worker,
    engine: &E,
    workload: &Arc<W>,
    plan: &Plan,
    sink: Option<&Sink>,
) -> Result<Ran, Failure>
where
    E: Engine + Clone + 'static,
    W: Workload + Send + 'static,
{
    let clock = thread(plan.threads);
    clock.block_on(async {
        engine.create(&clock, &workload.tables()).await?;
        workload.setup(engine, &clock).await
    })?;
    // Joining takes time, which is not that of the workload.
    let workers: Vec<Worker> = (0..plan.threads).map(thread).collect();
    let control = Arc::new(Control::default());
    control.begin(plan);
    sim.watch();
    let team = Team { engine, workload, plan, control: &control, sink };
    let running: Vec<Running> =
        workers.iter().enumerate().map(|(number, worker)| team.start(worker, number)).collect();
    clock.block_on(async {
        let mut tallies = Vec::new();
        for thread in running {
            tallies.push(thread.finish().await?);
        }
        let busy = sim.busy();
        // Where snapshots may be of shortly before, all that was committed is seen after that.
        clock.sleep(SHORTLY).await;
        let invariants = workload.check(&mut engine.session(&clock)).await;
        let tally = Tally::merged(tallies);
        let tally = tally.ok_or_else(|| Failure::Broken("there are no threads".into()))?;
        Ok(Ran { tally, invariants, busy })
    })
}

/// A plan for a trial: so many transactions on a few threads.
pub fn plan(seed: u64, txns: u64) -> Plan {
    Plan {
        threads: 4,
        coordinators: 3,
        until: Until::Txns(txns),
        warmup: Duration::ZERO,
        rate: None,
        drops: false,
        seed,
    }
}
