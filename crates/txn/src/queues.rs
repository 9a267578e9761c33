//! The queues of a thread to the nodes of a configuration.

use farside_fabric::Queue;
use farside_pool::alloc::Place;
use farside_pool::{Addr, Config, Region, Replica};

use crate::TxnError;

/// A queue to every node.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) epoch: u64,
    pub(crate) to: Vec<(u16, Queue)>,
}

impl Queues {
    #[inline]
    pub(crate) fn to(&self, node: u16) -> Result<&Queue, TxnError> {
        let known = self.to.iter().find(|(id, _)| *id == node);
        let unknown = || TxnError::Refused(format!("there is no queue to node {node}"));
        known.map(|(_, queue)| queue).ok_or_else(unknown)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.to.iter().any(|(_, queue)| queue.is_broken())
    }

    /// A region as a heap reaches it; `None` if a node is out of reach, or there is no copy.
    pub(crate) fn place(&self, region: &Region) -> Option<Place> {
        let reach = |replica: &Replica| Some((self.to(replica.node).ok()?.clone(), replica.base));
        let replicas: Vec<_> = region.replicas.iter().map(reach).collect::<Option<_>>()?;
        let place =
            Place { region: farside_pool::RegionId(region.id), bytes: region.bytes, replicas };
        (!place.replicas.is_empty()).then_some(place)
    }
}

/// The copies of an object; the primary is the first.
#[inline]
pub(crate) fn replicas(config: &Config, addr: Addr) -> Result<&[Replica], TxnError> {
    let region = config.region(addr.region());
    let replicas = region.map_or(&[][..], |region| &region.replicas);
    if replicas.is_empty() { Err(nowhere(addr)) } else { Ok(replicas) }
}

#[cold]
fn nowhere(addr: Addr) -> TxnError {
    TxnError::Refused(format!("{addr} is in no region that has a copy"))
}
