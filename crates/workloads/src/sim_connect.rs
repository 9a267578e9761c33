//! How simulated processes reach simulated nodes.

use std::rc::Weak;

use farside_fabric::{FabricError, NodeId, Worker};
use farside_pool::{Connect, Connecting, Node};
use farside_sim::{ProcessId, Sim};

/// Reaches simulated nodes; their addresses are their numbers.
pub(crate) struct SimConnect {
    pub(crate) sim: Weak<Sim>,
    pub(crate) process: ProcessId,
}

impl Connect for SimConnect {
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a> {
        let number = NodeId(node.address.parse().expect("addresses are numbers"));
        let connected = match self.sim.upgrade() {
            Some(sim) => sim.connect(self.process, worker, number),
            None => Err(FabricError::NodeGone(number)),
        };
        Box::pin(async { connected })
    }
}
