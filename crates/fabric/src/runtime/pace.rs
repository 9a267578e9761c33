//! Whether it is worth while to look for work without sleeping.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::Time;

/// How long after the last work the thread goes on looking, where work comes quickly.
const BUSY: Duration = Duration::from_micros(300);

/// The same where it comes now and then: waking up then costs less than looking in vain.
const CALM: Duration = Duration::from_micros(10);

/// What is quick: about as long as a thread needs to wake up.
const QUICK: Duration = Duration::from_micros(60);

/// How often a thread that sleeps soon looks for longer: two that sleep while they wait for each other are late for that alone.
const PROBE: u32 = 32;

/// Of so many pauses one is watched.
const WATCHED: u32 = 16;

/// How much watching it takes to know whether the core is shared.
const ENOUGH: Duration = Duration::from_micros(500);

/// It is, if others had at least one part in so many of that time; and one that was shared still is, with less.
const SHARED: u32 = 3;
const STILL_SHARED: u32 = 4;

/// For how many pauses a thread with a shared core then sleeps at once, before it looks again whether that is still so.
const CROWDED: u32 = 2000;

/// How quickly work has come of late, and whether there is a core to spare for looking.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// A moving average of the time between two pieces of work.
    gap: Duration,
    /// How many pauses there were.
    pauses: u32,
    /// When the one that is watched began, and what this thread had worked until then.
    watched: Option<(Time, Duration)>,
    /// How long those took that were watched, and how much of that others had the core.
    looked: Duration,
    lost: Duration,
    /// The core was shared when that was looked at last.
    shared: bool,
    /// For so many pauses more, others want the core: perhaps those that the work is to come from.
    crowded: u32,
}

impl Pace {
    /// There is nothing to do, and the thread begins to look for work.
    pub(crate) fn begin(&mut self) {
        self.pauses = self.pauses.wrapping_add(1);
        self.crowded = self.crowded.saturating_sub(1);
        if self.pauses.is_multiple_of(WATCHED) && !self.is_crowded() {
            self.watched = Some((Time::of_host(), worked()));
        }
    }

    /// It does not look any more: there is work, or it sleeps.
    pub(crate) fn end(&mut self) {
        let Some((since, before)) = self.watched.take() else { return };
        let span = Time::of_host() - since;
        self.looked += span;
        self.lost += span.saturating_sub(worked().saturating_sub(before));
        if self.looked > ENOUGH {
            let part = if self.shared { STILL_SHARED } else { SHARED };
            self.shared = self.lost * part > self.looked;
            self.crowded = if self.shared { CROWDED } else { 0 };
            (self.looked, self.lost) = (Duration::ZERO, Duration::ZERO);
        }
    }

    /// Work has come, so long after the last.
    pub(crate) fn note(&mut self, gap: Duration) {
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
            gap if gap < QUICK || self.pauses.is_multiple_of(PROBE) => BUSY,
            _ => CALM,
        }
    }
}

/// For how long this thread has had a core.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_often_is_waited_for() {
        let mut pace = Pace { pauses: 1, ..Pace::default() };
        assert_eq!(pace.spin(), BUSY);
        (0..50).for_each(|_| pace.note(Duration::from_millis(1)));
        assert_eq!(pace.spin(), CALM);
        (0..50).for_each(|_| pace.note(Duration::from_micros(3)));
        assert_eq!(pace.spin(), CALM);
        (0..12).for_each(|_| pace.note(Duration::from_micros(10)));
        assert_eq!(pace.spin(), BUSY);
    }

    #[test]
    fn who_comes_seldom_is_waited_for_now_and_then() {
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.note(Duration::from_millis(1)));
        let long = (0..10 * PROBE).filter(|_| {
            pace.begin();
            pace.end();
            pace.spin() == BUSY
        });
        assert_eq!(long.count(), 10);
    }

    /// Others have the core while this thread sleeps: the same as if they took it.
    #[test]
    fn who_shares_a_core_sleeps_at_once_and_looks_again_later() {
        let mut pace = Pace::default();
        for _ in 0..WATCHED {
            pace.begin();
            std::thread::sleep(Duration::from_micros(600));
            pace.end();
        }
        assert_eq!(pace.spin(), Duration::ZERO);
        for _ in 0..CROWDED {
            pace.begin();
            pace.end();
        }
        assert_eq!(pace.spin(), BUSY);
    }
}
