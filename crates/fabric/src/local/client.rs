//! Clients of a local cluster, and how they are fenced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::Shared;
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
    revoked: AtomicBool,
    queues: Mutex<Vec<Arc<Posting>>>,
}

/// Set while a queue executes a doorbell. Each queue has its own line: they are written all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Posting {
    active: AtomicBool,
}

impl Client {
    pub(super) fn new(cluster: Arc<Shared>, id: ClientId) -> Self {
        let state = Arc::new(ClientState {
            id,
            revoked: AtomicBool::new(false),
            queues: Mutex::default(),
        });
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
        self.cluster.node(node)?.life().check(node)?;
        self.state.check()?;
        let posting = Arc::new(Posting::default());
        let mut queues = self.state.queues.lock().expect("no panic while held");
        queues.retain(|known| Arc::strong_count(known) > 1);
        queues.push(Arc::clone(&posting));
        drop(queues);
        let link = LocalLink::new(
            worker.clone(),
            Arc::clone(&self.cluster),
            node,
            Arc::clone(&self.state),
            posting,
        );
        Ok(worker.queue(Box::new(link)))
    }
}

impl ClientState {
    pub(super) fn check(&self) -> Result<()> {
        if self.revoked.load(Ordering::SeqCst) {
            return Err(FabricError::Fenced(self.id));
        }
        Ok(())
    }

    /// Runs a doorbell unless this client is revoked. With [`ClientState::revoke`] this is Dekker's
    /// handshake: either the post sees the revocation, or the revocation sees the post.
    #[inline]
    pub(super) fn post(&self, posting: &Posting, doorbell: impl FnOnce() -> Result<()>) -> Result<()> {
        posting.active.swap(true, Ordering::SeqCst);
        let result = self.check().and_then(|()| doorbell());
        posting.active.store(false, Ordering::Release);
        result
    }

    /// From now on no doorbell of this client begins; `is_quiet` tells when the last one has ended.
    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_quiet(&self) -> bool {
        let queues = self.queues.lock().expect("no panic while held");
        queues.iter().all(|queue| !queue.active.load(Ordering::SeqCst))
    }
}
