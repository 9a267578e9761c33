//! The loop of a node: sockets in, memory, sockets out.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::super::client::Farewell;
use super::super::handshake::MAX_HANDSHAKE;
use super::super::stream::Look;
use super::super::tls::Channel;
use super::super::wire::{MAX_BODY, Malformed};
use super::connection::{Connection, Stage, Watch};
use super::{Limits, Node, NodeEvent, Stop};
use crate::runtime::pace::Pace;
use crate::{FabricError, Result};

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const JOURNAL: u64 = u64::MAX - 2;

/// How long it looks for work without giving its core to others.
const YIELD: Duration = Duration::from_micros(30);

/// How many looks at sockets share one reading of the clock while there is work.
const LOOKS_PER_CLOCK: usize = 16;

/// How many turns share one question to the kernel meanwhile.
const TURNS_PER_QUESTION: u32 = 64;

/// How often connections are looked at for stalls.
const ROUNDS: Duration = Duration::from_millis(500);

/// Connections that are looked at directly while there is work, without asking the kernel which.
const HOT: usize = 16;

pub(super) struct Serving<'s, F> {
    pub(super) node: Node,
    stop: &'s Stop,
    pub(super) tell: F,
    epoll: OwnedFd,
    pub(super) connections: Vec<Option<Connection>>,
    /// Numbers of connections that had work lately.
    hot: Vec<usize>,
    count: usize,
    next_number: u64,
    pub(super) fenced: HashSet<u64>,
    pub(super) limits: Limits,
    next_rounds: Instant,
    /// Connections with answers that wait for the journal.
    pub(super) holding: Vec<usize>,
}

/// What becomes of a connection.
enum Fate {
    Stays { worked: bool },
    Closes { why: Option<String> },
}

impl<'s, F: FnMut(NodeEvent)> Serving<'s, F> {
    pub(super) fn new(node: Node, stop: &'s Stop, tell: F) -> Result<Self> {
        let failed = |e: rustix::io::Errno| FabricError::setup("setting up epoll", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &node.listener, data, EventFlags::IN).map_err(failed)?;
        epoll::add(&epoll, &*stop.wake, EventData::new_u64(STOP), EventFlags::IN)
            .map_err(failed)?;
        if let Some(kept) = &node.journal {
            epoll::add(&epoll, &*kept.wake, EventData::new_u64(JOURNAL), EventFlags::IN)
                .map_err(failed)?;
        }
        Ok(Serving {
            limits: Limits { memory_bytes: node.options.memory_bytes },
            node,
            stop,
            tell,
            epoll,
            connections: Vec::new(),
            hot: Vec::new(),
            count: 0,
            next_number: 1,
            fenced: HashSet::new(),
            next_rounds: Instant::now() + ROUNDS,
            holding: Vec::new(),
        })
    }

    pub(super) fn run(mut self) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        let mut now = Instant::now();
        let mut last_work = now;
        let (mut turns, mut looks) = (0u32, 0);
        let (mut pace, mut idle) = (Pace::default(), false);
        while !self.stop.is_asked() {
            let spinning = now - last_work < pace.spin();
            let mut worked = spinning && self.serve_hot(now);
            turns = turns.wrapping_add(1);
            looks += self.hot.len().max(1);
            // While hot connections keep this thread busy, the kernel and the clock are asked now and
            // then only: a look at a socket is what costs time here.
            if !spinning || self.hot.is_empty() || turns.is_multiple_of(TURNS_PER_QUESTION) {
                let sleep = self.next_rounds.saturating_duration_since(now);
                if !spinning {
                    // Which are hot after a pause is known when they have work.
                    self.hot.clear();
                    if !std::mem::replace(&mut idle, true) {
                        pace.begin();
                    }
                    pace.end();
                }
                self.wait(&mut events, if spinning { Duration::ZERO } else { sleep })?;
                now = Instant::now();
                for event in events.drain(..) {
                    worked |= self.happened(event.data.u64(), now);
                }
            }
            worked |= self.keep(now);
            if looks >= LOOKS_PER_CLOCK || !spinning {
                now = Instant::now();
                looks = 0;
            }
            if worked {
                pace.end();
                pace.note(now - last_work);
                (last_work, idle) = (now, false);
            } else if !std::mem::replace(&mut idle, true) {
                pace.begin();
            } else if spinning && now - last_work > YIELD {
                // With more threads than cores the clients may need ours.
                std::thread::yield_now();
                now = Instant::now();
            }
            if now >= self.next_rounds {
                self.look_for_stalls(now);
                self.next_rounds = now + ROUNDS;
            }
        }
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, span: Duration) -> Result<()> {
        let span = rustix::event::Timespec {
            tv_sec: span.as_secs() as _,
            tv_nsec: span.subsec_nanos() as _,
        };
        events.clear();
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, spare, Some(&span)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(FabricError::setup("waiting for connections", error)),
        }
    }

    fn happened(&mut self, what: u64, now: Instant) -> bool {
        match what {
            LISTENER => self.accept(now),
            STOP => {}
            JOURNAL => self.clear_wake(),
            number => {
                let number = number as usize;
                if self.connections.get(number).is_some_and(Option::is_some) {
                    self.heat(number);
                    return self.serve(number, now);
                }
            }
        }
        true
    }

    fn heat(&mut self, number: usize) {
        if !self.hot.contains(&number) {
            if self.hot.len() == HOT {
                self.hot.remove(0);
            }
            self.hot.push(number);
        }
    }

    fn serve_hot(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for position in (0..self.hot.len()).rev() {
            let number = self.hot[position];
            if self.connections[number].is_some() {
                worked |= self.serve(number, now);
            } else {
                self.hot.remove(position);
            }
        }
        worked
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..64 {
            let Ok((stream, peer)) = self.node.listener.accept() else { return };
            if self.count >= self.node.options.max_connections {
                let why = format!("there are {} connections already", self.count);
                (self.tell)(NodeEvent::Refused { peer, why });
                continue;
            }
            if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
                continue;
            }
            let free = self.connections.iter().position(Option::is_none);
            let number = free.unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let data = EventData::new_u64(number as u64);
            let stream = match &self.node.options.tls {
                None => Channel::plain(stream),
                Some(tls) => match tls.channel(stream) {
                    Ok(channel) => channel,
                    Err(_) => continue,
                },
            };
            if epoll::add(&self.epoll, &stream.socket, data, EventFlags::IN).is_ok() {
                let connection = Connection::new(stream, peer, self.next_number, now);
                self.connections[number] = Some(connection);
                self.next_number += 1;
                self.count += 1;
            }
        }
    }

    /// Reads once, executes what is there, writes once; `true` if there was anything to do.
    pub(super) fn serve(&mut self, number: usize, now: Instant) -> bool {
        let mut connection = self.connections[number].take().expect("looked up by the caller");
        match self.exchange(&mut connection, now) {
            Fate::Stays { worked } => {
                let wanted = connection.wanted();
                if wanted != connection.watched {
                    self.watch(number, &mut connection, wanted);
                }
                if !connection.held.is_empty() && !self.holding.contains(&number) {
                    self.holding.push(number);
                }
                self.connections[number] = Some(connection);
                worked
            }
            Fate::Closes { why } => {
                self.close(&connection, why);
                true
            }
        }
    }

    fn watch(&self, number: usize, connection: &mut Connection, wanted: Watch) {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wanted.input);
        flags.set(EventFlags::OUT, wanted.output);
        let data = EventData::new_u64(number as u64);
        if epoll::modify(&self.epoll, &connection.stream.socket, data, flags).is_ok() {
            connection.watched = wanted;
        }
    }

    /// The stream itself is closed when the connection is dropped.
    pub(super) fn close(&mut self, connection: &Connection, why: Option<String>) {
        self.count -= 1;
        if let Some(door) = &mut self.node.door {
            door.close(connection.number);
        }
        let _ = epoll::delete(&self.epoll, &connection.stream.socket);
        if let Some(why) = why {
            (self.tell)(NodeEvent::Refused { peer: connection.peer, why });
        }
    }

    fn exchange(&mut self, connection: &mut Connection, now: Instant) -> Fate {
        let mut worked = false;
        // TLS may hold more than one inbox full, of which the kernel knows nothing.
        for _ in 0..connection.stream.reads_at_once() {
            if connection.leaving || !connection.keeps_up() {
                break;
            }
            let looked = connection.inbox.fill(&mut connection.stream);
            if looked == Look::Gone {
                return Fate::Closes { why: None };
            }
            worked |= looked == Look::Some;
            let unread = worked || connection.inbox.is_partial();
            if unread && let Err(why) = self.execute_frames(connection) {
                let why = why.to_string();
                connection.say_goodbye(Farewell::Denied, &why);
                let _ = connection.outbox.drain(&mut connection.stream);
                return Fate::Closes { why: Some(why) };
            }
            if looked == Look::Nothing {
                break;
            }
        }
        if !connection.outbox.is_empty() {
            match connection.outbox.drain(&mut connection.stream) {
                Look::Some => worked = true,
                Look::Nothing => {}
                Look::Gone => return Fate::Closes { why: None },
            }
        }
        if connection.stream.is_holding() && connection.stream.push().is_err() {
            return Fate::Closes { why: None };
        }
        if connection.leaving && !connection.has_output() {
            return Fate::Closes { why: None };
        }
        let unfinished = connection.client().is_none()
            || connection.inbox.is_partial()
            || connection.has_output();
        connection.unfinished = match (unfinished, connection.unfinished) {
            (false, _) => None,
            (true, Some(since)) if !worked || connection.client().is_none() => Some(since),
            (true, _) => Some(now),
        };
        Fate::Stays { worked }
    }

    fn look_for_stalls(&mut self, now: Instant) {
        for number in 0..self.connections.len() {
            let Some(connection) = &self.connections[number] else { continue };
            let limit = match connection.stage {
                Stage::Client(_) => self.node.options.stall_timeout,
                _ => self.node.options.handshake_timeout,
            };
            if connection.unfinished.is_some_and(|since| now - since > limit) {
                let connection = self.connections[number].take().expect("seen above");
                let why = format!("it did not finish what it began within {limit:?}");
                self.close(&connection, Some(why));
            }
        }
    }

    fn execute_frames(&mut self, connection: &mut Connection) -> Result<(), Malformed> {
        // Taken apart, so that a frame can be borrowed from one while the other is written.
        let mut inbox =
            std::mem::replace(&mut connection.inbox, super::super::stream::Inbox::new());
        let mut result = Ok(());
        while !connection.leaving && connection.keeps_up() {
            let most = if connection.client().is_some() { MAX_BODY } else { MAX_HANDSHAKE };
            match inbox.frame(most) {
                Ok(Some((kind, body))) => {
                    result = self.execute(connection, kind, body);
                    if result.is_err() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        connection.inbox = inbox;
        result
    }
}
