//! The bed of `local`: actors are threads, each with a client of its own.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use farside_fabric::local::{Client, Cluster};
use farside_fabric::{ClientId, NodeId, Queue, Worker};

use crate::actor::{self, Job};
use crate::bed::{Actor, Bed, Boxed, Ended, JOIN_PAUSE, NODE_BYTES, NODES, service};

/// Memory nodes of this process.
#[derive(Debug)]
pub struct LocalBed {
    worker: Worker,
    cluster: Cluster,
    client: Client,
    clients: RefCell<Vec<Client>>,
}

impl LocalBed {
    /// A fresh one.
    pub fn new() -> Result<Self> {
        let cluster = Cluster::new(NODES, NODE_BYTES)?;
        for node in 0..NODES {
            service::offer(cluster.services(NodeId(node))?);
        }
        Ok(LocalBed {
            worker: Worker::new(1),
            client: cluster.client(),
            clients: RefCell::default(),
            cluster,
        })
    }
}

impl Bed for LocalBed {
    fn worker(&self) -> &Worker {
        &self.worker
    }

    fn connect(&self, node: NodeId) -> farside_fabric::Result<Queue> {
        self.client.connect(&self.worker, node)
    }

    fn client(&self) -> ClientId {
        self.client.id()
    }

    fn spawn(&self, job: Job, client: Option<ClientId>) -> Result<Box<dyn Actor>> {
        let mut clients = self.clients.borrow_mut();
        let client = match client {
            None => {
                clients.push(self.cluster.client());
                clients.last().expect("just pushed").clone()
            }
            Some(id) => {
                let known = clients.iter().find(|client| client.id() == id);
                known.context("a client that was never started")?.clone()
            }
        };
        let thread = std::thread::spawn({
            let client = client.clone();
            move || {
                let worker = Worker::new(job.me);
                let queues: farside_fabric::Result<Vec<_>> =
                    (0..NODES).map(|node| client.connect(&worker, NodeId(node))).collect();
                worker.block_on(async { actor::work(job, &worker, &queues?).await })
            }
        });
        Ok(Box::new(ThreadActor {
            client,
            cluster: self.cluster.clone(),
            killed: AtomicBool::new(false).into(),
            thread,
        }))
    }

    fn kill_node(&self, node: NodeId) -> Result<()> {
        Ok(self.cluster.kill(node)?)
    }

    fn restart_node(&self, node: NodeId) -> Result<bool> {
        self.cluster.restart(node)?;
        Ok(true)
    }
}

impl Drop for LocalBed {
    /// Endless actors of a finished case must not go on.
    fn drop(&mut self) {
        for client in self.clients.borrow().iter() {
            self.cluster.revoke(client.id());
        }
    }
}

struct ThreadActor {
    client: Client,
    cluster: Cluster,
    killed: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Actor for ThreadActor {
    fn client(&self) -> ClientId {
        self.client.id()
    }

    /// A thread cannot be killed; one whose verbs fail at once comes close.
    fn kill(&mut self) {
        self.killed.store(true, Ordering::Relaxed);
        self.cluster.revoke(self.client.id());
    }

    fn join<'a>(self: Box<Self>, worker: &'a Worker) -> Boxed<'a, Ended> {
        Box::pin(async move {
            while !self.thread.is_finished() {
                worker.sleep(JOIN_PAUSE).await;
            }
            let killed = self.killed.load(Ordering::Relaxed);
            match self.thread.join() {
                _ if killed => Ended::Killed,
                Ok(Ok(())) => Ended::Finished,
                Ok(Err(error)) => Ended::Failed(format!("{error:#}")),
                Err(_) => Ended::Failed("it panicked".into()),
            }
        })
    }
}
