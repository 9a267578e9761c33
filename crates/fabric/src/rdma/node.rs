//! A node's side: its memory, registered, and a queue pair for each connection that asked for one.

use std::collections::HashMap;
use std::sync::Arc;

use super::client::ANSWER_BYTES;
use super::device::{Device, Options};
use super::pair::{Card, Pair};
use super::region::Region;
use crate::Result;
use crate::tcp::{Node, NodeOptions, SideDoor};

/// A memory node whose memory is reached through this machine's NIC. Its port is for control
/// connections only.
pub fn open_node(options: NodeOptions, rdma: &Options) -> Result<Node> {
    let device = Device::open(rdma)?;
    let mut node = Node::bind(options)?;
    let region = Region::far_memory(&device, node.memory())?;
    node.open_side_door(Box::new(Door { pairs: HashMap::new(), region, device }));
    Ok(node)
}

#[derive(Debug)]
struct Door {
    // Pairs go before the memory that they reach.
    pairs: HashMap<u64, Pair>,
    region: Region,
    device: Arc<Device>,
}

impl SideDoor for Door {
    fn open(&mut self, connection: u64, request: &[u8]) -> std::result::Result<Vec<u8>, String> {
        if self.pairs.contains_key(&connection) {
            return Err("this connection has a queue pair already".into());
        }
        let peer = Card::decode(request).ok_or("a description of a queue pair was expected")?;
        let mut pair = Pair::answering(&self.device).map_err(|e| e.to_string())?;
        pair.answer(&peer).map_err(|e| e.to_string())?;
        let mut answer = pair.card().encode().to_vec();
        let flags = u64::from(self.device.line_atomic);
        for word in [self.region.base(), self.region.remote_key().into(), flags] {
            answer.extend_from_slice(&word.to_le_bytes());
        }
        debug_assert_eq!(answer.len(), ANSWER_BYTES);
        self.pairs.insert(connection, pair);
        Ok(answer)
    }

    fn close(&mut self, connection: u64) {
        self.pairs.remove(&connection);
    }
}
