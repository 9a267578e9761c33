//! Nodes over TCP.

use std::net::ToSocketAddrs;
use std::time::Duration;

use farside_fabric::tcp::{Client, Options};
use farside_fabric::{ClientId, FabricError, NodeId, Worker};

use crate::config::Node;
use crate::links::{Connect, Connecting};

/// Reaches nodes whose addresses are HOST:PORT.
#[derive(Clone, Debug)]
pub struct TcpConnect {
    client: Client,
}

impl TcpConnect {
    /// As a client with this id and these credentials; whatever takes longer than `timeout` fails.
    pub fn new(client: ClientId, options: Options, timeout: Duration) -> Self {
        let options = Options { timeout, connect_timeout: timeout, ..options };
        TcpConnect { client: Client::new(client, Vec::new(), options) }
    }
}

impl Connect for TcpConnect {
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a> {
        Box::pin(async move {
            let address = node.address.to_socket_addrs().ok().and_then(|mut found| found.next());
            let address = address.ok_or_else(|| FabricError::Setup {
                what: format!("finding node {} at '{}'", node.id, node.address),
                why: "expected HOST:PORT of a host that exists".into(),
            })?;
            self.client.connect_to(worker, NodeId(node.id), address).await
        })
    }
}
