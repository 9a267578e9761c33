//! A queue to a node of this process.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::client::ClientState;
use super::gate::{Closed, Gate, all_quiet};
use super::{Life, Node, Shared};
use crate::link::{Bell, Capabilities, Control, Link, Persistence, Posted};
use crate::memory::{execute, prefetch};
use crate::runtime::Worker;
use crate::{ClientId, FabricError, NodeId, Result};

/// How long a fence waits for a doorbell of its victim, whose thread may be off its core.
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct LocalLink {
    gate: Arc<Gate>,
    /// The incarnation that this queue is connected to; `keeps` holds it.
    life: Cell<NonNull<Life>>,
    keeps: RefCell<Arc<Life>>,
    worker: Worker,
    cluster: Arc<Shared>,
    node: NodeId,
    client: Arc<ClientState>,
}

impl LocalLink {
    pub(super) fn connect(
        worker: Worker,
        cluster: Arc<Shared>,
        node: NodeId,
        client: Arc<ClientState>,
    ) -> Result<Self> {
        let life = cluster.nodes[node.0 as usize].life();
        let link = LocalLink {
            gate: Arc::default(),
            life: Cell::new(NonNull::from(&*life)),
            keeps: RefCell::new(Arc::clone(&life)),
            worker,
            cluster,
            node,
            client,
        };
        link.open(life)?;
        Ok(link)
    }

    /// Connects to an incarnation. Whoever closes the gate after it was added has the last word.
    fn open(&self, life: Arc<Life>) -> Result<()> {
        self.keeps.borrow().gates.remove(&self.gate);
        self.gate.open();
        life.gates.add(&self.gate).map_err(|why| self.error(why))?;
        self.life.set(NonNull::from(&*life));
        self.keeps.replace(life);
        self.client.gates.add(&self.gate).map_err(|why| self.error(why))
    }

    fn error(&self, why: Closed) -> FabricError {
        match why {
            Closed::Fenced => FabricError::Fenced(self.client.id),
            Closed::NodeGone => FabricError::NodeGone(self.node),
        }
    }

    fn target(&self) -> &Node {
        &self.cluster.nodes[self.node.0 as usize]
    }

    fn check(&self) -> Result<()> {
        self.client.check()?;
        self.keeps.borrow().gates.check().map_err(|why| self.error(why))
    }
}

impl Drop for LocalLink {
    fn drop(&mut self) {
        self.keeps.borrow().gates.remove(&self.gate);
        self.client.gates.remove(&self.gate);
    }
}

// SAFETY: `post` executes the chain itself and touches nothing else of the worker.
unsafe impl Link for LocalLink {
    fn node(&self) -> NodeId {
        self.node
    }

    fn memory_bytes(&self) -> u64 {
        self.target().bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of_shared_memory(Persistence::Volatile)
    }

    #[inline]
    fn expect(&self, at: u64) {
        // SAFETY: as in `post`.
        prefetch(unsafe { self.life.get().as_ref() }.memory.words(), at);
    }

    #[inline]
    fn post(&self, bell: Bell<'_>) -> Posted {
        // SAFETY: `keeps` holds it; both change together, on this thread, in `open`.
        let life = unsafe { self.life.get().as_ref() };
        match self.gate.pass(|| execute(life.memory.words(), bell, || Ok(()))) {
            Ok(done) => done.into(),
            Err(why) => Posted::Failed(Box::new(self.error(why))),
        }
    }

    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>> {
        Box::pin(async move {
            self.worker.yield_now().await;
            // A fence waits for a call under way as it does for a doorbell.
            let run = || self.target().services.run(self.node, self.client.id, service, request);
            self.gate.pass(run).map_err(|why| self.error(why))?
        })
    }

    fn fence(&self, victim: ClientId) -> Control<'_, ()> {
        Box::pin(async move {
            self.check()?;
            let Some(victim) = self.cluster.client(victim) else {
                return Ok(());
            };
            let closed = victim.gates.close();
            let deadline = self.worker.now() + FENCE_TIMEOUT;
            while !all_quiet(&closed) {
                if self.worker.now() > deadline {
                    return Err(FabricError::TimedOut { node: self.node, after: FENCE_TIMEOUT });
                }
                self.worker.yield_now().await;
            }
            Ok(())
        })
    }

    fn reconnect(&self) -> Control<'_, ()> {
        // Verbs take effect while they are posted: none of the old queue is left.
        Box::pin(async move { self.open(self.target().life()) })
    }
}
