//! Points on the monotonic clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds on a monotonic clock that all processes of one host share (in the simulator: virtual
/// time).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The host's monotonic clock, now.
    pub(crate) fn of_host() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(by.as_nanos() as u64))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The time since `earlier`; zero if that is later.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
