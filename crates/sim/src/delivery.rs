//! The way of a doorbell: posted, under way, at its node, answered, completed.

use farside_fabric::link::{Bell, Op, Posted, Token};
use farside_fabric::{FabricError, NodeId, Persistence, Worker};

use crate::adversary::FaultKind;
use crate::effects::lines;
use crate::event::Event;
use crate::flight::FlightVerb;
use crate::nic::Engine;
use crate::world::{State, World};

/// How much longer than usual a doorbell may be under way, in picoseconds.
const LONG_DELAY: u64 = 300_000_000;

/// And now and then much longer: leases run out meanwhile.
const VERY_LONG_DELAY: u64 = 30_000_000_000;

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
        state.come_closer_to_death(queue, number);
        Posted::Pending
    }

    /// Tells the one who posted a doorbell, and the unsignaled ones before it.
    pub(crate) fn complete(&self, number: u32) {
        let (done, worker) = {
            let mut guard = self.state();
            let state = &mut *guard;
            let flight = state.flights.get(number);
            flight.events -= 1;
            if flight.settled {
                state.flights.release_if_over(number);
                return;
            }
            let (queue, signaled) = (flight.queue, flight.signaled || flight.error.is_some());
            let side = &mut state.queues[queue as usize];
            let thread = side.thread;
            let mut done = Vec::new();
            if signaled {
                done.append(&mut side.unacknowledged);
                done.push(number);
                let it = &mut state.threads[thread as usize];
                it.work(state.now, state.profile.cpu.completion);
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
        let verb = cpu.verb + process.code.verb_ps();
        let posted = thread.work(now, cpu.doorbell + verb * flight.verbs.len() as u64);
        let mut sent = posted;
        for verb in &flight.verbs {
            let (message, bytes) = match verb.op {
                Op::Write => (profile.send_write, u64::from(verb.words) * 8),
                _ => (profile.send_read, 0),
            };
            sent = process.nics.serve(&profile, side.here, Engine::Sending, posted, message, bytes);
        }
        self.verbs += flight.verbs.len() as u64;
        process.posted.0 += 1;
        process.posted.1 += flight.verbs.len() as u64;
        side.flights.push_back(number);
        let wire = self.nodes[side.node as usize].wire;
        let mut arrival = sent + wire + self.random.below(profile.jitter + 1);
        let (queue, verbs) = (flight.queue, flight.verbs.len() as u64);
        arrival += self.delay();
        if self.strikes(FaultKind::Error) {
            self.doom(number, sent, verbs);
        }
        if self.queues[queue as usize].severed {
            self.flights.get(number).cut_from(0);
        }
        let side = &mut self.queues[queue as usize];
        arrival = arrival.max(side.last_arrival + 1);
        side.last_arrival = arrival;
        self.flights.get(number).events += 1;
        self.digest.mix(u64::from(queue) << 32 | verbs);
        self.agenda.push(arrival, Event::Arrive(number));
    }

    /// How much longer than usual a message takes.
    pub(crate) fn delay(&mut self) -> u64 {
        if !self.strikes(FaultKind::Delay) {
            return 0;
        }
        let longest = if self.random.below(32) == 0 { VERY_LONG_DELAY } else { LONG_DELAY };
        self.random.below(longest)
    }

    /// The connection fails with this doorbell: a part of it takes effect, or all of it does, perhaps
    /// after its error was told.
    fn doom(&mut self, number: u32, sent: u64, verbs: u64) {
        let flight = self.flights.get(number);
        let (queue, connection) = (flight.queue, flight.connection);
        if self.random.below(2) == 0 {
            let cut = self.random.below(verbs + 1) as u32;
            self.flights.get(number).cut_from(cut);
            self.queues[queue as usize].severed = true;
        }
        let told = sent + self.random.below(self.profile.detect);
        self.agenda.push(told, Event::Break(queue, connection));
    }

    /// A connection fails: everything under way on it does, and whatever is posted until it is
    /// made anew.
    pub(crate) fn break_queue(&mut self, queue: u32, connection: u32) {
        if self.queues[queue as usize].connection == connection {
            let error = self.timed_out(queue);
            self.fail_queue(queue, &error, self.now);
        }
    }

    /// The doorbell reaches its node.
    pub(crate) fn arrive(&mut self, number: u32) {
        let flight = self.flights.get(number);
        flight.events -= 1;
        let (queue, connection) = (flight.queue, flight.connection);
        let side = &self.queues[queue as usize];
        let node = &self.nodes[side.node as usize];
        if connection != side.connection {
            self.flights.release_if_over(number);
            return;
        }
        if node.alive && node.paused_until > self.now {
            let until = node.paused_until;
            flight.events += 1;
            self.agenda.push(until, Event::Arrive(number));
            // Whoever waits does not wait for ever; the doorbell takes effect all the same.
            if until - self.now > self.profile.detect {
                let told = self.now + self.profile.detect;
                self.agenda.push(told, Event::Break(queue, connection));
            }
            return;
        }
        let client = self.processes[side.process as usize].client;
        let lost = if !node.alive || side.incarnation != node.incarnation {
            Some((self.gone(queue), self.now + self.profile.detect))
        } else if self.cuts.contains(&(side.process, side.node)) {
            Some((self.timed_out(queue), self.now + self.profile.detect))
        } else if node.fenced.contains(&client) {
            Some((FabricError::Fenced(client), self.now + self.profile.wire))
        } else {
            None
        };
        match lost {
            None => self.serve(number),
            Some((error, at)) => {
                // What is behind a lost doorbell is lost, too.
                self.queues[queue as usize].severed = true;
                for later in self.queues[queue as usize].flights.clone() {
                    if later >= number || self.flights.get(later).parts.is_empty() {
                        self.flights.get(later).cut_from(0);
                    }
                }
                self.flights.get(number).cut_from(0);
                self.fail_queue(queue, &error, at);
                self.flights.release_if_over(number);
            }
        }
    }

    pub(crate) fn timed_out(&self, queue: u32) -> FabricError {
        let node = NodeId(self.queues[queue as usize].node as u16);
        let after = std::time::Duration::from_nanos(self.profile.detect / 1000);
        FabricError::TimedOut { node, after }
    }

    /// The answer leaves the node.
    pub(crate) fn answer(&mut self, number: u32) {
        let profile = self.profile;
        let flight = self.flights.get(number);
        let (queue, answer_at) = (flight.queue, flight.answer_at);
        // One that was told already stays told.
        if flight.completing || flight.settled {
            self.flights.release_if_over(number);
            return;
        }
        let whole = flight.is_whole();
        if let Some(error) = self.queues[queue as usize].failed.clone() {
            self.fail_queue(queue, &error, self.now);
            return;
        }
        if !whole {
            return; // it fails with its connection, soon
        }
        let late = self.delay();
        let flight = self.flights.get(number);
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
        let wire = self.nodes[side.node as usize].wire;
        let there = answer_at + wire + self.random.below(profile.jitter + 1);
        // One that is late keeps the NIC from nothing else.
        let there =
            process.nics.serve(&profile, side.here, Engine::Receiving, there, 0, bytes) + late;
        let there = there.max(side.last_completion + 1);
        side.last_completion = there;
        let flight = self.flights.get(number);
        flight.completing = true;
        flight.events += 1;
        self.agenda.push(there, Event::Complete(number));
    }

    /// Everything under way on a queue fails at `at`, with unknown effect, and so does whatever comes
    /// later.
    pub(crate) fn fail_queue(&mut self, queue: u32, error: &FabricError, at: u64) {
        let side = &mut self.queues[queue as usize];
        let error = side.failed.get_or_insert_with(|| error.clone()).clone();
        for number in side.flights.clone() {
            let flight = self.flights.get(number);
            if flight.completing {
                continue;
            }
            flight.completing = true;
            flight.error = Some(error.clone());
            flight.events += 1;
            self.agenda.push(at, Event::Complete(number));
        }
    }

    /// Of the answers that are on their way, those from some point on are lost.
    pub(crate) fn lose_answers(&mut self, queue: u32, error: &FabricError) {
        let on_their_way = self.queues[queue as usize].flights.clone();
        let kept = self.random.below(on_their_way.len() as u64 + 1) as usize;
        for number in on_their_way.into_iter().skip(kept) {
            let flight = self.flights.get(number);
            if flight.completing {
                flight.error.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// The one who posted a doorbell hears of it now, or never; returns the name to tell it by.
    fn settle(&mut self, number: u32) -> Option<Token> {
        let flight = self.flights.get(number);
        flight.settled = true;
        let token = flight.token.take();
        let side = &mut self.queues[flight.queue as usize];
        side.flights.retain(|known| *known != number);
        if flight.error.is_none() && self.profile.persistence == Persistence::Unordered {
            // A FLUSH covers what completed READs returned, whoever wrote it.
            let reads = flight.verbs.iter().filter(|verb| verb.op == Op::Read);
            side.touched.extend(reads.flat_map(|verb| lines(verb.at, verb.words)));
        }
        token.filter(|_| !self.stopped)
    }
}
