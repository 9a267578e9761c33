//! A queue: a worker's connection to one memory node.

use std::cell::Cell;
use std::fmt;
use std::rc::{Rc, Weak};

use crate::link::{Capabilities, Link, Persistence};
use crate::runtime::Worker;
use crate::{ClientId, FabricError, NodeId, Result};

/// The most bytes that a call's request or reply may have.
pub(crate) const MAX_CALL_BYTES: usize = 64 << 10;

/// A worker's connection to one memory node, shared by the tasks of that worker.
#[derive(Clone)]
pub struct Queue {
    pub(super) state: Rc<QueueState>,
}

pub(crate) struct QueueState {
    pub(crate) link: Rc<dyn Link>,
    pub(super) node: NodeId,
    pub(super) memory_bytes: u64,
    pub(super) capabilities: Capabilities,
    pub(super) broken: Cell<bool>,
}

impl Queue {
    pub(crate) fn new(link: Rc<dyn Link>) -> Self {
        let state = QueueState {
            node: link.node(),
            memory_bytes: link.memory_bytes(),
            capabilities: link.capabilities(),
            broken: Cell::new(false),
            link,
        };
        Queue { state: Rc::new(state) }
    }

    pub(crate) fn downgrade(&self) -> Weak<QueueState> {
        Rc::downgrade(&self.state)
    }

    /// The node at the other end.
    pub fn node(&self) -> NodeId {
        self.state.node
    }

    /// How many bytes of far memory the node offers, from address 0 on.
    pub fn memory_bytes(&self) -> u64 {
        self.state.memory_bytes
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> Capabilities {
        self.state.capabilities
    }

    /// Whether the node has again what was flushed, after a loss of power.
    pub fn keeps_what_is_flushed(&self) -> bool {
        self.state.capabilities.persistence != Persistence::Volatile
    }

    /// Whether it may then have what came later, without what came before that.
    pub fn keeps_in_any_order(&self) -> bool {
        self.state.capabilities.persistence == Persistence::Unordered
    }

    /// Whether an error broke the queue ([C5](crate::contracts#c5-errors)).
    pub fn is_broken(&self) -> bool {
        self.state.broken.get()
    }

    /// A verb will probably follow soon for what is at an address: nothing happens, but that may be faster then.
    #[inline]
    pub fn expect(&self, at: u64) {
        self.state.link.expect(at);
    }

    /// Runs a service on the node: two-sided, for the control plane.
    pub async fn call(&self, service: u16, request: &[u8]) -> Result<Vec<u8>> {
        if request.len() > MAX_CALL_BYTES {
            return Err(FabricError::Limit {
                what: "bytes of a call",
                limit: MAX_CALL_BYTES,
                remedy: "send it in parts, or WRITE it and pass its address",
            });
        }
        self.state.link.call(service, request).await
    }

    /// Fences a client process on this node ([C6](crate::contracts#c6-fencing)).
    pub async fn fence(&self, victim: ClientId) -> Result<()> {
        self.state.link.fence(victim).await
    }

    /// Connects again after an error. Returns only once no verb posted before can take effect any
    /// more; what the node's memory then holds is for the layer above to find out.
    pub async fn reconnect(&self) -> Result<()> {
        self.state.link.reconnect().await?;
        self.state.broken.set(false);
        Ok(())
    }

    /// Connects again like [`Queue::reconnect`], and returns another queue: this one stays broken, for all who have it. So
    /// whoever must know first what the node's memory holds can look, before anybody uses it.
    pub async fn renewed(&self, worker: &Worker) -> Result<Queue> {
        self.state.broken.set(true);
        self.state.link.reconnect().await?;
        Ok(worker.queue_over(Rc::clone(&self.state.link)))
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl fmt::Debug for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("node", &self.node)
            .field("broken", &self.broken.get())
            .finish_non_exhaustive()
    }
}
