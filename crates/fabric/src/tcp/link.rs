//! A queue over a connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::client::{Connected, LOOK, Place, Shared, aside, farewell};
use super::stream::{Inbox, Look, Outbox};
use super::tls::Channel;
use super::wire::{Kind, MAX_BODY, put_verb, words_in, words_returned, words_sent};
use crate::link::{Bell, Capabilities, Completer, Control, Link, Posted, Token, Watched};
use crate::runtime::{Answer, Asked, Worker, question};
use crate::{ClientId, FabricError, NodeId, Persistence, Result, Time};

/// How many looks in vain share one reading of the clock, for the timeout.
const LOOKS_PER_CLOCK: u32 = 16;

pub(crate) struct TcpLink {
    worker: Worker,
    shared: Arc<Shared>,
    place: Place,
    node: NodeId,
    memory_bytes: u64,
    persistence: Persistence,
    state: RefCell<State>,
}

struct State {
    stream: Option<Channel>,
    connection: u64,
    /// Of the node.
    life: u64,
    inbox: Inbox,
    outbox: Outbox,
    /// Frames that wait for their answers, in the order they were sent.
    waiting: VecDeque<Waiting>,
    /// Looks in vain since something last came in: the clock is read now and then only.
    in_vain: u32,
    /// Why there is no connection any more.
    lost: Option<FabricError>,
    /// When something last came in, or the first of those that wait was sent.
    since: Time,
}

enum Waiting {
    /// A frame of a doorbell: which of its verbs, and whether the last are among them.
    Bell {
        token: Token,
        skip: u32,
        verbs: u32,
        last: bool,
    },
    Answer(Asked<Result<Vec<u8>>>),
}

impl TcpLink {
    pub(crate) fn new(
        worker: Worker,
        shared: Arc<Shared>,
        place: Place,
        connected: Connected,
    ) -> Self {
        let memory_bytes = connected.welcome.memory_bytes;
        let persistence = match connected.welcome.durable {
            true => Persistence::Ordered,
            false => Persistence::Volatile,
        };
        let state = State {
            connection: connected.welcome.connection,
            life: connected.welcome.incarnation,
            stream: Some(connected.channel),
            inbox: Inbox::new(),
            outbox: Outbox::default(),
            waiting: VecDeque::new(),
            in_vain: 0,
            lost: None,
            since: worker.now(),
        };
        let state = RefCell::new(state);
        let node = place.node;
        TcpLink { worker, shared, place, node, memory_bytes, persistence, state }
    }

    /// Why the connection is no more, if it is not.
    pub(crate) fn lost(&self) -> Option<FabricError> {
        let state = self.state.borrow();
        state.stream.is_none().then(|| state.loss(self.node))
    }

    /// The number under which the node knows the connection.
    pub(crate) fn connection(&self) -> u64 {
        self.state.borrow().connection
    }

    /// Ends the connection; what waits for answers fails first.
    pub(crate) async fn hang_up(&self) {
        while !self.state.borrow().waiting.is_empty() {
            if let Some(stream) = &self.state.borrow().stream {
                let _ = stream.socket.shutdown(std::net::Shutdown::Both);
            }
            self.worker.sleep(LOOK).await;
        }
    }

    /// Goes on with another connection to the same memory.
    pub(crate) fn adopt(&self, connected: Connected) -> Result<()> {
        if connected.memory_bytes() != self.memory_bytes {
            let why = "it came back with another size of memory; connect anew".into();
            return Err(FabricError::AccessDenied { node: self.node, why });
        }
        let mut state = self.state.borrow_mut();
        state.connection = connected.welcome.connection;
        state.life = connected.welcome.incarnation;
        state.stream = Some(connected.channel);
        state.inbox = Inbox::new();
        state.outbox = Outbox::default();
        state.lost = None;
        state.since = self.worker.now();
        Ok(())
    }

    fn timed_out(&self) -> FabricError {
        FabricError::TimedOut { node: self.node, after: self.shared.options.timeout }
    }

    /// Sends a request whose answer is bytes.
    fn request(&self, kind: Kind, fill: impl FnOnce(&mut Vec<u8>)) -> Answer<Result<Vec<u8>>> {
        let (asked, answer) = question();
        let mut state = self.state.borrow_mut();
        if state.stream.is_none() {
            asked.answer(Err(state.loss(self.node)));
        } else {
            state.start_waiting(&self.worker, Waiting::Answer(asked));
            state.outbox.frame(kind, fill);
        }
        answer
    }

    /// Everything that waits fails, and the connection is no more.
    fn fail(&self, state: &mut State, completer: &Completer<'_>, error: &FabricError) {
        state.stream = None;
        state.lost = Some(error.clone());
        state.outbox = Outbox::default();
        state.inbox = Inbox::new();
        for waiting in std::mem::take(&mut state.waiting) {
            match waiting {
                Waiting::Bell { last: false, .. } => {}
                Waiting::Bell { token, .. } => completer.complete(token, Err(error.clone())),
                Waiting::Answer(asked) => asked.answer(Err(error.clone())),
            }
        }
    }

    /// Takes the answers that have come in; `Err` if the connection is of no use any more.
    fn take_answers(&self, state: &mut State, completer: &Completer<'_>) -> Result<bool> {
        let mut worked = false;
        loop {
            let frame =
                state.inbox.frame(MAX_BODY).map_err(|_| FabricError::NodeGone(self.node))?;
            let Some((kind, body)) = frame else { return Ok(worked) };
            worked = true;
            if kind == Kind::Goodbye {
                return Err(farewell(self.shared.id, self.node, body));
            }
            let strange = FabricError::NodeGone(self.node);
            match (state.waiting.pop_front().ok_or(strange.clone())?, kind) {
                (Waiting::Bell { token, skip, verbs, last }, Kind::Done) => {
                    let good = completer.with_bell(token, |bell| fill(bell, skip, verbs, body));
                    if !good {
                        state.waiting.push_front(Waiting::Bell { token, skip, verbs, last });
                        return Err(strange);
                    }
                    if last {
                        completer.complete(token, Ok(()));
                    }
                }
                (Waiting::Answer(asked), Kind::Done) => asked.answer(Ok(body.to_vec())),
                (Waiting::Answer(asked), Kind::Failed) => {
                    asked.answer(Err(failure(self.node, body)));
                }
                (waiting, _) => {
                    state.waiting.push_front(waiting);
                    return Err(strange);
                }
            }
            state.since = self.worker.now();
        }
    }
}

/// Puts what came back into the words of a doorbell; `false` if it is not what was asked for.
fn fill(mut bell: Bell<'_>, skip: u32, verbs: u32, body: &[u8]) -> bool {
    let mut rest = body;
    let mut number = 0;
    let good: Result<(), ()> = bell.try_each(|verb, words| {
        let ours = (skip..skip + verbs).contains(&number);
        number += 1;
        if !ours {
            return Ok(());
        }
        let bytes = words_returned(verb.op, words.len()) * 8;
        let (mine, behind) = rest.split_at_checked(bytes).ok_or(())?;
        for (word, came) in words.iter_mut().zip(words_in(mine)) {
            *word = came;
        }
        rest = behind;
        Ok(())
    });
    good.is_ok() && rest.is_empty()
}

/// A call that failed: service, whether nobody offers it, and text.
fn failure(node: NodeId, body: &[u8]) -> FabricError {
    let Some((head, why)) = body.split_first_chunk::<8>() else {
        return FabricError::NodeGone(node);
    };
    let service = u16::from_le_bytes([head[0], head[1]]);
    match head[2] {
        1 => FabricError::NoService { node, service },
        _ => FabricError::Service { node, service, why: String::from_utf8_lossy(why).into_owned() },
    }
}

impl State {
    /// Why nothing can be sent; it may have been lost while nobody waited for anything.
    fn loss(&self, node: NodeId) -> FabricError {
        self.lost.clone().unwrap_or(FabricError::Broken(node))
    }

    fn start_waiting(&mut self, worker: &Worker, waiting: Waiting) {
        if self.waiting.is_empty() {
            self.since = worker.now();
        }
        self.waiting.push_back(waiting);
    }
}

// SAFETY: `post` copies the doorbell, and nothing of the worker is used while a doorbell is lent.
unsafe impl Link for TcpLink {
    fn node(&self) -> NodeId {
        self.node
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            line_atomic: true,
            masked_cas: true,
            persistence: self.persistence,
            on_chip_bytes: 0,
            life: self.state.borrow().life,
        }
    }

    fn post(&self, mut bell: Bell<'_>) -> Posted {
        let mut state = self.state.borrow_mut();
        if state.stream.is_none() {
            return Posted::Failed(Box::new(state.loss(self.node)));
        }
        let token = bell.token();
        let (mut skip, mut verbs) = (0, 0);
        let (mut body, mut answer) = (0, 0);
        state.outbox.begin();
        let Ok(()) = bell.try_each(|verb, words| {
            let sent = 16 + words_sent(verb.op, words.len()) * 8;
            let returned = words_returned(verb.op, words.len()) * 8;
            if body + sent > MAX_BODY || answer + returned > MAX_BODY {
                state
                    .start_waiting(&self.worker, Waiting::Bell { token, skip, verbs, last: false });
                state.outbox.finish(Kind::Doorbell);
                state.outbox.begin();
                (skip, verbs, body, answer) = (skip + verbs, 0, 0, 0);
            }
            put_verb(state.outbox.open(), verb.op, verb.fenced, verb.at, words);
            (body, answer, verbs) = (body + sent, answer + returned, verbs + 1);
            Ok::<_, std::convert::Infallible>(())
        });
        state.start_waiting(&self.worker, Waiting::Bell { token, skip, verbs, last: true });
        state.outbox.finish(Kind::Doorbell);
        Posted::Pending
    }

    fn busy(&self) -> bool {
        let state = self.state.borrow();
        state.stream.is_some() && (!state.waiting.is_empty() || !state.outbox.is_empty())
    }

    fn watched(&self) -> Option<Watched> {
        let state = self.state.borrow();
        let stream = state.stream.as_ref()?;
        let writes = !state.outbox.is_empty() || stream.is_holding();
        Some(Watched { fd: stream.socket.as_raw_fd(), writes })
    }

    fn poll(&self, completer: &Completer<'_>) -> bool {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let Some(stream) = &mut state.stream else { return false };
        let mut worked = false;
        if !state.outbox.is_empty() {
            match state.outbox.drain(stream) {
                Look::Some => worked = true,
                Look::Nothing => {}
                Look::Gone => {
                    // Why may still be there to be read.
                    state.outbox = Outbox::default();
                }
            }
        }
        if stream.is_holding() && stream.push().is_err() {
            state.outbox = Outbox::default();
        }
        let looked = state.inbox.fill(stream);
        match self.take_answers(state, completer) {
            Ok(took) => worked |= took,
            Err(error) => {
                self.fail(state, completer, &error);
                return true;
            }
        }
        if looked == Look::Gone {
            self.fail(state, completer, &FabricError::NodeGone(self.node));
            return true;
        }
        state.in_vain = if looked == Look::Nothing { state.in_vain.wrapping_add(1) } else { 0 };
        if state.in_vain % LOOKS_PER_CLOCK == LOOKS_PER_CLOCK - 1
            && !state.waiting.is_empty()
            && self.worker.now() - state.since > self.shared.options.timeout
        {
            self.fail(state, completer, &self.timed_out());
            return true;
        }
        worked
    }

    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>> {
        Box::pin(self.request(Kind::Call, |out| {
            out.extend_from_slice(&u64::from(service).to_le_bytes());
            out.extend_from_slice(request);
        }))
    }

    fn fence(&self, victim: ClientId) -> Control<'_, ()> {
        let fenced =
            self.request(Kind::Fence, |out| out.extend_from_slice(&victim.0.to_le_bytes()));
        Box::pin(async { fenced.await.map(drop) })
    }

    fn reconnect(&self) -> Control<'_, ()> {
        Box::pin(async move {
            // Rounds under way fail first: poll finds the connection shut.
            self.hang_up().await;
            let (shared, place, replaces) =
                (Arc::clone(&self.shared), self.place, self.connection());
            let connecting =
                aside(&self.worker, self.node, move || shared.open(place, replaces)?.settle());
            self.adopt(connecting.await?)
        })
    }
}
