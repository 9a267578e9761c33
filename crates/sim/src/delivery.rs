//! The way of a doorbell: posted, under way, at its node, taking effect, answered.

use farside_fabric::link::{Bell, Op, Posted, Token};
use farside_fabric::{FabricError, NodeId, Persistence, Worker};

use crate::adversary::FaultKind;
use crate::event::Event;
use crate::flight::{FlightVerb, Part};
use crate::nic::Engine;
use crate::trace;
use crate::world::{State, World};

/// How much longer than usual a doorbell may be under way, in picoseconds.
const LONG_DELAY: u64 = 300_000_000;

/// How late a READ or atomic may take effect, and how far the parts of a torn verb lie apart.
const LATE: u64 = 8_000_000;
const TORN: u64 = 3_000_000;

impl World {
    /// Posts a doorbell, at the time that the thread's core has got to.
    pub(crate) fn post(&self, queue: u32, mut bell: Bell<'_>) -> Posted {
        let mut guard = self.state();
        let state = &mut *guard;
        let side = &state.queues[queue as usize];
        if state.stopped || !state.processes[side.process as usize].alive {
            return Posted::Failed(Box::new(state.gone(queue)));
        }
        let number = state.flights.take();
        let flight = state.flights.get(number);
        flight.queue = queue;
        flight.connection = side.connection;
        flight.token = Some(bell.token());
        flight.signaled = bell.signaled();
        let Ok(()) = bell.try_each(|verb, words| {
            flight.verbs.push(FlightVerb {
                op: verb.op,
                fenced: verb.fenced,
                at: verb.at,
                first: flight.words.len() as u32,
                words: words.len() as u32,
            });
            flight.words.extend_from_slice(words);
            Ok::<_, std::convert::Infallible>(())
        });
        state.send(number);
        Posted::Pending
    }

    /// Tells the one who posted a doorbell, and the unsignaled ones before it.
    pub(crate) fn complete(&self, number: u32) {
        let (done, worker) = {
            let mut guard = self.state();
            let state = &mut *guard;
            let flight = state.flights.get(number);
            flight.events -= 1;
            let (queue, signaled) = (flight.queue, flight.signaled || flight.error.is_some());
            let side = &mut state.queues[queue as usize];
            let thread = side.thread;
            let mut done = Vec::new();
            if signaled {
                done.append(&mut side.unacknowledged);
                done.push(number);
                let it = &mut state.threads[thread as usize];
                it.cpu = it.cpu.max(state.now) + state.profile.cpu.completion;
            } else {
                side.unacknowledged.push(number);
            }
            (done, state.threads[thread as usize].worker.clone())
        };
        for number in done {
            // Taken out of the world first: completing a round may drop the queue it was posted on.
            let (flight, token) = {
                let mut state = self.state();
                let token = state.settle(number);
                (std::mem::take(state.flights.get(number)), token)
            };
            if let (Some(worker), Some(token)) = (&worker, token) {
                // SAFETY: this runs between events: no task of the worker is running, no link posting.
                let completer = unsafe { worker.completer() };
                if flight.error.is_none() {
                    completer.with_bell(token, |mut bell| {
                        let mut verbs = flight.verbs.iter();
                        let Ok(()) = bell.try_each(|_, words| {
                            let verb = verbs.next().expect("as many as were posted");
                            let first = verb.first as usize;
                            words.copy_from_slice(&flight.words[first..first + words.len()]);
                            Ok::<_, std::convert::Infallible>(())
                        });
                    });
                }
                completer.complete(token, flight.error.clone().map_or(Ok(()), Err));
            }
            let mut state = self.state();
            *state.flights.get(number) = flight;
            state.flights.release_if_over(number);
        }
    }
}

impl World {
    /// The world ends with a doorbell under way: whoever waits for it is let go.
    pub(crate) fn give_up(&self, number: u32, workers: &[Option<Worker>]) {
        let (token, worker, error) = {
            let mut state = self.state();
            let flight = state.flights.get(number);
            let (queue, token) = (flight.queue, flight.token.take());
            let thread = state.queues[queue as usize].thread;
            (token, workers[thread as usize].as_ref(), state.gone(queue))
        };
        if let (Some(token), Some(worker)) = (token, worker) {
            // SAFETY: no task of the worker is running, no link posting.
            unsafe { worker.completer() }.complete(token, Err(error));
        }
    }
}

impl State {
    /// The doorbell leaves its machine.
    fn send(&mut self, number: u32) {
        let (now, profile) = (self.now, self.profile);
        let flight = self.flights.get(number);
        let side = &mut self.queues[flight.queue as usize];
        let thread = &mut self.threads[side.thread as usize];
        let process = &mut self.processes[side.process as usize];
        let cpu = profile.cpu;
        thread.cpu = thread.cpu.max(now) + cpu.doorbell + cpu.verb * flight.verbs.len() as u64;
        let mut sent = thread.cpu;
        for verb in &flight.verbs {
            let (message, bytes) = match verb.op {
                Op::Write => (profile.send_write, u64::from(verb.words) * 8),
                _ => (profile.send_read, 0),
            };
            sent = process.nics.serve(
                &profile,
                flight.queue,
                Engine::Sending,
                thread.cpu,
                message,
                bytes,
            );
        }
        self.verbs += flight.verbs.len() as u64;
        side.flights.push_back(number);
        let mut arrival = sent + profile.wire + self.random.below(profile.jitter + 1);
        let (queue, verbs) = (flight.queue, flight.verbs.len() as u64);
        if self.strikes(FaultKind::Delay) {
            arrival += self.random.below(LONG_DELAY);
        }
        if self.strikes(FaultKind::Error) {
            let cut = self.random.below(verbs + 1) as u32;
            let node = NodeId(self.queues[queue as usize].node as u16);
            let flight = self.flights.get(number);
            flight.cut_from(cut);
            let after = std::time::Duration::from_nanos(profile.detect / 1000);
            flight.error = Some(FabricError::TimedOut { node, after });
        }
        let side = &mut self.queues[queue as usize];
        arrival = arrival.max(side.last_arrival + 1);
        side.last_arrival = arrival;
        self.flights.get(number).events += 1;
        self.digest.mix(u64::from(queue) << 32 | verbs);
        self.agenda.push(arrival, Event::Arrive(number));
    }

    /// The doorbell reaches its node.
    pub(crate) fn arrive(&mut self, number: u32) {
        let flight = self.flights.get(number);
        flight.events -= 1;
        let (queue, connection) = (flight.queue, flight.connection);
        let side = &self.queues[queue as usize];
        let node = &self.nodes[side.node as usize];
        if connection != side.connection || flight.settled {
            self.flights.release_if_over(number);
            return;
        }
        if node.alive && node.paused_until > self.now {
            flight.events += 1;
            self.agenda.push(node.paused_until, Event::Arrive(number));
            return;
        }
        let client = self.processes[side.process as usize].client;
        if !node.alive || side.incarnation != node.incarnation {
            flight.cut_from(0);
            let error = self.gone(queue);
            self.fail_queue(queue, &error, self.now + self.profile.detect);
        } else if self.cuts.contains(&(side.process, side.node)) {
            flight.cut_from(0);
            let error = self.timed_out(queue);
            self.fail_queue(queue, &error, self.now + self.profile.detect);
        } else if node.fenced.contains(&client) {
            flight.cut_from(0);
            self.fail_queue(queue, &FabricError::Fenced(client), self.now + self.profile.wire);
        } else {
            self.serve(number);
        }
    }

    pub(crate) fn timed_out(&self, queue: u32) -> FabricError {
        let node = NodeId(self.queues[queue as usize].node as u16);
        let after = std::time::Duration::from_nanos(self.profile.detect / 1000);
        FabricError::TimedOut { node, after }
    }

    /// The node's NIC works on the doorbell.
    fn serve(&mut self, number: u32) {
        let split = self.faults.splits_effects();
        let count = self.flights.get(number).verbs.len();
        let mut answer = self.now;
        for verb in 0..count as u32 {
            let at = self.time_of(number, verb);
            answer = answer.max(at);
            if split {
                self.plan(number, verb, at);
            } else if !self.flights.get(number).is_cut(verb) {
                let words = self.flights.get(number).verbs[verb as usize].words;
                self.effect(number, Part { verb, first: 0, words, landed: true });
            }
        }
        let flight = self.flights.get(number);
        flight.answer_at = answer;
        if flight.parts_left == 0 {
            self.answer(number);
        }
    }

    /// When a verb that arrived now has been executed by the NIC.
    fn time_of(&mut self, number: u32, verb: u32) -> u64 {
        let (now, profile) = (self.now, self.profile);
        let flight = self.flights.get(number);
        let queue = flight.queue;
        let verb = flight.verbs[verb as usize];
        let operand = flight.words.get(verb.first as usize).copied().unwrap_or(0);
        let node = &mut self.nodes[self.queues[queue as usize].node as usize];
        let bytes = u64::from(verb.words) * 8;
        let on_chip = node.is_on_chip(&profile, verb.at);
        let mut serve =
            |message, bytes| node.nics.serve(&profile, queue, Engine::Serving, now, message, bytes);
        match verb.op {
            Op::Read => {
                let done = serve(profile.serve_read, bytes);
                if on_chip {
                    return done;
                }
                node.note_read();
                done + profile.pcie_read + profile.memory_read
            }
            Op::Write => {
                let done = serve(profile.serve_write, bytes);
                if on_chip {
                    return done;
                }
                // Writes are posted: only a full buffer in front of the memory holds them up.
                let absorbed = node.absorb(&profile, done, bytes);
                done.max(absorbed.saturating_sub(2_000_000))
            }
            Op::Cas | Op::Faa | Op::MaskedCas if on_chip => {
                let done = serve(profile.serve_on_chip, 0);
                node.nics.bucket(&profile, verb.at, done, profile.on_chip_conflict)
                    + profile.on_chip_conflict
            }
            Op::Cas | Op::Faa | Op::MaskedCas => {
                let done = serve(profile.serve_atomic, 0);
                let word = node.memory[(verb.at / 8) as usize];
                // A CAS that fails writes nothing back.
                let fails = verb.op == Op::Cas && word != operand;
                let write = if fails { 0 } else { profile.pcie_write };
                let hold = profile.pcie_read + write;
                node.nics.bucket(&profile, verb.at, done, hold) + hold
            }
            Op::Flush => serve(profile.serve_read, 0).max(node.written_at) + profile.pcie_read,
        }
    }

    /// Chooses when the parts of a verb take effect, within what C1 and C3 permit.
    fn plan(&mut self, number: u32, verb: u32, mut at: u64) {
        let it = self.flights.get(number).verbs[verb as usize];
        let late = it.op != Op::Write && self.strikes(FaultKind::Reorder);
        if late {
            at += self.random.below(LATE);
        }
        let queue = self.flights.get(number).queue;
        let side = &mut self.queues[queue as usize];
        let behind = match it.op {
            Op::Read | Op::Flush => side.written.max(side.read).max(side.swapped),
            Op::Write if it.fenced => side.written.max(side.read).max(side.swapped),
            Op::Write => side.written,
            _ if it.fenced => side.written.max(side.read).max(side.swapped),
            _ => side.written.max(side.swapped),
        };
        let start = at.max(behind + 1).max(self.now);
        let mut end = start;
        let tears =
            matches!(it.op, Op::Read | Op::Write) && it.words > 1 && self.strikes(FaultKind::Tear);
        let mut first = 0;
        while first < it.words || (it.words == 0 && first == 0) {
            let (words, when) = if tears {
                (self.piece(&it, first), start + self.random.below(TORN))
            } else {
                (it.words, start)
            };
            end = end.max(when);
            let flight = self.flights.get(number);
            flight.parts.push(Part { verb, first, words, landed: false });
            flight.parts_left += 1;
            flight.events += 1;
            let part = flight.parts.len() as u32 - 1;
            self.agenda.push(when, Event::Effect(number, part));
            first += words.max(1);
        }
        let side = &mut self.queues[queue as usize];
        match it.op {
            Op::Write => side.written = side.written.max(end),
            Op::Read | Op::Flush => side.read = side.read.max(end),
            _ => side.swapped = side.swapped.max(end),
        }
    }

    /// How many words of a torn verb stay together from `first` on.
    fn piece(&mut self, verb: &FlightVerb, first: u32) -> u32 {
        let left = verb.words - first;
        let piece = 1 + self.random.below(u64::from(left.min(24))) as u32;
        if !self.profile.line_atomic {
            return piece;
        }
        // Up to the end of a line.
        let word = (verb.at / 8) as u32 + first + piece;
        (piece + (8 - word % 8) % 8).min(left)
    }

    /// A part of a doorbell takes effect, unless something came between.
    pub(crate) fn take_effect(&mut self, number: u32, index: u32) {
        let flight = self.flights.get(number);
        flight.events -= 1;
        let queue = flight.queue;
        let part = flight.parts[index as usize];
        let cut = flight.is_cut(part.verb);
        let connection = flight.connection;
        let side = &self.queues[queue as usize];
        let node = &self.nodes[side.node as usize];
        let standing =
            connection == side.connection && node.alive && node.incarnation == side.incarnation;
        if standing && node.paused_until > self.now {
            let until = node.paused_until;
            let flight = self.flights.get(number);
            flight.events += 1;
            self.agenda.push(until, Event::Effect(number, index));
            return;
        }
        let flight = self.flights.get(number);
        if standing && !cut && !flight.landed(index) {
            flight.land(index);
            self.effect(number, part);
        }
        let flight = self.flights.get(number);
        flight.parts_left -= 1;
        if flight.parts_left == 0 && standing && !flight.settled {
            flight.answer_at = flight.answer_at.max(self.now);
            self.answer(number);
        } else {
            self.flights.release_if_over(number);
        }
    }

    /// A part takes effect before its time, once.
    pub(crate) fn land_early(&mut self, number: u32, part: u32) {
        let flight = self.flights.get(number);
        let it = flight.parts[part as usize];
        if flight.landed(part) || flight.is_cut(it.verb) {
            return;
        }
        flight.land(part);
        self.effect(number, it);
    }

    /// Changes memory.
    fn effect(&mut self, number: u32, part: Part) {
        let now = self.now;
        let flight = self.flights.get(number);
        let queue = flight.queue;
        let (verb, words) = flight.words_of(part);
        let side = &mut self.queues[queue as usize];
        let node = &mut self.nodes[side.node as usize];
        let at = verb.at + u64::from(part.first) * 8;
        self.digest.mix(at << 3 | verb.op as u64);
        match verb.op {
            Op::Read => node.load(at, words),
            Op::Write => {
                words.iter().for_each(|word| self.digest.mix(*word));
                node.store(at, words);
            }
            Op::Cas | Op::Faa | Op::MaskedCas => {
                let old = node.memory[(at / 8) as usize];
                let new = match verb.op {
                    Op::Faa => old.wrapping_add(words[0]),
                    Op::Cas => {
                        if old == words[0] {
                            words[1]
                        } else {
                            old
                        }
                    }
                    _ if (old ^ words[0]) & words[2] != 0 => old,
                    _ => (old & !words[3]) | (words[1] & words[3]),
                };
                self.digest.mix(new);
                if new != old {
                    node.store(at, &[new]);
                }
                words[0] = old;
            }
            Op::Flush => {
                node.flush(&self.profile, &side.touched);
                side.touched.clear();
            }
        }
        if self.profile.persistence != Persistence::Volatile
            && verb.op != Op::Flush
            && verb.op != Op::Read
        {
            side.touched.push((at, if verb.op == Op::Write { part.words } else { 1 }));
        }
        if self.trace.is_on() {
            let what = describe(verb, part, words);
            let (process, node) = (side.process, side.node);
            self.trace.note(now, || format!("process {process} → node {node}  {what}"));
        }
    }

    /// The answer leaves the node.
    fn answer(&mut self, number: u32) {
        let profile = self.profile;
        let flight = self.flights.get(number);
        let (queue, answer_at) = (flight.queue, flight.answer_at);
        if let Some(error) = flight.error.clone() {
            self.fail_queue(queue, &error, self.now + profile.detect);
            return;
        }
        let bytes: u64 = flight
            .verbs
            .iter()
            .map(|verb| match verb.op {
                Op::Read => u64::from(verb.words) * 8,
                _ => 0,
            })
            .sum();
        let side = &mut self.queues[queue as usize];
        let process = &mut self.processes[side.process as usize];
        let there = answer_at + profile.wire + self.random.below(profile.jitter + 1);
        let there = process.nics.serve(&profile, queue, Engine::Receiving, there, 0, bytes);
        let there = there.max(side.last_completion + 1);
        side.last_completion = there;
        let flight = self.flights.get(number);
        flight.completing = true;
        flight.events += 1;
        self.agenda.push(there, Event::Complete(number));
    }

    /// Everything under way on a queue fails at `at`, with unknown effect.
    pub(crate) fn fail_queue(&mut self, queue: u32, error: &FabricError, at: u64) {
        let under_way = self.queues[queue as usize].flights.clone();
        for number in under_way {
            let flight = self.flights.get(number);
            if flight.completing {
                continue;
            }
            flight.completing = true;
            flight.error.get_or_insert_with(|| error.clone());
            flight.events += 1;
            self.agenda.push(at, Event::Complete(number));
        }
    }

    /// The one who posted a doorbell hears of it now, or never; returns the name to tell it by.
    fn settle(&mut self, number: u32) -> Option<Token> {
        let flight = self.flights.get(number);
        flight.settled = true;
        let token = flight.token.take();
        let side = &mut self.queues[flight.queue as usize];
        side.flights.retain(|known| *known != number);
        if flight.error.is_none() && self.profile.persistence != Persistence::Volatile {
            // A FLUSH covers what completed READs returned, whoever wrote it.
            let reads = flight.verbs.iter().filter(|verb| verb.op == Op::Read);
            side.touched.extend(reads.map(|verb| (verb.at, verb.words)));
        }
        let alive = self.processes[side.process as usize].alive;
        token.filter(|_| alive && !self.stopped)
    }
}

fn describe(verb: FlightVerb, part: Part, words: &[u64]) -> String {
    let at = verb.at + u64::from(part.first) * 8;
    let shown: Vec<_> = words.iter().take(4).map(|word| format!("{word:x}")).collect();
    let more = if words.len() > 4 { " …" } else { "" };
    let torn = if part.words < verb.words {
        format!(" (words {}–{} of {})", part.first, part.first + part.words - 1, verb.words)
    } else {
        String::new()
    };
    format!("{:<10} {at:#x} [{}{more}]{torn}", trace::name(verb.op), shown.join(" "))
}
