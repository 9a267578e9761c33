//! Clients of a local cluster.

use std::sync::Arc;

use super::Shared;
use super::gate::{Closed, Gates};
use super::link::LocalLink;
use crate::runtime::Worker;
use crate::{ClientId, FabricError, NodeId, Queue, Result};

/// What would be a process elsewhere: it connects under one id, and is fenced as a whole.
#[derive(Clone, Debug)]
pub struct Client {
    cluster: Arc<Shared>,
    state: Arc<ClientState>,
}

#[derive(Debug)]
pub(super) struct ClientState {
    pub(super) id: ClientId,
    pub(super) gates: Gates,
}

impl Client {
    pub(super) fn new(cluster: Arc<Shared>, id: ClientId) -> Self {
        let state = Arc::new(ClientState { id, gates: Gates::new(Closed::Fenced) });
        let mut clients = cluster.clients.lock().expect("no panic while held");
        clients.retain(|known| Arc::strong_count(known) > 1);
        clients.push(Arc::clone(&state));
        drop(clients);
        Client { cluster, state }
    }

    /// The id under which this client is fenced.
    pub fn id(&self) -> ClientId {
        self.state.id
    }

    /// A queue of this worker to a node.
    pub fn connect(&self, worker: &Worker, node: NodeId) -> Result<Queue> {
        self.cluster.node(node)?;
        let cluster = Arc::clone(&self.cluster);
        let link = LocalLink::connect(worker.clone(), cluster, node, Arc::clone(&self.state))?;
        Ok(worker.queue(Box::new(link)))
    }
}

impl ClientState {
    pub(super) fn check(&self) -> Result<()> {
        self.gates.check().map_err(|_| FabricError::Fenced(self.id))
    }
}
