//! Runs a workload on an engine, and counts.
//!
//! A coordinator is a task that runs one transaction after the other, each again until it commits. What a
//! transaction takes is counted from its first attempt on, or where transactions arrive at a rate, from
//! when it should have begun.

mod coordinator;
mod tally;

pub use tally::{KindTally, Tally};

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use farside_fabric::runtime::run_threads;
use farside_fabric::{Time, Worker};

use crate::engine::{Engine, Failure};
use crate::history::{Recorder, Sink};
use crate::load::Workload;
use coordinator::Coordinator;

/// How much to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads (in the simulator: simulated ones).
    pub threads: usize,
    /// Coordinators of each.
    pub coordinators: usize,
    /// Until when.
    pub until: Until,
    /// How long to run before anything is counted.
    pub warmup: Duration,
    /// How many transactions arrive in a second, over all coordinators; `None`: each begins when the one
    /// before is over.
    pub rate: Option<f64>,
    /// Whether a transaction that was aborted is not begun again: then the next one is another, as in benchmarks of papers that count
    /// attempts.
    pub drops: bool,
    /// Everything random derives from it.
    pub seed: u64,
}

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Until {
    /// After a time, warming up included.
    Time(Duration),
    /// After so many transactions, over all coordinators.
    Txns(u64),
}

/// A run as others see it: for progress, and to end it.
#[derive(Debug, Default)]
pub struct Control {
    /// Transactions that were committed so far.
    pub committed: AtomicU64,
    /// Ends the run early.
    pub stop: Arc<AtomicBool>,
    /// Attempts so far: their numbers in a history.
    attempts: AtomicU64,
    /// Transactions that may still begin, where they are counted.
    left: AtomicI64,
}

impl Control {
    /// Whether no transaction may begin any more.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.left.load(Ordering::Relaxed) <= 0
    }

    /// How many transactions may still begin, where that is limited.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed).max(0) as u64
    }

    /// Whether another transaction may begin.
    fn next(&self, plan: &Plan) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            return false;
        }
        match plan.until {
            Until::Time(_) => true,
            Until::Txns(_) => self.left.fetch_sub(1, Ordering::Relaxed) > 0,
        }
    }
}

/// All that coordinators of one thread share.
struct Shared<E, W> {
    engine: E,
    workload: Arc<W>,
    plan: Plan,
    control: Arc<Control>,
    tally: RefCell<Tally>,
    begin: Time,
}

/// Runs a workload on threads of this process. The engine must be loaded.
pub fn run<E, W>(
    engine: &E,
    workload: &Arc<W>,
    plan: &Plan,
    control: &Arc<Control>,
    sink: Option<&Sink>,
) -> Result<Tally, Failure>
where
    E: Engine + Clone + Send + Sync + 'static,
    W: Workload + Send + 'static,
{
    control.begin(plan);
    let results = run_threads(plan.threads, plan.seed, |number, worker| {
        worker.block_on(engine.join(worker))?;
        let tasks = Team { engine, workload, plan, control, sink };
        let running = tasks.start(worker, number);
        let done = worker.block_on(running.finish());
        engine.leave(worker);
        done
    });
    let tallies: Result<Vec<Tally>, Failure> = results.into_iter().collect();
    Tally::merged(tallies?).ok_or_else(|| Failure::Broken("there are no threads".into()))
}

impl Control {
    /// Before coordinators start.
    pub fn begin(&self, plan: &Plan) {
        if let Until::Txns(txns) = plan.until {
            self.left.store(txns.min(i64::MAX as u64) as i64, Ordering::Relaxed);
        }
    }
}

/// What a thread's coordinators are made of.
pub struct Team<'a, E, W> {
    /// The store.
    pub engine: &'a E,
    /// What they do.
    pub workload: &'a Arc<W>,
    /// How much.
    pub plan: &'a Plan,
    /// Who watches.
    pub control: &'a Arc<Control>,
    /// Who writes it down.
    pub sink: Option<&'a Sink>,
}

/// The coordinators of a thread, at work.
pub struct Running {
    tasks: Vec<farside_fabric::runtime::Task<Result<(), Failure>>>,
    /// Writes down what is left when they are dead, as of a time; how many were at something.
    clear: Box<dyn FnOnce(u64) -> usize>,
    tally: Box<dyn FnOnce(Time) -> Tally>,
    worker: Worker,
}

impl<E, W> Team<'_, E, W>
where
    E: Engine + Clone + 'static,
    W: Workload + 'static,
{
    /// Starts the coordinators of a thread.
    pub fn start(&self, worker: &Worker, thread: usize) -> Running {
        let begin = worker.now();
        let shared = Rc::new(Shared {
            engine: self.engine.clone(),
            workload: Arc::clone(self.workload),
            plan: self.plan.clone(),
            control: Arc::clone(self.control),
            tally: RefCell::new(Tally::new(self.workload.kinds())),
            begin,
        });
        let mut desks = Vec::new();
        let start = |number: usize| {
            let number = thread * self.plan.coordinators + number;
            let log = self.sink.map_or_else(Recorder::deaf, Sink::recorder);
            let coordinator = Coordinator::new(&shared, worker, number, log);
            desks.push(coordinator.desk());
            worker.spawn(coordinator.run())
        };
        let tasks = (0..self.plan.coordinators).map(start).collect();
        let clear =
            move |end| desks.into_iter().filter_map(|desk| desk.clear(end).then_some(())).count();
        let (before, counted_on) = (self.engine.counts(worker), worker.clone());
        let held_before = self.engine.holding(worker);
        let tally = Box::new(move |end: Time| {
            let mut tally = shared.tally.borrow().clone();
            tally.counts = shared.engine.counts(&counted_on) - before;
            tally.holding = shared.engine.holding(&counted_on) - held_before;
            (tally.from, tally.to) = ((shared.begin + shared.plan.warmup).0, end.0);
            tally
        });
        Running { tasks, clear: Box::new(clear), tally, worker: worker.clone() }
    }
}

impl Running {
    /// Waits for all of them.
    pub async fn finish(self) -> Result<Tally, Failure> {
        for task in self.tasks {
            task.await?;
        }
        Ok((self.tally)(self.worker.now()))
    }

    /// Whether all of them have come to their end.
    pub fn is_finished(&self) -> bool {
        self.tasks.iter().all(|task| task.is_finished())
    }

    /// What they counted, when all of them have come to their end.
    pub fn finished(self) -> Result<Tally, Failure> {
        let worker = self.worker.clone();
        worker.block_on(self.finish())
    }

    /// They died: what they were at has no known outcome, as of a time of the history.
    pub fn bury(self, end: u64) -> Tally {
        let mut tally = (self.tally)(self.worker.now());
        tally.lost += (self.clear)(end) as u64;
        tally
    }
}

impl<E, W> std::fmt::Debug for Team<'_, E, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("plan", self.plan).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}
