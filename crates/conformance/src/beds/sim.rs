//! The bed of `sim`: actors are processes of a simulated cluster.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result};
use farside_fabric::{ClientId, NodeId, Queue, Worker};
use farside_sim::{Faults, ProcessId, Profile, Sim};

use crate::actor::{self, Job};
use crate::bed::{Actor, Bed, Boxed, Ended, JOIN_PAUSE, NODE_BYTES, NODES, service};

/// A simulated cluster, in which everything that C1–C3 leave open happens.
#[derive(Debug)]
pub struct SimBed {
    sim: Rc<Sim>,
    process: ProcessId,
    worker: Worker,
}

impl SimBed {
    /// A fresh one.
    pub fn new(profile: &str, seed: u64, faults: Faults) -> Result<Self> {
        let profile = Profile::named(profile).with_context(|| {
            let names: Vec<_> = Profile::names().collect();
            format!("no profile '{profile}'; there are: {} (each also with +pm)", names.join(", "))
        })?;
        let sim = Sim::new(profile, seed, faults);
        for _ in 0..NODES {
            let node = sim.add_node(NODE_BYTES - profile.on_chip_bytes);
            service::offer(&sim.services(node));
        }
        let process = sim.add_process();
        let worker = sim.add_thread(process);
        Ok(SimBed { sim: Rc::new(sim), process, worker })
    }

    /// The cluster itself.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }
}

impl Bed for SimBed {
    fn worker(&self) -> &Worker {
        &self.worker
    }

    fn connect(&self, node: NodeId) -> farside_fabric::Result<Queue> {
        self.sim.connect(self.process, &self.worker, node)
    }

    fn client(&self) -> ClientId {
        self.sim.client(self.process)
    }

    fn spawn(&self, job: Job, client: Option<ClientId>) -> Result<Box<dyn Actor>> {
        let process = match client {
            None => self.sim.add_process(),
            Some(client) => self.sim.add_process_as(client),
        };
        let worker = self.sim.add_thread(process);
        let queues: farside_fabric::Result<Vec<_>> =
            (0..NODES).map(|node| self.sim.connect(process, &worker, NodeId(node))).collect();
        let ended = Rc::new(RefCell::new(None));
        let (me, result) = (worker.clone(), Rc::clone(&ended));
        let task = worker.spawn(async move {
            let done = match queues {
                Ok(queues) => actor::work(job, &me, &queues).await,
                Err(error) => Err(error.into()),
            };
            result.replace(Some(match done {
                Ok(()) => Ended::Finished,
                Err(error) => Ended::Failed(format!("{error:#}")),
            }));
        });
        task.detach();
        Ok(Box::new(SimActor { sim: Rc::clone(&self.sim), process, ended }))
    }

    fn kill_node(&self, node: NodeId) -> Result<()> {
        self.sim.kill_node(node);
        Ok(())
    }

    fn restart_node(&self, node: NodeId) -> Result<bool> {
        self.sim.restart_node(node);
        Ok(true)
    }
}

struct SimActor {
    sim: Rc<Sim>,
    process: ProcessId,
    ended: Rc<RefCell<Option<Ended>>>,
}

impl Actor for SimActor {
    fn client(&self) -> ClientId {
        self.sim.client(self.process)
    }

    fn kill(&mut self) {
        self.sim.kill(self.process);
    }

    fn join<'a>(self: Box<Self>, worker: &'a Worker) -> Boxed<'a, Ended> {
        Box::pin(async move {
            loop {
                if !self.sim.is_alive(self.process) {
                    return Ended::Killed;
                }
                if let Some(ended) = self.ended.take() {
                    return ended;
                }
                worker.sleep(JOIN_PAUSE).await;
            }
        })
    }
}
