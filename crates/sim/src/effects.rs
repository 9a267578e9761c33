//! What a doorbell does at its node: how long it takes, in which pieces, and the change of memory.

use farside_fabric::Persistence;
use farside_fabric::link::Op;

use crate::adversary::FaultKind;
use crate::event::Event;
use crate::flight::{FlightVerb, Part};
use crate::nic::Engine;
use crate::trace;
use crate::world::State;

impl State {
    /// The node's NIC works on the doorbell.
    pub(crate) fn serve(&mut self, number: u32) {
        let flight = self.flights.get(number);
        let queue = flight.queue;
        flight.arrived = true;
        let split = flight.maimed.is_some() || self.faults.splits_effects();
        let count = self.flights.get(number).verbs.len();
        let mut answer = self.now;
        for verb in 0..count as u32 {
            let (at, waits) = self.time_of(number, verb);
            answer = answer.max(at);
            // An atomic that waits for its bucket takes effect when its turn comes, and so does what must
            // not overtake it.
            if split || waits || self.queues[queue as usize].swapped > self.now {
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

    /// When a verb that arrived now has been executed by the NIC, and whether it is an atomic that waits
    /// for others on the way.
    fn time_of(&mut self, number: u32, verb: u32) -> (u64, bool) {
        let (now, profile) = (self.now, self.profile);
        let flight = self.flights.get(number);
        let queue = flight.queue;
        let verb = flight.verbs[verb as usize];
        let operand = flight.words.get(verb.first as usize).copied().unwrap_or(0);
        let side = &self.queues[queue as usize];
        let (node, pair) = (&mut self.nodes[side.node as usize], side.there);
        let bytes = u64::from(verb.words) * 8;
        let on_chip = node.is_on_chip(&profile, verb.at);
        let looked_at = node.nics.looks_at(pair, now);
        let late = looked_at > now;
        let mut serve = |message, bytes| {
            node.nics.serve(&profile, pair, Engine::Serving, now, message, bytes).max(looked_at)
        };
        let done = match verb.op {
            Op::Read => {
                let done = serve(profile.serve_read, bytes);
                if on_chip {
                    return (done, late);
                }
                node.note_read(&profile, verb.at, bytes);
                done + profile.pcie_read + profile.memory_read
            }
            Op::Write => {
                let done = serve(profile.serve_write, bytes);
                if on_chip {
                    return (done, late);
                }
                // Writes are posted: only a full buffer in front of the memory holds them up.
                let absorbed = node.absorb(&profile, done, verb.at, bytes);
                done.max(absorbed.saturating_sub(2_000_000))
            }
            Op::Cas | Op::Faa | Op::MaskedCas => {
                let message = if on_chip { profile.serve_on_chip } else { profile.serve_atomic };
                let done = serve(message, 0);
                let turn = node.nics.take_turn(&profile, pair, verb.at, done, message);
                if on_chip {
                    return (turn + message * profile.units, turn > done);
                }
                let word = node.memory[(verb.at / 8) as usize];
                // A CAS that fails writes nothing back.
                let fails = verb.op == Op::Cas && word != operand;
                let write = if fails { 0 } else { profile.pcie_write };
                return (turn + profile.pcie_read + write, turn > done);
            }
            Op::Flush => serve(profile.serve_read, 0).max(node.written_at) + profile.pcie_read,
        };
        (done, late)
    }

    /// Chooses when the parts of a verb take effect, within what C1 and C3 permit.
    fn plan(&mut self, number: u32, verb: u32, mut at: u64) {
        let it = self.flights.get(number).verbs[verb as usize];
        let late = it.op != Op::Write && self.strikes(FaultKind::Reorder);
        if late {
            let window = self.window();
            at += self.random.below(window);
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
        let maimed = self.flights.get(number).maimed == Some(verb);
        let tears = matches!(it.op, Op::Read | Op::Write)
            && it.words > 1
            && (maimed || self.strikes(FaultKind::Tear));
        let window = self.window();
        let mut first = 0;
        while first < it.words || (it.words == 0 && first == 0) {
            let (words, when) = if tears {
                (self.piece(&it, first), start + self.random.below(window))
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

    /// How late something may be, or how far the pieces of a torn verb lie apart: others may have been
    /// here for one round trip meanwhile, or for many.
    fn window(&mut self) -> u64 {
        let round_trips = [1, 4, 20][self.random.below(3) as usize];
        round_trips * (2 * self.profile.wire + self.profile.pcie_read)
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
        let dropped =
            self.flights.get(number).maimed == Some(part.verb) && self.random.below(2) == 0;
        let flight = self.flights.get(number);
        if standing && !cut && !dropped && !flight.landed(index) {
            flight.land(index);
            self.effect(number, part);
        }
        let flight = self.flights.get(number);
        flight.parts_left -= 1;
        if flight.parts_left == 0 && standing {
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
        let connected = flight.connection == self.queues[flight.queue as usize].connection;
        if !connected || flight.landed(part) || flight.is_cut(it.verb) || flight.maimed.is_some() {
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
        self.digest.mix(u64::from(queue));
        match verb.op {
            Op::Read => {
                node.load(at, words);
                words.iter().for_each(|word| self.digest.mix(*word));
            }
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
        // A FLUSH is for what was read, too, whoever wrote it.
        if verb.op != Op::Flush && self.profile.persistence == Persistence::Unordered {
            let words = if matches!(verb.op, Op::Read | Op::Write) { part.words } else { 1 };
            side.touched.extend(lines(at, words));
        }
        if self.trace.is_on() {
            let what = describe(verb, part, words);
            let (process, node) = (side.process, side.node);
            self.trace.note(now, || format!("process {process} → node {node}  {what}"));
        }
    }
}

/// The lines that some words lie in.
pub(crate) fn lines(at: u64, words: u32) -> std::ops::RangeInclusive<u32> {
    let first = (at / 8) as u32;
    first / 8..=(first + words.max(1) - 1) / 8
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
