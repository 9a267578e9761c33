//! The bed of `shm`: segments in memory, actors in processes.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use farside_fabric::shm::{Client, Segment, Server};
use farside_fabric::{ClientId, NodeId, Queue, Services, Worker};

use super::process;
use crate::actor::Job;
use crate::bed::{Actor, Bed, NODE_BYTES, NODES, service};

/// Segments that this process made, and serves.
#[derive(Debug)]
pub struct ShmBed {
    worker: Worker,
    segments: Vec<Segment>,
    client: Client,
    next_client: Cell<u64>,
    program: PathBuf,
    _servers: Vec<Server>,
}

impl ShmBed {
    /// A fresh one, whose actors are started from `program`.
    pub fn new(program: &Path) -> Result<Self> {
        let segments: Vec<_> = (0..NODES)
            .map(|node| Segment::in_memory(NodeId(node), NODE_BYTES))
            .collect::<Result<_, _>>()?;
        Self::on(segments, program)
    }

    /// One on given segments.
    pub fn on(segments: Vec<Segment>, program: &Path) -> Result<Self> {
        let client = Client::attach(segments.clone(), ClientId(1))?;
        let services = Arc::new(Services::default());
        service::offer(&services);
        let servers = segments
            .iter()
            .map(|segment| client.serve(segment.node(), Arc::clone(&services)))
            .collect::<Result<_, _>>()?;
        Ok(ShmBed {
            worker: Worker::new(1),
            segments,
            client,
            next_client: Cell::new(2),
            program: program.into(),
            _servers: servers,
        })
    }
}

impl Bed for ShmBed {
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
        let client = client.unwrap_or_else(|| {
            self.next_client.set(self.next_client.get() + 1);
            ClientId(self.next_client.get())
        });
        let paths: Vec<_> = self.segments.iter().map(|s| s.path().display().to_string()).collect();
        process::start(&self.program, &format!("shm:{}", paths.join(",")), client, job)
    }

    fn kill_node(&self, node: NodeId) -> Result<()> {
        self.segments[node.0 as usize].retire();
        Ok(())
    }

    fn restart_node(&self, _: NodeId) -> Result<bool> {
        Ok(false)
    }
}
