//! Client processes and their threads.

use std::collections::VecDeque;
use std::time::Duration;

use farside_fabric::runtime::{Random, Runnable, Timers};
use farside_fabric::{ClientId, Time, Worker};

use crate::busy::Meter;
use crate::nic::Nics;

/// A simulated client process, on a machine of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub(crate) u32);

pub(crate) struct Process {
    pub(crate) client: ClientId,
    pub(crate) alive: bool,
    pub(crate) paused_until: u64,
    /// Whether the adversary may strike it.
    pub(crate) exposed: bool,
    pub(crate) nics: Nics,
    pub(crate) clock: Clock,
    /// When and how it dies, if that is known.
    pub(crate) fate: Option<Fate>,
    /// What each of its queues had under way when it died: verbs that had not arrived.
    pub(crate) under_way: Vec<u32>,
    /// How many doorbells and verbs it has posted.
    pub(crate) posted: (u64, u64),
    pub(crate) code: Code,
}

/// What a program computes between its verbs, beside what `Cpu` charges for posting and completing them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Code {
    /// Whenever a task goes on.
    pub step: Duration,
    /// For each verb.
    pub verb: Duration,
}

impl Code {
    pub(crate) fn step_ps(&self) -> u64 {
        self.step.as_nanos() as u64 * 1000
    }

    pub(crate) fn verb_ps(&self) -> u64 {
        self.verb.as_nanos() as u64 * 1000
    }
}

/// The end of a process: after so many more doorbells.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    pub(crate) doorbells: u64,
    /// Only those count that write several times.
    pub(crate) writing: bool,
    pub(crate) landing: Landing,
}

/// What becomes of the verbs that a process has under way when it dies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Landing {
    /// On each queue some of them land, in order.
    Some,
    /// On each queue, in the order in which they were made, so many of those that have not arrived land; of the last of
    /// them only a part, if it is torn.
    Exactly {
        /// How many.
        verbs: Vec<u32>,
        /// The last one of each queue lands in part.
        torn: bool,
    },
}

/// A machine's clock: nanoseconds, from virtual picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) offset_ns: u64,
    pub(crate) drift_ppb: i64,
}

impl Clock {
    pub(crate) fn read(&self, ps: u64) -> Time {
        let ns = ps / 1000;
        let drift = (i128::from(ns) * i128::from(self.drift_ppb) / 1_000_000_000) as i64;
        Time(self.offset_ns.saturating_add(ns).saturating_add_signed(drift))
    }

    /// A point in virtual time at which the clock shows at least `time`.
    pub(crate) fn when(&self, time: Time) -> u64 {
        let span = i128::from(time.0.saturating_sub(self.offset_ns));
        let ns = span * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift_ppb)) + 1;
        u64::try_from(ns).unwrap_or(u64::MAX / 1000).min(u64::MAX / 1000) * 1000
    }
}

/// What a thread does next.
pub(crate) enum Work {
    Task(Runnable),
    /// The future that the so-manieth `block_on` waits for.
    Main(u64),
}

pub(crate) struct Thread {
    pub(crate) process: u32,
    pub(crate) queue: VecDeque<Work>,
    /// Until when its core is busy.
    pub(crate) cpu: u64,
    /// For how long it was at work.
    pub(crate) busy: Meter,
    /// Whether an event will run it.
    pub(crate) scheduled: bool,
    pub(crate) timers: Timers,
    pub(crate) random: Random,
    pub(crate) worker: Option<Worker>,
}

impl Thread {
    /// Its core works for so long; when it has done that.
    #[inline]
    pub(crate) fn work(&mut self, now: u64, time: u64) -> u64 {
        self.busy.add(time);
        self.cpu = self.cpu.max(now) + time;
        self.cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_back_where_it_was_set() {
        for drift_ppb in [-200_000, -7, 0, 13, 200_000] {
            let clock = Clock { offset_ns: 12_345, drift_ppb };
            for time in [0, 12_345, 99_999, 1_000_000_007, 10_000_000_000] {
                let at = clock.when(Time(time));
                assert!(clock.read(at) >= Time(time), "{drift_ppb} {time}");
                assert!(clock.read(at.saturating_sub(5000)) <= Time(time.max(12_345)));
            }
        }
    }
}
