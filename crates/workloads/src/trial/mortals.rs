//! Machines that die, or are taken for dead: others take their places, and go on.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::{NodeId, Worker, probe};
use farside_sim::{FaultKind, Faults, Landing, ProcessId, Sim};

use crate::driver::{Control, Plan, Running, Tally, Team};
use crate::engine::{Engine, Failure, PoolShape, SimTables};
use crate::history::Sink;
use crate::load::Workload;

/// How long somebody is silent before the others take it for dead: longer than verbs are late.
const LEASE: Duration = Duration::from_millis(100);

/// Some machines stop for so long that the others take them for dead: one look in so many.
const STOP: Duration = Duration::from_millis(150);
const LOOKS_PER_STOP: u64 = 400;
const MOST_STOPS: usize = 4;

/// How often those who died are looked for.
const LOOK: Duration = Duration::from_micros(50);

/// After so many deaths nobody dies any more.
const MOST_DEATHS: usize = 12;

/// Who dies in the middle of something does so after at most so many doorbells.
const DOORBELLS_PER_LIFE: u64 = 1000;

/// How many nodes die at most, or are put out; and for how long they are dead.
const MOST_CRASHES: usize = 2;
const LONGEST_CRASH: Duration = Duration::from_millis(400);

/// How often nodes stop for a while, or are out of somebody's reach.
const MOST_DISTURBANCES: usize = 6;
const LOOKS_PER_DISTURBANCE: u64 = 40;

/// How long it takes until all is as it should be, after the last fault.
const SETTLING: Duration = Duration::from_secs(20);

/// No run takes longer.
const LONGEST: Duration = Duration::from_secs(60);

/// The machines of a run.
struct Machines<'a, W> {
    sim: &'a Rc<Sim>,
    engine: &'a SimTables,
    workload: &'a Arc<W>,
    plan: &'a Plan,
    control: &'a Arc<Control>,
    sink: &'a Sink,
    /// Those who are at work.
    running: Vec<(ProcessId, Running)>,
    tallies: Vec<Tally>,
    born: usize,
    stops: usize,
    crashes: Crashes,
}

/// Nodes that die.
#[derive(Default)]
struct Crashes {
    /// How many transactions are left when the next one dies, the first last.
    at: Vec<u64>,
    /// Those who come back, and when.
    back: Vec<(u64, usize)>,
    /// Ways that are cut, and until when.
    cuts: Vec<(u64, ProcessId, NodeId)>,
    disturbances: usize,
    /// Nodes that may be put out although they live.
    put_out: usize,
}

/// A pool whose nodes may die.
pub(super) fn shape(copies: usize, versions: bool) -> PoolShape {
    let (nodes, regions) = (copies.max(3) + 1, 4);
    PoolShape { nodes, versions, copies, regions, region_bytes: 32 << 20, lease: LEASE }
}

/// Runs a workload on machines that die, and checks its invariants.
pub(super) fn simulate<W: Workload + Send + 'static>(
    sim: &Rc<Sim>,
    engine: SimTables,
    workload: &Arc<W>,
    plan: &Plan,
    sink: &Sink,
    faults: &Faults,
) -> Result<(Tally, Result<(), String>), Failure> {
    let engine = engine.with_lease(LEASE);
    // One machine lives on, and loads the tables.
    let clock = engine.new_machine(0)?.1;
    clock.block_on(async {
        engine.create(&clock, &workload.tables()).await?;
        workload.setup(&engine, &clock).await
    })?;
    let control = Arc::new(Control::default());
    control.begin(plan);
    let mut machines = Machines {
        sim,
        engine: &engine,
        workload,
        plan,
        control: &control,
        sink,
        running: Vec::new(),
        tallies: Vec::new(),
        born: 0,
        stops: 0,
        crashes: Crashes::default(),
    };
    let nodes_die = faults.rate(FaultKind::NodeCrash) > 0;
    if nodes_die {
        let crashes = clock.random_below(MOST_CRASHES as u64 + 1);
        machines.crashes.put_out = MOST_CRASHES - crashes as usize;
        machines.crashes.at = (0..crashes).map(|_| clock.random_below(control.left())).collect();
        machines.crashes.at.sort_unstable();
    }
    for _ in 0..plan.threads {
        machines.add()?;
    }
    while machines.look()? {
        clock.block_on(clock.sleep(LOOK));
        machines.stop_one(&clock);
        machines.crash(&clock);
        machines.disturb(&clock, faults);
        engine.revive();
        if sim.elapsed_ns() > LONGEST.as_nanos() as u64 {
            return Err(Failure::Broken(format!("no end after {LONGEST:?}")));
        }
    }
    let tallies = std::mem::take(&mut machines.tallies);
    for (_, process, node) in machines.crashes.cuts.drain(..) {
        sim.partition(process, node, false);
    }
    machines.crashes.back.iter().for_each(|(_, number)| engine.restart_node(*number));
    let tally = Tally::merged(tallies).ok_or_else(|| Failure::Broken("no threads".into()))?;
    sim.calm();
    // Whoever looks at the tables in the end was not taken for dead.
    let (_, last) = engine.new_machine(0)?;
    let mut invariants = last.block_on(workload.check(&mut engine.session(&last)));
    if nodes_die {
        invariants = invariants.and(last.block_on(engine.check_copies(&last, SETTLING)));
    }
    Ok((tally, invariants))
}

impl<W: Workload + Send + 'static> Machines<'_, W> {
    fn add(&mut self) -> Result<(), Failure> {
        self.born += 1;
        let (process, worker) = self.engine.new_machine(self.born as u64)?;
        let Machines { engine, workload, plan, control, sink, .. } = *self;
        let team = Team { engine, workload, plan, control, sink: Some(sink) };
        let running = team.start(&worker, self.born);
        let dies = self.born < self.plan.threads + MOST_DEATHS;
        // Some die at any time, others in the middle of something, or of an install.
        let doorbells = worker.random_below(DOORBELLS_PER_LIFE);
        match self.born % 3 {
            _ if !dies => {}
            0 => self.sim.kill_at(process, doorbells, Landing::Some),
            1 => self.sim.kill_writing(process, doorbells / 10),
            _ => self.sim.expose(process, true),
        }
        self.running.push((process, running));
        Ok(())
    }

    /// Now and then somebody does nothing for long, and is taken for dead; and then it goes on.
    fn stop_one(&mut self, clock: &Worker) {
        let may_stop = self.stops < MOST_STOPS && !self.running.is_empty();
        if may_stop && clock.random_below(LOOKS_PER_STOP) == 0 {
            self.stops += 1;
            let number = clock.random_below(self.running.len() as u64) as usize;
            self.sim.pause(self.running[number].0, STOP);
        }
    }

    /// Nodes die, and come back with nothing in their memory.
    fn crash(&mut self, clock: &Worker) {
        let (now, left) = (self.sim.elapsed_ns(), self.control.left());
        let crashes = &mut self.crashes;
        // Others may have been put out by mistake, with what they had: who loses all copies has lost the data.
        let due = |at: &mut u64| *at >= left && self.engine.may_lose_one(clock);
        while crashes.at.pop_if(due).is_some() {
            probe!("a node dies under transactions");
            let span = clock.random_below(LONGEST_CRASH.as_nanos() as u64);
            let died = self.engine.kill_node(clock.random());
            crashes.back.extend(died.map(|number| (now + span, number)));
        }
        for (_, number) in crashes.back.extract_if(.., |(at, _)| *at <= now) {
            self.engine.restart_node(number);
        }
    }

    /// Nodes stop for a while, or are out of somebody's reach.
    fn disturb(&mut self, clock: &Worker, faults: &Faults) {
        let now = self.sim.elapsed_ns();
        for (_, process, node) in self.crashes.cuts.extract_if(.., |(until, ..)| *until <= now) {
            self.sim.partition(process, node, false);
        }
        let nodes = self.engine.nodes();
        let strikes = clock.random_below(LOOKS_PER_DISTURBANCE) == 0 && !nodes.is_empty();
        // A node that is disturbed may be put out, and those who wait for a manager are soon.
        if !strikes
            || !self.engine.may_lose_one(clock)
            || self.crashes.disturbances == MOST_DISTURBANCES
            || self.running.is_empty()
        {
            return;
        }
        self.crashes.disturbances += 1;
        let node = nodes[clock.random_below(nodes.len() as u64) as usize];
        // One that lasts long is as good as a death.
        let long = self.crashes.put_out > 0 && clock.random_below(3) == 0;
        self.crashes.put_out -= usize::from(long);
        let longest = if long { 2 * LEASE } else { LEASE / 3 };
        let span = clock.random_below(longest.as_nanos() as u64);
        let process = self.running[clock.random_below(self.running.len() as u64) as usize].0;
        if clock.random_below(2) == 0 && faults.rate(FaultKind::NodePause) > 0 {
            probe!("a node stops for a while under transactions");
            self.sim.pause_node(node, Duration::from_nanos(span));
        } else if faults.rate(FaultKind::Partition) > 0 {
            probe!("a node is out of somebody's reach");
            self.sim.partition(process, node, true);
            self.crashes.cuts.push((now + span, process, node));
        }
    }

    /// Buries the dead, and puts others in their places; whether anybody is at work.
    fn look(&mut self) -> Result<bool, Failure> {
        for number in (0..self.running.len()).rev() {
            let (process, running) = &self.running[number];
            let dead = !self.sim.is_alive(*process);
            if !dead && !running.is_finished() {
                continue;
            }
            let (process, running) = self.running.swap_remove(number);
            if dead {
                probe!("a machine died, and another takes its place");
                self.tallies.push(running.bury(self.sim.elapsed_ns()));
            } else {
                self.sim.expose(process, false);
                self.tallies.push(running.finished()?);
            }
            if !self.control.is_over() {
                self.add()?;
            }
        }
        Ok(!self.running.is_empty())
    }
}
