//! Whether it is worth while to look for work without sleeping.

use std::time::Duration;

/// How long after the last work the thread goes on looking, where work comes quickly.
const BUSY: Duration = Duration::from_micros(300);

/// The same where it comes now and then: waking up then costs less than looking in vain.
const CALM: Duration = Duration::from_micros(10);

/// What is quick: about as long as a thread needs to wake up.
const QUICK: Duration = Duration::from_micros(60);

/// How quickly work has come of late.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// A moving average of the time between two pieces of work.
    gap: Duration,
}

impl Pace {
    /// Work has come, so long after the last.
    pub(crate) fn note(&mut self, gap: Duration) {
        if gap < CALM {
            // That was waited for anyway. What comes in bursts says nothing about the time between them.
            return;
        }
        // A long pause counts as one that is not quick, and no more: who begins again is served quickly.
        self.gap = (self.gap * 7 + gap.min(4 * QUICK)) / 8;
    }

    /// How long to look without sleeping.
    pub(crate) fn spin(&self) -> Duration {
        if self.gap < QUICK { BUSY } else { CALM }
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
