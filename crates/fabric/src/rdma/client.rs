//! A client of memory nodes behind RDMA NICs, and how it is introduced to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::chain::Remote;
use super::device::{Device, Options};
use super::link::RdmaLink;
use super::pair::{Card, Pair};
use super::region::Region;
use crate::runtime::Worker;
use crate::tcp::{self, Place};
use crate::{ClientId, FabricError, NodeId, Queue, Result};

/// A process that uses memory nodes through its NIC, under one id. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    control: tcp::Client,
    device: Arc<Device>,
    buffer_bytes: u64,
}

/// Both ends know each other.
pub(super) struct Introduced {
    pub(super) connected: tcp::Connected,
    pub(super) pair: Pair,
    pub(super) remote: Remote,
    pub(super) line_atomic: bool,
}

impl Client {
    /// A client of the nodes whose control connections listen at these addresses, and which are nodes
    /// 0, 1, … in this order. Opens the device.
    pub fn open(
        id: ClientId,
        nodes: Vec<SocketAddr>,
        control: tcp::Options,
        options: &Options,
    ) -> Result<Self> {
        let bytes = options.buffer_bytes;
        if !(4096..=1 << 30).contains(&bytes) || !bytes.is_multiple_of(4096) {
            let why = "give a multiple of 4096 between 4 KiB and 1 GiB";
            return Err(FabricError::setup(format!("a buffer of {bytes} bytes"), why));
        }
        let device = Device::open(options)?;
        let control = tcp::Client::new(id, nodes, control);
        Ok(Client { shared: Arc::new(Shared { control, device, buffer_bytes: bytes }) })
    }

    /// The id under which this process is fenced.
    pub fn id(&self) -> ClientId {
        self.shared.control.id()
    }

    /// A queue of this worker to a node. Blocks until it is connected.
    pub fn connect(&self, worker: &Worker, node: NodeId) -> Result<Queue> {
        let place = self.shared.control().place(node)?;
        let introduced = self.shared.introduce(place, 0)?;
        let link = RdmaLink::new(worker.clone(), Arc::clone(&self.shared), place, introduced)?;
        Ok(worker.queue(Box::new(link)))
    }

    /// A queue of this worker to a node somewhere else, which will be known as `node`. Other tasks of the
    /// worker go on meanwhile.
    pub async fn connect_to(
        &self,
        worker: &Worker,
        node: NodeId,
        address: SocketAddr,
    ) -> Result<Queue> {
        let (place, shared) = (Place { node, address }, Arc::clone(&self.shared));
        let introducing = tcp::aside(worker, node, move || shared.introduce(place, 0));
        let introduced = introducing.await?;
        let link = RdmaLink::new(worker.clone(), Arc::clone(&self.shared), place, introduced)?;
        Ok(worker.queue(Box::new(link)))
    }
}

/// The node's answer to a card: its own card, then where its memory is.
pub(super) const ANSWER_BYTES: usize = Card::BYTES + 24;

impl Shared {
    pub(super) fn control(&self) -> Arc<tcp::Shared> {
        self.control.shared()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.control.shared().options.timeout
    }

    pub(super) fn buffer(&self) -> Result<Region> {
        Region::buffer(&self.device, self.buffer_bytes)
    }

    /// Connects, blocking: exchanges keys and addresses over the control connection.
    pub(super) fn introduce(&self, place: Place, replaces: u64) -> Result<Introduced> {
        let (node, control) = (place.node, self.control.shared());
        let mut dialogue = control.open(place, replaces)?;
        let mut pair = Pair::asking(&self.device)?;
        let answer = dialogue.ask_for_queue(&pair.card().encode())?;
        let strange = || FabricError::AccessDenied {
            node,
            why: "its answer about its queue pair makes no sense; are both of one version?".into(),
        };
        let answer: &[u8; ANSWER_BYTES] = answer.as_slice().try_into().map_err(|_| strange())?;
        let (card, memory) = answer.split_at(Card::BYTES);
        let peer = Card::decode(card).ok_or_else(strange)?;
        let word = |at: usize| u64::from_le_bytes(memory[at..at + 8].try_into().expect("8 bytes"));
        let remote = Remote { base: word(0), key: word(8) as u32 };
        pair.ask(&peer)?;
        let line_atomic = word(16) & 1 != 0;
        Ok(Introduced { connected: dialogue.settle()?, pair, remote, line_atomic })
    }
}
