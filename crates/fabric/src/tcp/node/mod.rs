//! A memory node: one thread that owns memory and serves connections.

mod connection;
mod journaled;
mod kept;
mod requests;
mod serve;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_journal::Disk;
use rustix::event::{EventfdFlags, eventfd};

use self::kept::Kept;
use super::auth::{Secret, nonce};
use super::tls::NodeTls;
use crate::clock::Told;
use crate::link::Op;
use crate::memory::{Mapping, WORD};
use crate::services::{Services, TIME};
use crate::{FabricError, MAX_VERB_BYTES, NodeId, Refusal, Result};

/// How a node behaves.
#[derive(Debug)]
pub struct NodeOptions {
    /// Where it listens; loopback unless the network is trusted.
    pub listen: SocketAddr,
    /// How much memory it has.
    pub memory_bytes: u64,
    /// Whether the memory is of huge pages, which the machine must have reserved.
    pub huge_pages: bool,
    /// What clients must know to connect.
    pub secret: Option<Secret>,
    /// Where it keeps a journal: what was flushed is there again after a loss of power.
    pub data: Option<Arc<dyn Disk>>,
    /// Encrypts all connections.
    pub tls: Option<NodeTls>,
    /// How many connections there may be at once.
    pub max_connections: usize,
    /// How long a connection may take to show who it is.
    pub handshake_timeout: Duration,
    /// How long a frame may take from its first byte to its last, and an answer to be taken.
    pub stall_timeout: Duration,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            memory_bytes: 64 << 20,
            huge_pages: false,
            secret: None,
            data: None,
            tls: None,
            max_connections: 8192,
            handshake_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// A client has connected.
    Connected {
        /// From where.
        peer: SocketAddr,
        /// Under which id.
        client: u64,
    },
    /// A connection was closed by this node.
    Refused {
        /// From where.
        peer: SocketAddr,
        /// Why.
        why: String,
    },
    /// The disk fails: nothing is written to memory any more.
    Failing {
        /// Why.
        why: String,
    },
    /// A client was fenced.
    Fenced {
        /// Its id.
        client: u64,
    },
}

/// A memory node that listens.
#[derive(Debug)]
pub struct Node {
    listener: TcpListener,
    options: NodeOptions,
    memory: Arc<Mapping>,
    door: Option<Box<dyn SideDoor>>,
    incarnation: u64,
    services: Arc<Services>,
    journal: Option<Kept>,
}

/// Another way to the memory of a node, opened over its connections and closed with them. While there
/// is one, connections carry no doorbells: atomics must all go the same way.
pub(crate) trait SideDoor: std::fmt::Debug + Send {
    /// What a client asks for, and the answer that it needs; or why not.
    fn open(&mut self, connection: u64, request: &[u8]) -> Result<Vec<u8>, String>;

    /// The connection is gone: when this returns, nothing that came through its door takes effect.
    fn close(&mut self, connection: u64);
}

/// Ends a node from another thread, or from a signal handler's flag.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    flag: Option<Arc<AtomicBool>>,
    wake: Arc<OwnedFd>,
}

impl Stop {
    /// One that has not been asked for yet.
    pub fn new() -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| FabricError::setup("making an eventfd", e))?;
        Ok(Stop { asked: Arc::default(), flag: None, wake: Arc::new(wake) })
    }

    /// One that also listens to a flag of the caller's, such as a signal handler sets.
    pub fn with_flag(flag: Arc<AtomicBool>) -> Result<Self> {
        Ok(Stop { flag: Some(flag), ..Self::new()? })
    }

    /// Asks the node to end.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    fn is_asked(&self) -> bool {
        let flagged = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
        self.asked.load(Ordering::Acquire) || self.flag.as_ref().is_some_and(flagged)
    }
}

/// What verbs may address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) memory_bytes: u64,
}

impl Limits {
    /// Whether a verb that came in may be executed.
    pub(super) fn check(&self, op: Op, at: u64, words: usize) -> Result<(), Refusal> {
        let memory = self.memory_bytes;
        let expected = match op {
            Op::Read | Op::Write => words,
            Op::Cas => 2,
            Op::Faa => 1,
            Op::MaskedCas => 4,
            Op::Flush => 0,
        };
        let moved = match op {
            Op::Read | Op::Write => words as u64 * WORD,
            Op::Flush => return if words == 0 { Ok(()) } else { Err(Refusal::Empty { at }) },
            _ => WORD,
        };
        if words != expected || moved == 0 {
            Err(Refusal::Empty { at })
        } else if !at.is_multiple_of(WORD) {
            Err(Refusal::Misaligned { at, bytes: moved })
        } else if moved > MAX_VERB_BYTES {
            Err(Refusal::TooLarge { bytes: moved })
        } else if at >= memory || moved > memory - at {
            Err(Refusal::OutOfBounds { node: NodeId(0), at, bytes: moved, memory })
        } else {
            Ok(())
        }
    }
}

impl Node {
    /// Makes the memory and opens the port.
    pub fn bind(options: NodeOptions) -> Result<Self> {
        let memory = match options.huge_pages {
            true => Mapping::huge(options.memory_bytes)?,
            false => Mapping::anonymous(options.memory_bytes)?,
        };
        let listener = TcpListener::bind(options.listen).map_err(|e| {
            let why = match e.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!("{e}; another program listens there, choose another port")
                }
                std::io::ErrorKind::PermissionDenied => format!("{e}; choose a port above 1023"),
                _ => e.to_string(),
            };
            FabricError::setup(format!("listening on {}", options.listen), why)
        })?;
        listener
            .set_nonblocking(true)
            .map_err(|e| FabricError::setup("making the port non-blocking", e))?;
        let random = nonce()?;
        let incarnation = u64::from_le_bytes(random[..8].try_into().expect("8 bytes"));
        let (memory, services) = (Arc::new(memory), Arc::new(Services::default()));
        let journal = options.data.as_ref().map(|disk| Kept::open(disk, &memory)).transpose()?;
        let ahead = journal.as_ref().map_or(0, Kept::ahead);
        services.offer(TIME, move |_, _| Ok(Told::answer(ahead)));
        Ok(Node { listener, options, memory, door: None, incarnation, services, journal })
    }

    pub(crate) fn memory(&self) -> Arc<Mapping> {
        Arc::clone(&self.memory)
    }

    pub(crate) fn open_side_door(&mut self, door: Box<dyn SideDoor>) {
        self.door = Some(door);
    }

    /// What it found on its disk, if it keeps a journal.
    pub fn report(&self) -> Option<&farside_journal::Report> {
        self.journal.as_ref().map(|kept| &kept.report)
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| FabricError::setup("asking for the port", e))
    }

    /// The services that it offers.
    pub fn services(&self) -> Arc<Services> {
        Arc::clone(&self.services)
    }

    /// Serves connections on this thread until `stop` is asked for; `tell` hears what happens.
    pub fn run(self, stop: &Stop, tell: impl FnMut(NodeEvent)) -> Result<()> {
        serve::Serving::new(self, stop, tell)?.run()
    }
}
