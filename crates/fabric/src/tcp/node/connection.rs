//! One connection of a node.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use super::super::client::Farewell;
use super::super::handshake::{Challenge, Hello};
use super::super::stream::{Inbox, Outbox};
use super::super::tls::Channel;
use super::super::wire::Kind;

/// An answer is not taken: how many bytes may wait before nothing more of this client is executed.
const MAX_WAITING: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Channel,
    pub(super) peer: SocketAddr,
    pub(super) number: u64,
    pub(super) stage: Stage,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// Answers that wait until the journal is so far, and where they begin.
    pub(super) held: VecDeque<(u64, u64)>,
    /// Since when a frame, an answer or the handshake is unfinished.
    pub(super) unfinished: Option<Instant>,
    /// What epoll watches it for.
    pub(super) watched: Watch,
    /// Said goodbye: closed once that is sent.
    pub(super) leaving: bool,
}

/// How far a connection has got.
#[derive(Debug)]
pub(super) enum Stage {
    Stranger,
    Challenged { hello: Hello, challenge: Challenge },
    Client(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watch {
    pub(super) input: bool,
    pub(super) output: bool,
}

impl Connection {
    pub(super) fn new(stream: Channel, peer: SocketAddr, number: u64, now: Instant) -> Self {
        Connection {
            stream,
            peer,
            number,
            stage: Stage::Stranger,
            inbox: Inbox::new(),
            outbox: Outbox::default(),
            held: VecDeque::new(),
            unfinished: Some(now),
            watched: Watch { input: true, output: false },
            leaving: false,
        }
    }

    pub(super) fn client(&self) -> Option<u64> {
        match self.stage {
            Stage::Client(client) => Some(client),
            _ => None,
        }
    }

    /// Whether it takes its answers fast enough to be given more.
    pub(super) fn keeps_up(&self) -> bool {
        self.outbox.len() < MAX_WAITING
    }

    pub(super) fn say_goodbye(&mut self, code: Farewell, why: &str) {
        // Nothing that is held back is said any more.
        self.held.clear();
        self.outbox.cut();
        self.outbox.frame(Kind::Goodbye, |out| {
            out.extend_from_slice(&(code as u64).to_le_bytes());
            out.extend_from_slice(&why.as_bytes()[..why.len().min(256)]);
        });
        self.leaving = true;
    }

    /// The answer that begins there has to wait until the journal is so far.
    pub(super) fn hold(&mut self, position: u64, from: u64) {
        self.held.push_back((position, from));
        self.outbox.hold(self.held.front().map(|(_, from)| *from));
    }

    /// The journal is so far; whether something may go out now that might not before.
    pub(super) fn let_go(&mut self, durable: u64) -> bool {
        let before = self.held.len();
        while self.held.front().is_some_and(|(position, _)| *position <= durable) {
            self.held.pop_front();
        }
        self.outbox.hold(self.held.front().map(|(_, from)| *from));
        self.held.len() < before
    }

    pub(super) fn has_output(&self) -> bool {
        !self.outbox.is_empty() || self.stream.is_holding()
    }

    /// What epoll should watch it for now.
    pub(super) fn wanted(&self) -> Watch {
        Watch { input: !self.leaving && self.keeps_up(), output: self.has_output() }
    }
}
