//! A client of memory nodes over TCP, and how it connects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::auth::{Secret, Side, nonce};
use super::handshake::{Challenge, Hello, MAX_HANDSHAKE, Welcome, is_proven, proof};
use super::link::TcpLink;
use super::tls::{Channel, ClientTls};
use super::wire::{HEADER, Header, Kind, PROTOCOL_VERSION};
use crate::runtime::Worker;
use crate::{ClientId, FabricError, NodeId, Queue, Result};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Proves to nodes that this client may connect, and to it that they are the right ones.
    pub secret: Option<Secret>,
    /// Encrypts, and checks the nodes' certificates.
    pub tls: Option<ClientTls>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the answer to a doorbell or call may take.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Options { secret: None, tls: None, connect_timeout: 5 * second, timeout: 5 * second }
    }
}

/// A process that uses memory nodes over TCP, under one id. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) id: ClientId,
    nodes: Vec<SocketAddr>,
    pub(crate) options: Options,
}

/// A node, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) address: SocketAddr,
}

/// How often a task looks whether a helper thread is done, or rounds under way have failed.
pub(crate) const LOOK: Duration = Duration::from_micros(200);

/// Does something that blocks on a thread of its own; other tasks of the worker go on meanwhile.
pub(crate) async fn aside<T: Send + 'static>(
    worker: &Worker,
    node: NodeId,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let helper = std::thread::spawn(work);
    while !helper.is_finished() {
        worker.sleep(LOOK).await;
    }
    helper.join().map_err(|_| FabricError::NodeGone(node))?
}

/// A connection that is ready for doorbells.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(super) channel: Channel,
    pub(super) welcome: Welcome,
}

impl Connected {
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.welcome.memory_bytes
    }
}

/// A connection on which both sides still take turns.
#[derive(Debug)]
pub(crate) struct Dialogue<'a> {
    shared: &'a Shared,
    node: NodeId,
    channel: Channel,
    welcome: Welcome,
}

impl Dialogue<'_> {
    /// Asks for a way to the node's memory that does not lead through this connection.
    pub(crate) fn ask_for_queue(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.shared.send(&mut self.channel, self.node, Kind::Queue, request)?;
        self.shared.expect(&mut self.channel, self.node, Kind::Done)
    }

    /// From now on frames come and go as they like.
    pub(crate) fn settle(mut self) -> Result<Connected> {
        self.channel.give_up_at(None);
        let nonblocking = self.channel.socket.set_nonblocking(true);
        nonblocking.map_err(|_| FabricError::NodeGone(self.node))?;
        Ok(Connected { channel: self.channel, welcome: self.welcome })
    }
}

impl Client {
    /// A client of the nodes at these addresses, which are nodes 0, 1, … in this order.
    pub fn new(id: ClientId, nodes: Vec<SocketAddr>, options: Options) -> Self {
        Client { shared: Arc::new(Shared { id, nodes, options }) }
    }

    /// The id under which this process is fenced.
    pub fn id(&self) -> ClientId {
        self.shared.id
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// A queue of this worker to a node. Blocks until it is connected.
    pub fn connect(&self, worker: &Worker, node: NodeId) -> Result<Queue> {
        let place = self.shared.place(node)?;
        let connected = self.shared.open(place, 0)?.settle()?;
        let link = TcpLink::new(worker.clone(), Arc::clone(&self.shared), place, connected);
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
        let connecting = aside(worker, node, move || shared.open(place, 0)?.settle());
        let connected = connecting.await?;
        let link = TcpLink::new(worker.clone(), Arc::clone(&self.shared), place, connected);
        Ok(worker.queue(Box::new(link)))
    }
}

impl Shared {
    /// Where a node is that was given at the start.
    pub(crate) fn place(&self, node: NodeId) -> Result<Place> {
        let address = self.nodes.get(node.0 as usize).copied();
        let address = address.ok_or_else(|| {
            FabricError::setup(format!("{node}"), format!("there are only {}", self.nodes.len()))
        })?;
        Ok(Place { node, address })
    }

    /// Connects, blocking; `replaces` names a connection that the node has to drop first.
    pub(crate) fn open(&self, place: Place, replaces: u64) -> Result<Dialogue<'_>> {
        let Place { node, address } = place;
        let timeout = self.options.connect_timeout;
        let gone = |_| FabricError::NodeGone(node);
        let until = Instant::now() + timeout;
        let stream =
            TcpStream::connect_timeout(&address, timeout).map_err(|error| match error.kind() {
                std::io::ErrorKind::TimedOut => FabricError::TimedOut { node, after: timeout },
                _ => FabricError::NodeGone(node),
            })?;
        stream.set_nodelay(true).map_err(gone)?;
        stream.set_write_timeout(Some(timeout)).map_err(gone)?;
        let mut channel = match &self.options.tls {
            None => Channel::plain(stream),
            Some(tls) => tls.channel(stream)?,
        };
        channel.give_up_at(Some(until));
        let welcome = self.shake_hands(&mut channel, node, replaces)?;
        Ok(Dialogue { shared: self, node, channel, welcome })
    }

    fn shake_hands(&self, stream: &mut Channel, node: NodeId, replaces: u64) -> Result<Welcome> {
        let denied = |why: String| FabricError::AccessDenied { node, why };
        let strange = || denied("it does not speak this protocol; is this a Farside node?".into());
        let secret = self.options.secret.as_ref();
        let (version, client) = (PROTOCOL_VERSION, self.id.0);
        let hello = Hello { version, client, replaces, nonce: nonce()? };
        self.send(stream, node, Kind::Hello, &hello.encode())?;
        let body = self.expect(stream, node, Kind::Challenge)?;
        let challenge = Challenge::decode(&body).ok_or_else(strange)?;
        if challenge.version != PROTOCOL_VERSION {
            return Err(denied(format!(
                "it speaks version {} of the protocol, this client version {PROTOCOL_VERSION}; upgrade the older one",
                challenge.version
            )));
        }
        if challenge.secret && secret.is_none() {
            return Err(denied("it asks for a secret; give the one it was started with".into()));
        }
        self.send(stream, node, Kind::Proof, &proof(secret, Side::Client, &hello, &challenge))?;
        let body = self.expect(stream, node, Kind::Welcome)?;
        let welcome = Welcome::decode(&body).ok_or_else(strange)?;
        let proven = secret
            .is_none_or(|secret| is_proven(secret, Side::Node, &hello, &challenge, &welcome.proof));
        if !proven {
            return Err(denied("it does not know our secret; is this the right node?".into()));
        }
        Ok(welcome)
    }

    fn send(&self, stream: &mut Channel, node: NodeId, kind: Kind, body: &[u8]) -> Result<()> {
        let frame = [&Header::write(kind, body.len())[..], body].concat();
        stream.write_all(&frame).map_err(|error| self.error(node, &error))
    }

    /// The next frame of the handshake, which must be of this kind.
    fn expect(&self, stream: &mut Channel, node: NodeId, kind: Kind) -> Result<Vec<u8>> {
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).map_err(|error| self.error(node, &error))?;
        let strange = || FabricError::AccessDenied {
            node,
            why: "it does not speak this protocol; is this a Farside node?".into(),
        };
        let header =
            Header::read(&header, MAX_HANDSHAKE).map_err(|_| strange())?.ok_or_else(strange)?;
        let mut body = vec![0; header.body];
        stream.read_exact(&mut body).map_err(|error| self.error(node, &error))?;
        match header.kind {
            Kind::Goodbye => Err(farewell(self.id, node, &body)),
            Kind::Failed => {
                let why = String::from_utf8_lossy(body.get(8..).unwrap_or_default()).into_owned();
                Err(FabricError::AccessDenied { node, why })
            }
            found if found == kind => Ok(body),
            _ => Err(strange()),
        }
    }

    fn error(&self, node: NodeId, error: &std::io::Error) -> FabricError {
        match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                FabricError::TimedOut { node, after: self.options.connect_timeout }
            }
            // What rustls has to say.
            std::io::ErrorKind::Other | std::io::ErrorKind::InvalidData => {
                FabricError::AccessDenied { node, why: format!("TLS: {error}") }
            }
            _ => FabricError::NodeGone(node),
        }
    }
}

/// Why a node says goodbye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Farewell {
    Denied = 1,
    Fenced = 2,
    /// Its disk fails.
    Failing = 3,
}

/// What the goodbye of a node means to a client.
pub(super) fn farewell(client: ClientId, node: NodeId, body: &[u8]) -> FabricError {
    let Some((code, why)) = body.split_first_chunk::<8>() else {
        return FabricError::NodeGone(node);
    };
    if u64::from_le_bytes(*code) == Farewell::Fenced as u64 {
        return FabricError::Fenced(client);
    }
    let why = String::from_utf8_lossy(why).into_owned();
    match u64::from_le_bytes(*code) == Farewell::Failing as u64 {
        true => FabricError::FlushFailed { node, why },
        false => FabricError::AccessDenied { node, why },
    }
}
