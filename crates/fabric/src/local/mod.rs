//! Backend `local`: memory nodes within this process, reached by its threads.
//!
//! A verb takes effect while it is posted, so a round has completed by the time it is awaited. A
//! client stands for what would be a process elsewhere: it has an id and can be fenced.

mod client;
mod gate;
mod link;

pub use client::Client;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crate::memory::Mapping;
use crate::services::Services;
use crate::{ClientId, FabricError, NodeId, Result};
use client::ClientState;
use gate::{Closed, Gates};

/// Memory nodes of this process. Clones name the same nodes.
///
/// ```
/// use farside_fabric::{NodeId, Worker, local};
///
/// let cluster = local::Cluster::new(3, 1 << 20)?;
/// let client = cluster.client();
/// let worker = Worker::new(1);
/// let queue = client.connect(&worker, NodeId(2))?;
/// assert_eq!(queue.memory_bytes(), 1 << 20);
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    nodes: Vec<Node>,
    clients: Mutex<Vec<Arc<ClientState>>>,
    next_client: AtomicU64,
}

#[derive(Debug)]
struct Node {
    bytes: u64,
    life: RwLock<Arc<Life>>,
    services: Services,
}

/// One incarnation of a node. Who still writes to an incarnation that has ended writes to memory
/// that nobody reads any more.
#[derive(Debug)]
struct Life {
    memory: Mapping,
    gates: Gates,
}

impl Cluster {
    /// `nodes` memory nodes with `bytes` bytes each, zeroed.
    pub fn new(nodes: u16, bytes: u64) -> Result<Self> {
        let nodes = (0..nodes)
            .map(|_| {
                Ok(Node {
                    bytes,
                    life: RwLock::new(Life::new(bytes)?),
                    services: Services::default(),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Cluster {
            shared: Arc::new(Shared {
                nodes,
                clients: Mutex::default(),
                next_client: AtomicU64::new(1),
            }),
        })
    }

    /// A new client, with an id of its own.
    pub fn client(&self) -> Client {
        let id = ClientId(self.shared.next_client.fetch_add(1, Ordering::Relaxed));
        Client::new(Arc::clone(&self.shared), id)
    }

    /// The services of a node.
    pub fn services(&self, node: NodeId) -> Result<&Services> {
        Ok(&self.shared.node(node)?.services)
    }

    /// Revokes a client, as a fence does, without waiting for its doorbells under way.
    pub fn revoke(&self, client: ClientId) {
        if let Some(client) = self.shared.client(client) {
            client.gates.close();
        }
    }

    /// Ends a node as if its machine had failed: its memory is lost, its queues break.
    pub fn kill(&self, node: NodeId) -> Result<()> {
        self.shared.node(node)?.life().gates.close();
        Ok(())
    }

    /// Starts a killed node again, as a new incarnation with zeroed memory.
    pub fn restart(&self, node: NodeId) -> Result<()> {
        let node = self.shared.node(node)?;
        let fresh = Life::new(node.bytes)?;
        // The old incarnation ends before anyone can reconnect to the new one.
        let mut life = node.life.write().expect("no panic while held");
        life.gates.close();
        *life = fresh;
        Ok(())
    }
}

impl Shared {
    /// Ids are handed out by the cluster: one that it does not know cannot appear later.
    fn client(&self, id: ClientId) -> Option<Arc<ClientState>> {
        let clients = self.clients.lock().expect("no panic while held");
        clients.iter().find(|client| client.id == id).cloned()
    }

    fn node(&self, node: NodeId) -> Result<&Node> {
        self.nodes.get(node.0 as usize).ok_or_else(|| {
            FabricError::setup(
                format!("{node}"),
                format!("there are only {} nodes", self.nodes.len()),
            )
        })
    }
}

impl Node {
    fn life(&self) -> Arc<Life> {
        Arc::clone(&self.life.read().expect("no panic while held"))
    }
}

impl Life {
    fn new(bytes: u64) -> Result<Arc<Self>> {
        let memory = Mapping::anonymous(bytes)?;
        Ok(Arc::new(Life { memory, gates: Gates::new(Closed::NodeGone) }))
    }
}
