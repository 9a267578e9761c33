//! What a node does for its journal: notes what it executes, and holds back answers until that is durable.

use std::time::Instant;

use super::super::client::Farewell;
use super::super::wire::take_verb;
use super::NodeEvent;
use super::connection::Connection;
use super::kept::Kept;
use super::serve::Serving;
use crate::link::Op;
use crate::sync::{AtomicU64, Ordering};

/// The journal while a doorbell is executed; none, where nothing is to survive.
pub(super) struct Journaled<'a> {
    kept: Option<&'a mut Kept>,
    flushed: bool,
}

impl<'a> Journaled<'a> {
    pub(super) fn new(kept: Option<&'a mut Kept>) -> Self {
        Journaled { kept, flushed: false }
    }

    /// Some words were changed.
    #[inline]
    pub(super) fn note(&mut self, memory: &[AtomicU64], first: usize, count: usize) {
        if let Some(kept) = &mut self.kept {
            kept.words.clear();
            let changed = memory[first..first + count].iter();
            kept.words.extend(changed.map(|word| word.load(Ordering::Relaxed)));
            kept.journal.append(first as u64, &kept.words);
        }
    }

    pub(super) fn flush(&mut self) {
        self.flushed = true;
    }

    /// How far the journal must be before the answer goes out, if it is not that far.
    pub(super) fn waits_for(self) -> Option<u64> {
        let kept = self.kept.filter(|_| self.flushed)?;
        let position = kept.journal.position();
        if kept.journal.durable() >= position {
            return None;
        }
        kept.wants_sync = true;
        Some(position)
    }
}

impl<F: FnMut(NodeEvent)> Serving<'_, F> {
    /// Whether a doorbell may be executed: not if it writes something and the disk fails.
    pub(super) fn may_execute(&self, connection: &mut Connection, mut body: &[u8]) -> bool {
        let error = self.node.journal.as_ref().and_then(|kept| kept.journal.error());
        let Some(error) = error else { return true };
        let verbs = std::iter::from_fn(|| take_verb(&mut body, &self.limits).ok().flatten());
        let may = { verbs }.all(|verb| verb.op == Op::Read);
        if !may {
            connection.say_goodbye(Farewell::Failing, &error.to_string());
        }
        may
    }

    pub(super) fn clear_wake(&self) {
        if let Some(kept) = &self.node.journal {
            let _ = rustix::io::read(&*kept.wake, &mut [0u8; 8]);
        }
    }

    /// Once in a turn: asks for what has to be durable, and lets answers go for which it is; whether there were any.
    pub(super) fn keep(&mut self, now: Instant) -> bool {
        let Some(kept) = &mut self.node.journal else { return false };
        kept.journal.tick();
        if std::mem::take(&mut kept.wants_sync) {
            kept.journal.sync();
        }
        let (durable, error) = (kept.journal.durable(), kept.journal.error());
        if let Some(error) = error.as_ref().filter(|_| !std::mem::replace(&mut kept.told, true)) {
            (self.tell)(NodeEvent::Failing { why: error.to_string() });
        }
        if self.holding.is_empty() {
            return false;
        }
        let mut worked = false;
        for number in std::mem::take(&mut self.holding) {
            let Some(connection) = self.connections.get_mut(number).and_then(Option::as_mut) else {
                continue;
            };
            let free = connection.let_go(durable);
            if let Some(error) = error.as_ref().filter(|_| !connection.held.is_empty()) {
                connection.say_goodbye(Farewell::Failing, &error.to_string());
            } else if !connection.held.is_empty() {
                self.holding.push(number);
            }
            if free || error.is_some() {
                worked |= self.serve(number, now);
            }
        }
        worked
    }
}
