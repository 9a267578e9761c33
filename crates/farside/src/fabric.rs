//! How the threads of a process reach the memory nodes.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{ClientId, NodeId, Worker, local, rdma, shm, tcp};
use farside_pool::{Connect, Connecting, NetConnect, Node};

/// One of the fabric's backends, for all threads.
#[derive(Clone, Debug)]
pub(crate) enum Fabric {
    Local(local::Client),
    Shm(shm::Client),
    Net { client: ClientId, options: tcp::Options, timeout: Duration },
}

impl Fabric {
    /// For one thread.
    pub(crate) fn connect(&self) -> Rc<dyn Connect> {
        match self {
            Fabric::Local(client) => Rc::new(Here(client.clone())),
            Fabric::Shm(client) => Rc::new(Shared(client.clone())),
            Fabric::Net { client, options, timeout } => Rc::new(NetConnect::new(
                *client,
                options.clone(),
                rdma::Options::default(),
                *timeout,
            )),
        }
    }
}

struct Here(local::Client);

impl Connect for Here {
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a> {
        let connected = self.0.connect(worker, NodeId(node.id));
        Box::pin(async { connected })
    }
}

struct Shared(shm::Client);

impl Connect for Shared {
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a> {
        let connected = self.0.connect(worker, NodeId(node.id));
        Box::pin(async { connected })
    }
}
