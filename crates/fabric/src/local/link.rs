//! A queue to a node of this process.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::{ClientState, Posting};
use super::{Life, Node, Shared};
use crate::link::{Bell, Capabilities, Control, Link, Persistence, Posted};
use crate::memory::execute;
use crate::runtime::Worker;
use crate::{ClientId, FabricError, NodeId, Result};

/// How long a fence waits for a doorbell of its victim, whose thread may be off its core.
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct LocalLink {
    worker: Worker,
    cluster: Arc<Shared>,
    node: NodeId,
    bytes: u64,
    life: RefCell<Arc<Life>>,
    client: Arc<ClientState>,
    posting: Arc<Posting>,
}

impl LocalLink {
    pub(super) fn new(
        worker: Worker,
        cluster: Arc<Shared>,
        node: NodeId,
        client: Arc<ClientState>,
        posting: Arc<Posting>,
    ) -> Self {
        let target = &cluster.nodes[node.0 as usize];
        LocalLink {
            bytes: target.bytes,
            life: RefCell::new(target.life()),
            worker,
            cluster,
            node,
            client,
            posting,
        }
    }

    fn target(&self) -> &Node {
        &self.cluster.nodes[self.node.0 as usize]
    }
}

impl Link for LocalLink {
    fn node(&self) -> NodeId {
        self.node
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            line_atomic: false,
            masked_cas: true,
            persistence: Persistence::Volatile,
        }
    }

    #[inline]
    fn post(&self, bell: &mut Bell<'_>) -> Posted {
        let life = self.life.borrow();
        let result = self.client.post(&self.posting, || {
            life.check(self.node)?;
            execute(life.memory.words(), bell, || Ok(()))
        });
        result.into()
    }

    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>> {
        Box::pin(async move {
            self.worker.yield_now().await;
            self.client.check()?;
            self.life.borrow().check(self.node)?;
            self.target().services.run(self.node, self.client.id, service, request)
        })
    }

    fn fence(&self, victim: ClientId) -> Control<'_, ()> {
        Box::pin(async move {
            self.client.check()?;
            self.life.borrow().check(self.node)?;
            let Some(victim) = self.cluster.client(victim) else {
                return Ok(());
            };
            victim.revoke();
            let deadline = self.worker.now() + FENCE_TIMEOUT;
            while !victim.is_quiet() {
                if self.worker.now() > deadline {
                    return Err(FabricError::TimedOut {
                        node: self.node,
                        after: FENCE_TIMEOUT,
                    });
                }
                self.worker.yield_now().await;
            }
            Ok(())
        })
    }

    fn reconnect(&self) -> Control<'_, ()> {
        Box::pin(async move {
            self.client.check()?;
            let life = self.target().life();
            life.check(self.node)?;
            *self.life.borrow_mut() = life;
            Ok(())
        })
    }
}

impl Life {
    #[inline]
    pub(super) fn check(&self, node: NodeId) -> Result<()> {
        if !self.alive.load(Ordering::Relaxed) {
            return Err(FabricError::NodeGone(node));
        }
        Ok(())
    }
}
