//! All machines and nodes lose their power at once, or one node does, now and then: nodes have again what was flushed, and some of
//! what came after it. What was reported as committed is there.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::{NodeId, Worker, probe};
use farside_sim::{ProcessId, Sim};

use crate::driver::{Control, Plan, Running, Tally, Team};
use crate::engine::{Engine, Failure, SimTables};
use crate::history::Sink;
use crate::load::Workload;

/// How long somebody is silent before the others take it for dead.
const LEASE: Duration = Duration::from_millis(100);

/// How often the power fails.
const LOSSES: u64 = 3;

/// Within this time after what is dead is noticed, in nanoseconds.
const SHORTLY: u64 = 30_000_000;

/// Some machines die alone, after at most so many doorbells that write several times.
const DOORBELLS_PER_LIFE: u64 = 60;
const MOST_MORTALS: usize = 20;

/// How often it is looked.
const LOOK: Duration = Duration::from_micros(50);

/// No run takes longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs a workload, and checks its invariants.
pub(super) fn simulate<W: Workload + Send + 'static>(
    sim: &Rc<Sim>,
    engine: SimTables,
    workload: &Arc<W>,
    plan: &Plan,
    sink: &Sink,
) -> Result<(Tally, Result<(), String>), Failure> {
    let engine = engine.with_lease(LEASE);
    let (loader, worker) = engine.new_machine(0)?;
    worker.block_on(async {
        engine.create(&worker, &workload.tables()).await?;
        workload.setup(&engine, &worker).await
    })?;
    let control = Arc::new(Control::default());
    control.begin(plan);
    let team = Team { engine: &engine, workload, plan, control: &control, sink: Some(sink) };
    // Outside of everything.
    let clock = sim.add_thread(sim.add_process());
    let mut losses: Vec<u64> = (0..LOSSES).map(|_| clock.random_below(control.left())).collect();
    losses.sort_unstable();
    let mut born = 0;
    let mut add = || -> Result<(ProcessId, Running), Failure> {
        born += 1;
        let (process, worker) = engine.new_machine(born as u64)?;
        if born % 2 == 1 && born < MOST_MORTALS {
            sim.kill_writing(process, worker.random_below(DOORBELLS_PER_LIFE));
        }
        Ok((process, team.start(&worker, born)))
    };
    let mut running = (0..plan.threads).map(|_| add()).collect::<Result<Vec<_>, _>>()?;
    let (mut old, mut again) = (Old { sim, doomed: Vec::new(), tallies: Vec::new() }, None);
    while running.iter().any(|(_, team)| !team.is_finished()) {
        clock.block_on(clock.sleep(LOOK));
        let shortly = || {
            // While what was left is being repaired, or when that was done just now.
            let span = LEASE + Duration::from_nanos(clock.random_below(SHORTLY));
            Some(sim.elapsed_ns() + span.as_nanos() as u64)
        };
        while let Some(dead) = running.iter().position(|(process, _)| !sim.is_alive(*process)) {
            old.doom(running.swap_remove(dead), 0);
            running.push(add()?);
            again = again.or_else(shortly);
        }
        let is_again = again.take_if(|at| *at <= sim.elapsed_ns()).is_some();
        if is_again || losses.pop_if(|at| *at >= control.left()).is_some() {
            if !is_again && clock.random_below(2) == 0 {
                again = shortly();
            }
            let alone = lose_power(sim, engine.all_nodes(), &clock);
            sim.kill(loader);
            running.drain(..).for_each(|machine| old.doom(machine, clock.random_below(SHORTLY)));
            old.bury(if alone { sim.elapsed_ns() } else { u64::MAX });
            running = (0..plan.threads).map(|_| add()).collect::<Result<Vec<_>, _>>()?;
        }
        old.bury(sim.elapsed_ns());
        if sim.elapsed_ns() > LONGEST.as_nanos() as u64 {
            return Err(Failure::Broken(format!("no end after {LONGEST:?}")));
        }
    }
    old.bury(u64::MAX);
    for (_, team) in running {
        old.tallies.push(team.finished()?);
    }
    let tally = Tally::merged(old.tallies).ok_or_else(|| Failure::Broken("no threads".into()))?;
    sim.calm();
    let (_, last) = engine.new_machine(0)?;
    let invariants = last.block_on(workload.check(&mut engine.session(&last)));
    Ok((tally, invariants))
}

/// Machines that knew a node before it began again: they go on until they notice, and end.
struct Old<'s> {
    sim: &'s Sim,
    doomed: Vec<(u64, ProcessId, Running)>,
    tallies: Vec<Tally>,
}

impl Old<'_> {
    /// It is to end after so long.
    fn doom(&mut self, (process, team): (ProcessId, Running), after: u64) {
        self.doomed.push((self.sim.elapsed_ns() + after, process, team));
    }

    /// Ends those whose time has come.
    fn bury(&mut self, now: u64) {
        for (_, process, team) in self.doomed.extract_if(.., |(until, ..)| *until <= now) {
            self.sim.kill(process);
            self.tallies.push(team.bury(self.sim.elapsed_ns()));
        }
    }
}

/// All nodes lose their power, or one does; whether it was one alone.
fn lose_power(sim: &Rc<Sim>, mut nodes: Vec<NodeId>, clock: &Worker) -> bool {
    let alone = clock.random_below(2) == 0;
    if alone {
        probe!("one node loses its power");
        nodes = vec![nodes[clock.random_below(nodes.len() as u64) as usize]];
    } else {
        probe!("all nodes lose their power");
    }
    nodes.iter().for_each(|node| sim.kill_node(*node));
    clock.block_on(clock.sleep(LOOK));
    nodes.iter().for_each(|node| sim.restart_node(*node));
    alone
}
