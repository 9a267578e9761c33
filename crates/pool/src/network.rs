//! Nodes on networks: `HOST:PORT` over TCP, `rdma:HOST:PORT` through the NIC.

use std::cell::OnceCell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use farside_fabric::{ClientId, FabricError, NodeId, Result, Worker, rdma, tcp};

use crate::config::Node;
use crate::links::{Connect, Connecting};

/// Reaches nodes on networks.
#[derive(Debug)]
pub struct NetConnect {
    client: ClientId,
    options: tcp::Options,
    rdma_options: rdma::Options,
    tcp: tcp::Client,
    /// Opened with the first node that needs it: most machines have no NIC for it.
    rdma: OnceCell<rdma::Client>,
}

impl NetConnect {
    /// As a client with this id and these credentials; whatever takes longer than `timeout` fails.
    pub fn new(
        client: ClientId,
        options: tcp::Options,
        rdma_options: rdma::Options,
        timeout: Duration,
    ) -> Self {
        let options = tcp::Options { timeout, connect_timeout: timeout, ..options };
        let tcp = tcp::Client::new(client, Vec::new(), options.clone());
        NetConnect { client, options, rdma_options, tcp, rdma: OnceCell::new() }
    }

    fn rdma(&self) -> Result<&rdma::Client> {
        if let Some(client) = self.rdma.get() {
            return Ok(client);
        }
        let (options, rdma) = (self.options.clone(), &self.rdma_options);
        let client = rdma::Client::open(self.client, Vec::new(), options, rdma)?;
        Ok(self.rdma.get_or_init(|| client))
    }
}

/// Where a node is.
fn resolve(node: &Node, place: &str) -> Result<SocketAddr> {
    let found = place.to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| FabricError::Setup {
        what: format!("finding node {} at '{}'", node.id, node.address),
        why: "expected HOST:PORT or rdma:HOST:PORT of a host that exists".into(),
    })
}

impl Connect for NetConnect {
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a> {
        let id = NodeId(node.id);
        Box::pin(async move {
            match node.address.strip_prefix("rdma:") {
                Some(place) => self.rdma()?.connect_to(worker, id, resolve(node, place)?).await,
                None => self.tcp.connect_to(worker, id, resolve(node, &node.address)?).await,
            }
        })
    }
}
