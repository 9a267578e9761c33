//! Whether it is worth while to look for work without sleeping.

use std::time::Duration;

use super::Time;

/// How long after the last work the thread goes on looking, where work comes quickly.
const BUSY: Duration = Duration::from_micros(300);

/// The same where it comes now and then: waking up then costs less than looking in vain.
const CALM: Duration = Duration::from_micros(10);

/// What is quick: about as long as a thread needs to wake up.
const QUICK: Duration = Duration::from_micros(60);

/// How often a thread that sleeps at once looks for longer.
const PROBE: u32 = 32;

/// For how long it is watched how much of the core others take.
const WATCH: Duration = Duration::from_millis(2);

/// What takes longer than this was not only the question.
const AWAY: Duration = Duration::from_micros(3);

/// With more than this share of the time taken by others, the core is shared.
const SHARED: u32 = 5;

/// How many pieces of work a thread with a shared core sleeps for before it looks again whether that is still so.
const CROWDED: u32 = 1000;

/// How quickly work has come of late, and whether there is a core to spare for looking.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// A moving average of the time between two pieces of work.
    gap: Duration,
    /// Since when it is watched how much of the core others take, and how much they took.
    watched: Option<Time>,
    taken: Duration,
    /// Pieces of work that had to be waited for.
    notes: u32,
    /// For so many pieces of work more, others want the core: perhaps those that the work is to come from.
    crowded: u32,
}

impl Pace {
    /// Work has come, so long after the last.
    pub(crate) fn note(&mut self, gap: Duration) {
        self.crowded = self.crowded.saturating_sub(1);
        self.notes = self.notes.wrapping_add(1);
        if gap < CALM {
            // That was waited for anyway. What comes in bursts says nothing about the time between them.
            return;
        }
        // A long pause counts as one that is not quick, and no more: who begins again is served quickly.
        self.gap = (self.gap * 7 + gap.min(4 * QUICK)) / 8;
    }

    /// Whether others want the core.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded > 0
    }

    /// How long to look without sleeping.
    pub(crate) fn spin(&self) -> Duration {
        match self.gap {
            _ if self.is_crowded() => Duration::ZERO,
            gap if gap < QUICK || self.probes() => BUSY,
            _ => CALM,
        }
    }

    /// Two that sleep while they wait for each other are late because they sleep: now and then one looks for longer.
    fn probes(&self) -> bool {
        self.notes.is_multiple_of(PROBE)
    }

    /// Gives the core to others, if they want it.
    pub(crate) fn step_aside(&mut self) {
        let before = Time::of_host();
        std::thread::yield_now();
        let now = Time::of_host();
        let since = *self.watched.get_or_insert(before);
        if now - before > AWAY {
            self.taken += now - before;
        }
        if now - since > WATCH {
            if self.taken * SHARED > now - since {
                self.crowded = CROWDED;
            }
            (self.watched, self.taken) = (None, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_often_is_waited_for() {
        let mut pace = Pace::default();
        assert_eq!(pace.spin(), BUSY);
        (0..50).for_each(|_| pace.note(Duration::from_millis(1)));
        assert_eq!(pace.spin(), CALM);
        (0..50).for_each(|_| pace.note(Duration::from_micros(3)));
        assert_eq!(pace.spin(), CALM);
        (0..12).for_each(|_| pace.note(Duration::from_micros(10)));
        assert_eq!(pace.spin(), BUSY);
    }
}
