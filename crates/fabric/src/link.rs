//! The one seam between verbs and backends: what a backend implements for each queue.

use std::future::Future;
use std::os::fd::RawFd;
use std::pin::Pin;

use crate::{ClientId, FabricError, NodeId, Result};

pub use crate::verbs::{Bell, Completer, Op, Token, Verb};

/// What a backend can do for a queue; ask, never assume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Aligned 64-byte lines are never torn ([C3](crate::contracts#c3-tearing)).
    pub line_atomic: bool,
    /// Masked compare-and-swap is offered.
    pub masked_cas: bool,
    /// What a FLUSH achieves ([C4](crate::contracts#c4-persistence)).
    pub persistence: Persistence,
    /// The last so many bytes of the node's memory are on its NIC: atomics there are fast.
    pub on_chip_bytes: u64,
    /// Which life of the node this leads into, where that can be told: a process that begins again is another one, though it may
    /// have the same memory.
    pub life: u64,
}

impl Capabilities {
    /// Memory that the CPUs of this host share: nothing on a NIC, lines may tear.
    pub(crate) fn of_shared_memory(persistence: Persistence) -> Self {
        Capabilities {
            line_atomic: false,
            masked_cas: true,
            persistence,
            on_chip_bytes: 0,
            life: 0,
        }
    }
}

/// What happens to memory when the power fails ([C4](crate::contracts#c4-persistence)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// Everything is lost; FLUSH orders like a READ and does nothing else.
    Volatile,
    /// Flushed writes survive; unflushed ones may survive in any order.
    Unordered,
    /// What survives is a prefix of what was executed, which includes all that was flushed.
    Ordered,
}

/// How a post went.
#[derive(Debug)]
pub enum Posted {
    /// The whole chain has completed.
    Done,
    /// The chain has failed, with unknown effect. Boxed, so that the good case fits into registers.
    Failed(Box<FabricError>),
    /// The completion will be reported through the [`Completer`].
    Pending,
}

impl From<Result<(), Box<FabricError>>> for Posted {
    #[inline]
    fn from(result: Result<(), Box<FabricError>>) -> Self {
        match result {
            Ok(()) => Posted::Done,
            Err(error) => Posted::Failed(error),
        }
    }
}

/// A descriptor that becomes ready when there is progress to be made.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Which.
    pub fd: RawFd,
    /// There is something to write, too.
    pub writes: bool,
}

/// A future of a control operation; these are off the data path and may allocate.
pub type Control<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// A backend's half of a queue: it executes chains of verbs on one memory node.
///
/// # Safety
///
/// A doorbell lies in memory that the worker lends: while `post`, or a closure given to
/// [`Completer::with_bell`], has a [`Bell`], the implementation must not use a [`Completer`] of the
/// same worker, nor run its tasks. The descriptor that [`Link::watched`] tells is open until the link is used again.
pub unsafe trait Link {
    /// The node at the other end.
    fn node(&self) -> NodeId;

    /// The bytes of memory that the node offers.
    fn memory_bytes(&self) -> u64;

    /// What this link can do.
    fn capabilities(&self) -> Capabilities;

    /// A verb will probably follow soon for what is there: whoever has that memory at hand may fetch it already.
    fn expect(&self, _at: u64) {}

    /// Starts one doorbell: all its verbs, in the order of the chain. Bounds and alignment have been
    /// checked. An unsignaled doorbell may be completed by a later signaled one.
    fn post(&self, bell: Bell<'_>) -> Posted;

    /// Whether anything is in flight that [`Link::poll`] would advance.
    fn busy(&self) -> bool {
        false
    }

    /// Progress of whatever is in flight, made by the thread that posted it; `true` if there was any.
    fn poll(&self, completer: &Completer<'_>) -> bool {
        let _ = completer;
        false
    }

    /// What to wait for while it is busy, and a look is in vain; `None` if one must look again and again.
    fn watched(&self) -> Option<Watched> {
        None
    }

    /// Runs a service on the node.
    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>>;

    /// Fences a client process on this node.
    fn fence(&self, victim: ClientId) -> Control<'_, ()>;

    /// Makes a fresh connection after an error.
    fn reconnect(&self) -> Control<'_, ()>;
}
