//! What strikes machines, and what fences and restarts do.

use farside_fabric::link::Op;
use farside_fabric::{ClientId, FabricError};

use crate::adversary::FaultKind;
use crate::event::Event;
use crate::process::Landing;
use crate::world::State;

/// How long pauses, outages and partitions last at most, in picoseconds.
const PAUSE: u64 = 500_000_000;
const OUTAGE: u64 = 2_000_000_000;

impl State {
    /// The adversary looks at everything that it may strike.
    pub(crate) fn look(&mut self) {
        for process in 0..self.processes.len() as u32 {
            let it = &self.processes[process as usize];
            if !it.exposed || !it.alive {
                continue;
            }
            if self.strikes(FaultKind::Kill) {
                self.kill_process(process);
            } else if self.strikes(FaultKind::Pause) {
                let span = self.random.below(PAUSE);
                self.pause_process(process, span);
            }
        }
        for node in 0..self.nodes.len() as u32 {
            let it = &self.nodes[node as usize];
            if !it.exposed || !it.alive {
                continue;
            }
            if self.strikes(FaultKind::NodeCrash) {
                self.kill_node(node);
                let back = self.now + self.random.below(OUTAGE);
                self.agenda.push(back, Event::NodeRestart(node));
            } else if self.strikes(FaultKind::NodePause) {
                let span = self.random.below(PAUSE);
                self.pause_node(node, span);
            }
            for process in 0..self.processes.len() as u32 {
                if self.processes[process as usize].exposed && self.strikes(FaultKind::Partition) {
                    self.cut(process, node);
                    let healed = self.now + self.random.below(OUTAGE);
                    self.agenda.push(healed, Event::Heal(process, node));
                }
            }
        }
        self.looking = false;
        // Where nothing else will happen, nothing happens: a world that stands still is noticed.
        if !self.agenda.is_empty() {
            self.start_looking();
        }
    }

    /// A process dies. Of what each of its queues has under way, a prefix lands.
    pub(crate) fn kill_process(&mut self, process: u32) {
        let now = self.now;
        self.processes[process as usize].alive = false;
        self.trace.note(now, || format!("process {process} dies"));
        self.digest.mix(u64::from(process) | 1 << 40);
        for queue in 0..self.queues.len() as u32 {
            if self.queues[queue as usize].process == process {
                self.lose_suffix(queue);
            }
        }
    }

    /// A doorbell was posted: its sender may have been doomed to die then.
    pub(crate) fn come_closer_to_death(&mut self, queue: u32, number: u32) {
        let process = self.queues[queue as usize].process;
        let Some(fate) = &mut self.processes[process as usize].fate else { return };
        let writes = self.flights.get(number).verbs.iter().filter(|verb| verb.op == Op::Write);
        if fate.writing && writes.count() < 2 {
            return;
        }
        fate.doorbells = fate.doorbells.saturating_sub(1);
        if fate.doorbells > 0 {
            return;
        }
        let landing = self.processes[process as usize].fate.take().expect("seen above").landing;
        let queues: Vec<u32> = (0..self.queues.len() as u32)
            .filter(|queue| self.queues[*queue as usize].process == process)
            .collect();
        let under_way = queues.iter().map(|queue| self.not_arrived(*queue).len() as u32).collect();
        self.processes[process as usize].under_way = under_way;
        match landing {
            Landing::Some => self.kill_process(process),
            Landing::Exactly { verbs, torn } => {
                for (queue, verbs) in queues.into_iter().zip(verbs) {
                    self.lose_all_but(queue, verbs as usize, torn);
                }
                self.processes[process as usize].alive = false;
                self.trace.note(self.now, || format!("process {process} dies"));
            }
        }
    }

    /// The verbs that are under way to the node of a queue, in order: their flights, and which they are.
    fn not_arrived(&mut self, queue: u32) -> Vec<(u32, u32)> {
        let under_way = self.queues[queue as usize].flights.clone();
        let mut verbs = Vec::new();
        for number in under_way {
            let flight = self.flights.get(number);
            if !flight.arrived {
                verbs.extend((0..flight.verbs.len() as u32).map(|verb| (number, verb)));
            }
        }
        verbs
    }

    /// The first so many verbs that are under way on a queue land, the last of them in part perhaps; no others do.
    fn lose_all_but(&mut self, queue: u32, kept: usize, torn: bool) {
        let verbs = self.not_arrived(queue);
        for (number, verb) in verbs.iter().skip(kept) {
            self.flights.get(*number).cut_from(*verb);
        }
        if let Some((number, verb)) = verbs[..kept.min(verbs.len())].last().filter(|_| torn) {
            self.flights.get(*number).maimed = Some(*verb);
        }
        self.queues[queue as usize].severed = true;
    }

    /// From a random point on, nothing that is under way on a queue takes effect.
    fn lose_suffix(&mut self, queue: u32) {
        let under_way = self.queues[queue as usize].flights.clone();
        if under_way.is_empty() {
            return;
        }
        let last_whole = self.random.below(under_way.len() as u64 + 1) as usize;
        for (position, number) in under_way.into_iter().enumerate() {
            if position < last_whole {
                continue;
            }
            let verbs = self.flights.get(number).verbs.len() as u64;
            let kept = if position == last_whole { self.random.below(verbs + 1) } else { 0 };
            let maimed = kept > 0 && self.random.below(2) == 0;
            let flight = self.flights.get(number);
            flight.cut_from(kept as u32);
            if maimed {
                flight.maimed = Some(kept as u32 - 1);
            }
        }
        self.queues[queue as usize].severed = true;
    }

    /// A process stops for a while; what it has under way goes on.
    pub(crate) fn pause_process(&mut self, process: u32, span: u64) {
        let now = self.now;
        let it = &mut self.processes[process as usize];
        it.paused_until = it.paused_until.max(now + span);
        let until = it.paused_until;
        self.trace.note(now, || format!("process {process} stops for {} µs", span / 1_000_000));
        self.agenda.push(until, Event::Resume(process));
    }

    pub(crate) fn resume(&mut self, process: u32) {
        let now = self.now;
        self.trace.note(now, || format!("process {process} goes on"));
    }

    /// A node stops for a while: nothing takes effect there.
    pub(crate) fn pause_node(&mut self, node: u32, span: u64) {
        let now = self.now;
        let it = &mut self.nodes[node as usize];
        it.paused_until = it.paused_until.max(now + span);
        let until = it.paused_until;
        self.trace.note(now, || format!("node {node} stops for {} µs", span / 1_000_000));
        self.agenda.push(until, Event::NodeResume(node));
    }

    /// A node dies, and with it what was not persistent.
    pub(crate) fn kill_node(&mut self, node: u32) {
        let now = self.now;
        self.trace.note(now, || format!("node {node} dies"));
        self.digest.mix(u64::from(node) | 1 << 41);
        let it = &mut self.nodes[node as usize];
        it.alive = false;
        it.lose_power(&self.profile, &mut self.random, &mut self.digest);
        for queue in 0..self.queues.len() as u32 {
            if self.queues[queue as usize].node == node {
                let error = self.gone(queue);
                self.lose_answers(queue, &error);
                let detected = now + self.random.below(self.profile.detect) + 1;
                self.fail_queue(queue, &error, detected);
            }
        }
    }

    /// A dead node comes back as another incarnation.
    pub(crate) fn restart_node(&mut self, node: u32) {
        let now = self.now;
        let it = &mut self.nodes[node as usize];
        if it.alive {
            return;
        }
        it.alive = true;
        it.incarnation += 1;
        it.paused_until = 0;
        self.trace.note(now, || format!("node {node} is back"));
    }

    /// The network between a process and a node is cut: what is under way is lost, some of it after
    /// its effect.
    pub(crate) fn cut(&mut self, process: u32, node: u32) {
        let now = self.now;
        self.cuts.insert((process, node));
        self.trace.note(now, || format!("process {process} and node {node} are cut apart"));
        for queue in 0..self.queues.len() as u32 {
            let side = &self.queues[queue as usize];
            if side.process == process && side.node == node {
                self.lose_suffix(queue);
                let error = self.timed_out(queue);
                self.lose_answers(queue, &error);
                self.fail_queue(queue, &error, now + self.profile.detect);
            }
        }
    }

    /// No verb of the client has any effect here any more: what is under way landed just before, in
    /// part, or never will.
    pub(crate) fn fence(&mut self, node: u32, victim: ClientId) {
        let now = self.now;
        self.trace.note(now, || format!("node {node} fences {victim}"));
        self.digest.mix(victim.0 | 1 << 42);
        if !self.nodes[node as usize].fenced.insert(victim) {
            return;
        }
        for queue in 0..self.queues.len() as u32 {
            let side = &self.queues[queue as usize];
            let its = self.processes[side.process as usize].client == victim;
            if its && side.node == node {
                // What the adversary wants to land lands now: afterwards nothing does.
                self.land_some(queue);
                self.queues[queue as usize].connection += 1;
                let error = FabricError::Fenced(victim);
                self.fail_queue(queue, &error, now + self.profile.wire);
            }
        }
    }

    /// A fresh connection: nothing of the old one takes effect any more.
    pub(crate) fn reconnect(&mut self, queue: u32) {
        self.land_some(queue);
        let error = self.timed_out(queue);
        for number in self.queues[queue as usize].flights.clone() {
            let flight = self.flights.get(number);
            flight.completing = true;
            flight.error.get_or_insert_with(|| error.clone());
            flight.events += 1;
            self.agenda.push(self.now, Event::Complete(number));
        }
        let side = &mut self.queues[queue as usize];
        let incarnation = self.nodes[side.node as usize].incarnation;
        if side.incarnation != incarnation {
            side.touched.clear();
        }
        side.connection += 1;
        side.incarnation = incarnation;
        side.severed = false;
        side.failed = None;
        (side.written, side.read, side.swapped) = (0, 0, 0);
    }

    /// Parts of doorbells that are at the node already take effect now, by the adversary's choice.
    fn land_some(&mut self, queue: u32) {
        let side = &self.queues[queue as usize];
        let node = &self.nodes[side.node as usize];
        if !node.alive || node.incarnation != side.incarnation || self.random.below(2) == 0 {
            return;
        }
        for number in self.queues[queue as usize].flights.clone() {
            for part in 0..self.flights.get(number).parts.len() as u32 {
                if self.random.below(4) == 0 {
                    return;
                }
                self.land_early(number, part);
            }
        }
    }
}
