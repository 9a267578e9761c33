//! The gate of a queue: open while its client is not fenced and its node is alive.
//!
//! Whoever closes a gate may then wait until no doorbell is under way behind it. That is Dekker's
//! handshake: a post first says that it is under way and then looks at the gate, a fence first
//! closes the gate and then looks for posts, so at least one of them sees the other. Both words
//! share one cache line, which no other queue uses: a post touches nothing else that is shared.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// Why a gate is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Closed {
    Fenced = 1,
    NodeGone = 2,
}

const OPEN: u8 = 0;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gate {
    posting: AtomicBool,
    closed: AtomicU8,
}

impl Gate {
    /// Runs a doorbell, unless the gate is closed.
    #[inline]
    pub(super) fn pass<R>(&self, doorbell: impl FnOnce() -> R) -> Result<R, Closed> {
        self.posting.swap(true, Ordering::SeqCst);
        let closed = self.closed.load(Ordering::SeqCst);
        let result = if closed == OPEN {
            Ok(doorbell())
        } else if closed == Closed::Fenced as u8 {
            Err(Closed::Fenced)
        } else {
            Err(Closed::NodeGone)
        };
        self.posting.store(false, Ordering::Release);
        result
    }

    /// Opens it, before it is added to the gates that may close it.
    pub(super) fn open(&self) {
        self.closed.store(OPEN, Ordering::SeqCst);
    }

    /// No doorbell begins from now on.
    fn close(&self, why: Closed) {
        self.closed.store(why as u8, Ordering::SeqCst);
    }

    fn is_quiet(&self) -> bool {
        !self.posting.load(Ordering::SeqCst)
    }
}

/// The gates that open and close together: those of one client, or those to one life of a node.
#[derive(Debug)]
pub(super) struct Gates {
    why_closed: Closed,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    gates: Vec<Arc<Gate>>,
}

impl Gates {
    pub(super) fn new(why_closed: Closed) -> Self {
        Gates { why_closed, state: Mutex::default() }
    }

    /// Adds a gate, or closes it if these are closed.
    pub(super) fn add(&self, gate: &Arc<Gate>) -> Result<(), Closed> {
        let mut state = self.state.lock().expect("no panic while held");
        if state.closed {
            gate.close(self.why_closed);
            return Err(self.why_closed);
        }
        state.gates.retain(|known| !Arc::ptr_eq(known, gate));
        state.gates.push(Arc::clone(gate));
        Ok(())
    }

    /// Closes all of them for good, and returns them: doorbells may still be under way behind them.
    pub(super) fn close(&self) -> Vec<Arc<Gate>> {
        let mut state = self.state.lock().expect("no panic while held");
        state.closed = true;
        state.gates.iter().for_each(|gate| gate.close(self.why_closed));
        state.gates.clone()
    }

    /// These have nothing to do with a gate any more.
    pub(super) fn remove(&self, gate: &Arc<Gate>) {
        let mut state = self.state.lock().expect("no panic while held");
        state.gates.retain(|known| !Arc::ptr_eq(known, gate));
    }

    pub(super) fn check(&self) -> Result<(), Closed> {
        let state = self.state.lock().expect("no panic while held");
        if state.closed { Err(self.why_closed) } else { Ok(()) }
    }
}

/// Whether no doorbell is under way behind any of these closed gates.
pub(super) fn all_quiet(gates: &[Arc<Gate>]) -> bool {
    gates.iter().all(|gate| gate.is_quiet())
}
