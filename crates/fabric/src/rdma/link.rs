//! The queue of a client: posting, completions, errors.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::chain::{Cursor, Flight};
use super::client::{Introduced, Shared};
use super::ffi::{Completion, status};
use super::pair::Pair;
use crate::link::{Bell, Capabilities, Completer, Control, Link, Posted, Token};
use crate::runtime::Worker;
use crate::tcp::{LOOK, Place, TcpLink, aside};
use crate::{ClientId, FabricError, NodeId, Persistence, Result, Time};

/// How many looks in vain share one look at the clock and at the control connection.
const LOOKS_PER_CLOCK: u32 = 64;

/// Completions that are taken at once.
const COMPLETIONS: usize = 16;

pub(super) struct RdmaLink {
    worker: Worker,
    shared: Arc<Shared>,
    place: Place,
    node: NodeId,
    /// Carries calls and fences, and tells when the node or its trust in us is gone.
    control: TcpLink,
    memory_bytes: u64,
    line_atomic: bool,
    state: RefCell<State>,
}

struct State {
    // The pair goes before the buffer that its device may write to.
    pair: Option<Pair>,
    flight: Flight,
    /// Doorbells, or the rest of one, that did not fit.
    backlog: VecDeque<(Token, Cursor)>,
    /// Why there is no pair any more.
    lost: Option<FabricError>,
    /// All that is in flight is to fail with this.
    failing: Option<FabricError>,
    in_vain: u32,
    /// When something last completed, or the first of what flies was posted.
    since: Time,
}

impl State {
    /// Whether nothing flies, and nothing waits to.
    fn is_quiet(&self) -> bool {
        self.flight.is_empty() && self.backlog.is_empty()
    }
}

impl RdmaLink {
    pub(super) fn new(
        worker: Worker,
        shared: Arc<Shared>,
        place: Place,
        introduced: Introduced,
    ) -> Result<Self> {
        let Introduced { connected, pair, remote, line_atomic } = introduced;
        let memory_bytes = connected.memory_bytes();
        let control = TcpLink::new(worker.clone(), shared.control(), place, connected);
        let node = place.node;
        let buffer = shared.buffer()?;
        let state = State {
            flight: Flight::new(buffer, pair.depth, pair.inline, remote),
            pair: Some(pair),
            backlog: VecDeque::new(),
            lost: None,
            failing: None,
            in_vain: 0,
            since: worker.now(),
        };
        let state = RefCell::new(state);
        Ok(RdmaLink { worker, shared, place, node, control, memory_bytes, line_atomic, state })
    }

    fn is_quiet(&self) -> bool {
        self.state.borrow().is_quiet()
    }

    /// Everything in flight fails, and the pair is destroyed: the device touches nothing of it again.
    fn fail(&self, state: &mut State, completer: &Completer<'_>, error: &FabricError) {
        state.pair = None;
        state.lost = Some(error.clone());
        state.failing = None;
        let waiting = std::mem::take(&mut state.backlog).into_iter().map(|(token, _)| token);
        for token in state.flight.abandon().chain(waiting) {
            completer.complete(token, Err(error.clone()));
        }
    }

    /// What a completion with an error means. The control connection may know better.
    fn failure(
        &self,
        pair: &Pair,
        completion: &Completion,
        completer: &Completer<'_>,
    ) -> FabricError {
        self.control.poll(completer);
        if let Some(known) = self.control.lost() {
            return known;
        }
        match completion.status {
            status::REMOTE_ACCESS | status::REMOTE_INVALID => {
                let why = format!(
                    "{} (status {}, vendor {:#x})",
                    pair.meaning(completion.status),
                    completion.status,
                    completion.vendor_error
                );
                FabricError::AccessDenied { node: self.node, why }
            }
            _ => FabricError::NodeGone(self.node),
        }
    }

    fn take_completions(&self, state: &mut State, completer: &Completer<'_>) -> Result<bool> {
        let mut found = [Completion::default(); COMPLETIONS];
        let pair = state.pair.as_mut().ok_or(FabricError::Broken(self.node))?;
        let count = pair.completions(&mut found).ok_or(FabricError::NodeGone(self.node))?;
        for completion in &found[..count] {
            if completion.status != status::SUCCESS {
                return Err(self.failure(pair, completion, completer));
            }
            state.flight.retire(completion.id, completer);
        }
        if count > 0 {
            state.since = self.worker.now();
        }
        Ok(count > 0)
    }

    /// Posts what waits, as far as there is room.
    fn pump(&self, state: &mut State, completer: &Completer<'_>) -> Result<bool> {
        let mut worked = false;
        while let Some((token, cursor)) = state.backlog.front_mut() {
            let (token, flight) = (*token, &mut state.flight);
            let (whole, posted) = completer.with_bell(token, |bell| {
                let whole = flight.build(bell, cursor);
                let Some(chain) = flight.chain() else { return (whole, Ok(false)) };
                let pair = state.pair.as_mut().ok_or(FabricError::Broken(self.node));
                let posted = pair.and_then(|pair| {
                    pair.post(chain).map_err(|_| FabricError::NodeGone(self.node))
                });
                (whole, posted.map(|()| true))
            });
            worked |= posted?;
            if !whole {
                break;
            }
            state.backlog.pop_front();
        }
        Ok(worked)
    }

    fn advance(&self, state: &mut State, completer: &Completer<'_>) -> Result<bool> {
        if let Some(error) = state.failing.take() {
            return Err(error);
        }
        let mut worked = self.take_completions(state, completer)?;
        worked |= self.pump(state, completer)?;
        state.in_vain = if worked { 0 } else { state.in_vain.wrapping_add(1) };
        if state.in_vain % LOOKS_PER_CLOCK == LOOKS_PER_CLOCK - 1 {
            self.control.poll(completer);
            if let Some(error) = self.control.lost() {
                return Err(error);
            }
            let after = self.shared.timeout();
            if !state.flight.is_empty() && self.worker.now() - state.since > after {
                return Err(FabricError::TimedOut { node: self.node, after });
            }
        }
        Ok(worked)
    }
}

// SAFETY: what a post needs of the doorbell is copied or sent inline before it returns, and nothing of
// the worker is used while a doorbell is lent.
unsafe impl Link for RdmaLink {
    fn node(&self) -> NodeId {
        self.node
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            line_atomic: self.line_atomic,
            masked_cas: false,
            persistence: Persistence::Volatile,
            on_chip_bytes: 0,
            life: self.control.capabilities().life,
        }
    }

    fn post(&self, bell: Bell<'_>) -> Posted {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let Some(pair) = &mut state.pair else {
            let lost = state.lost.clone().unwrap_or(FabricError::Broken(self.node));
            return Posted::Failed(Box::new(lost));
        };
        let token = bell.token();
        let mut cursor = Cursor::default();
        if state.flight.is_empty() {
            state.since = self.worker.now();
        }
        if !state.backlog.is_empty() {
            state.backlog.push_back((token, cursor));
            return Posted::Pending;
        }
        let whole = state.flight.build(bell, &mut cursor);
        if !whole {
            crate::probe!("a doorbell did not fit into the queue at once");
            state.backlog.push_back((token, cursor));
        }
        match state.flight.chain() {
            None if whole => return Posted::Done,
            None => {}
            Some(chain) if pair.post(chain).is_err() => {
                state.failing = Some(FabricError::NodeGone(self.node));
            }
            Some(_) => {}
        }
        Posted::Pending
    }

    fn busy(&self) -> bool {
        !self.is_quiet() || self.control.busy()
    }

    fn poll(&self, completer: &Completer<'_>) -> bool {
        let mut worked = self.control.busy() && self.control.poll(completer);
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if state.pair.is_none() || state.is_quiet() {
            state.failing = None;
            return worked;
        }
        match self.advance(state, completer) {
            Ok(advanced) => worked |= advanced,
            Err(error) => {
                self.fail(state, completer, &error);
                worked = true;
            }
        }
        worked
    }

    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>> {
        self.control.call(service, request)
    }

    fn fence(&self, victim: ClientId) -> Control<'_, ()> {
        self.control.fence(victim)
    }

    fn reconnect(&self) -> Control<'_, ()> {
        Box::pin(async move {
            // Rounds under way fail first.
            while !self.is_quiet() {
                self.state.borrow_mut().failing = Some(FabricError::Broken(self.node));
                self.worker.sleep(LOOK).await;
            }
            self.state.borrow_mut().pair = None;
            self.control.hang_up().await;
            let (shared, place) = (Arc::clone(&self.shared), self.place);
            let replaces = self.control.connection();
            let introducing =
                aside(&self.worker, self.node, move || shared.introduce(place, replaces));
            let Introduced { connected, pair, remote, .. } = introducing.await?;
            self.control.adopt(connected)?;
            let mut state = self.state.borrow_mut();
            state.flight.restart(pair.depth, pair.inline, remote);
            state.pair = Some(pair);
            (state.lost, state.failing, state.since) = (None, None, self.worker.now());
            Ok(())
        })
    }
}
