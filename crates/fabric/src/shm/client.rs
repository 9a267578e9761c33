//! A process that is attached to the segments of a cluster.

use std::sync::Arc;
use std::time::Duration;

use super::link::ShmLink;
use super::process::ProcessName;
use super::registry::MAX_CLIENT;
use super::segment::Segment;
use super::server::Server;
use crate::runtime::Worker;
use crate::services::Services;
use crate::{ClientId, FabricError, NodeId, Queue, Result};

/// This process, attached to segments under one id. Clones are the same attachment.
///
/// ```
/// use farside_fabric::{ClientId, NodeId, Worker, shm};
///
/// let segment = shm::Segment::in_memory(NodeId(0), 1 << 20)?;
/// // Another process would do the same after Segment::open(segment.path()).
/// let client = shm::Client::attach([segment], ClientId(1))?;
/// let worker = Worker::new(1);
/// let queue = client.connect(&worker, NodeId(0))?;
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    attached: Arc<Attached>,
}

#[derive(Debug)]
pub(super) struct Attached {
    pub(super) id: ClientId,
    pub(super) process: ProcessName,
    segments: Vec<Segment>,
}

impl Client {
    /// Attaches this process to segments, under an id that no process had before.
    pub fn attach(segments: impl IntoIterator<Item = Segment>, id: ClientId) -> Result<Self> {
        if id.0 == 0 || id.0 > MAX_CLIENT {
            let why = format!("choose an id between 1 and {MAX_CLIENT}");
            return Err(FabricError::setup(format!("attaching as {id}"), why));
        }
        let mut attached = Attached { id, process: ProcessName::of_self()?, segments: Vec::new() };
        for segment in segments {
            segment.check()?;
            segment.registry().attach(id, &attached.process)?;
            attached.segments.push(segment);
        }
        Ok(Client { attached: Arc::new(attached) })
    }

    /// The id under which this process is fenced.
    pub fn id(&self) -> ClientId {
        self.attached.id
    }

    /// How far the time of its segments is ahead of the clock of the host: in a file there may be later times than it has seen since
    /// its boot.
    pub fn ahead(&self) -> Duration {
        let first = self.attached.segments.iter().find_map(Segment::syncer);
        Duration::from_nanos(first.map_or(0, |syncer| syncer.ahead))
    }

    /// A queue of this worker to a node.
    pub fn connect(&self, worker: &Worker, node: NodeId) -> Result<Queue> {
        let segment = self.segment(node)?;
        let link = ShmLink::new(worker.clone(), segment.clone(), Arc::clone(&self.attached));
        Ok(worker.queue(Box::new(link)))
    }

    /// Answers the calls to a node, from a thread of this process, until the result is dropped.
    pub fn serve(&self, node: NodeId, services: Arc<Services>) -> Result<Server> {
        let segment = self.segment(node)?;
        Server::start(segment.clone(), Arc::clone(&self.attached), services)
    }

    fn segment(&self, node: NodeId) -> Result<&Segment> {
        let segment = self.attached.segments.iter().find(|s| s.node() == node);
        let segment = segment.ok_or_else(|| {
            FabricError::setup(format!("{node}"), "this process is not attached to it")
        })?;
        segment.check()?;
        Ok(segment)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for segment in &self.segments {
            segment.registry().detach(self.id, &self.process);
        }
    }
}
