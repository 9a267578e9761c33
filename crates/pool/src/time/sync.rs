//! What one process knows of the master's clock (`farmv2.txt` Fig. 2): two synchronizations, one that gives the best
//! lower bound and one that gives the best upper bound, and how fast the two clocks run apart.

/// Clocks run apart by less than one part in so many: more than an order of magnitude beyond what crystals do.
const DRIFT: u64 = 1024;

/// A clock that runs apart by more than that is not used any more, long before it is beyond the bounds.
const ALARM_PPB: u64 = 200_000;

/// For how long the rate of a clock is measured, in nanoseconds, before it is measured anew.
const WINDOW: u64 = 1_000_000_000;

/// A synchronization: at some moment between two moments of ours the pool's time was that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sync {
    pub(crate) sent: u64,
    pub(crate) master: u64,
    pub(crate) received: u64,
    /// The pool's clock is ours, and so much ahead: it does not run apart from itself.
    pub(crate) exact: bool,
}

impl Sync {
    /// The pool's clock is that of this process, which showed `now` when the time was `time`.
    pub(crate) fn of_same_clock(now: u64, time: u64) -> Sync {
        Sync { sent: now, master: time, received: now, exact: true }
    }

    /// How far two clocks may have run apart in that time.
    fn apart(&self, past: u64) -> u64 {
        if self.exact { 0 } else { past / DRIFT + 1 }
    }

    /// The earliest that it may be now.
    pub(crate) fn lower(&self, now: u64) -> u64 {
        let past = now.saturating_sub(self.received);
        self.master + past.saturating_sub(self.apart(past))
    }

    /// The latest that it may be now.
    pub(crate) fn upper(&self, now: u64) -> u64 {
        let past = now.saturating_sub(self.sent);
        self.master + past + self.apart(past)
    }

    pub(crate) fn round_trip(&self) -> u64 {
        self.received - self.sent
    }
}

/// What a synchronization says about the clock of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It may be used.
    Good,
    /// Not enough is known yet.
    Unproven,
    /// It runs faster or slower than clocks should, though not by more than the bounds allow for.
    Suspicious,
    /// It is beyond the bounds: nothing that it says may be used.
    Faulty,
}

/// All that is known from past synchronizations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knowledge {
    /// Those that give the best bounds.
    pub(crate) lower: Sync,
    pub(crate) upper: Sync,
    rate: Rate,
}

impl Knowledge {
    /// From a first one, with a clock that has proven to be good or not.
    pub(crate) fn begin(first: Sync, proven: bool) -> Self {
        Knowledge { lower: first, upper: first, rate: Rate { proven, ..Rate::since(first) } }
    }

    /// Whether the own clock has proven to be good.
    pub(crate) fn is_proven(&self) -> bool {
        self.rate.proven
    }

    /// Takes in a synchronization.
    pub(crate) fn take(&mut self, new: Sync) -> Verdict {
        let now = new.received;
        if new.lower(now) > self.upper.upper(now) || new.upper(now) < self.lower.lower(now) {
            return Verdict::Faulty;
        }
        if new.lower(now) >= self.lower.lower(now) {
            self.lower = new;
        }
        if new.upper(now) <= self.upper.upper(now) {
            self.upper = new;
        }
        self.rate.take(new)
    }

    /// By how much the own clock is ahead in a billion nanoseconds of the master's, as far as that is certain.
    pub(crate) fn drift_ppb(&self) -> i64 {
        self.rate.certain_ppb
    }
}

/// How fast the own clock runs, compared with the master's.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// From when on it is measured, and from when on it will be.
    anchor: Sync,
    next: Sync,
    /// It was within the bounds for long enough to tell.
    proven: bool,
    certain_ppb: i64,
}

impl Rate {
    fn since(anchor: Sync) -> Self {
        Rate { anchor, next: anchor, ..Rate::default() }
    }

    fn take(&mut self, new: Sync) -> Verdict {
        if !self.proven && new.round_trip() < self.anchor.round_trip() / 2 {
            // A better beginning than one that took long.
            *self = Rate::since(new);
        }
        let there = new.master.saturating_sub(self.anchor.master);
        // So much has passed here at the most, and at the least.
        let most = new.received.saturating_sub(self.anchor.sent);
        let least = new.sent.saturating_sub(self.anchor.received);
        self.certain_ppb = match there {
            0 => 0,
            there if least > there => parts(least - there, there),
            there if most < there => -parts(there - most, there),
            _ => 0,
        };
        if self.certain_ppb.unsigned_abs() > 1_000_000_000 / DRIFT {
            return Verdict::Faulty;
        }
        let within = most <= there + there / DRIFT && least >= there - there / DRIFT;
        self.proven |= within && there > 0;
        let suspicious = is_alarming(self.certain_ppb);
        if new.sent.saturating_sub(self.next.sent) > WINDOW {
            (self.anchor, self.next) = (self.next, new);
        }
        match (suspicious, self.proven) {
            (true, _) => Verdict::Suspicious,
            (false, true) => Verdict::Good,
            (false, false) => Verdict::Unproven,
        }
    }
}

/// Whether a clock that drifts like that, for certain, is not good enough.
pub(crate) fn is_alarming(drift_ppb: i64) -> bool {
    drift_ppb.unsigned_abs() > ALARM_PPB
}

fn parts(of: u64, whole: u64) -> i64 {
    (u128::from(of) * 1_000_000_000 / u128::from(whole)).try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::runtime::Random;

    /// A clock of ours at a time of the master's, which runs differently by so many parts in a billion.
    fn local(master: u64, drift_ppb: i64) -> u64 {
        let drift = i128::from(master) * i128::from(drift_ppb) / 1_000_000_000;
        u64::try_from(i128::from(master) + 7_000_000 + drift).unwrap()
    }

    /// Runs for a while, with synchronizations of at most so long every now and then; the verdicts, and the mean uncertainty.
    fn run(drift_ppb: i64, trip: u64, seed: u64) -> (Vec<Verdict>, u64) {
        let mut random = Random::new(seed);
        let mut known: Option<Knowledge> = None;
        let (mut verdicts, mut wide, mut looks) = (Vec::new(), 0, 0);
        let mut master = 1_000_000_000;
        for _ in 0..2000 {
            let (there, back) = (random.below(trip), random.below(trip));
            let sync = Sync {
                sent: local(master, drift_ppb),
                master: master + there,
                received: local(master + there + back, drift_ppb),
                exact: false,
            };
            master += there + back;
            match &mut known {
                Some(known) => verdicts.push(known.take(sync)),
                None => known = Some(Knowledge::begin(sync, false)),
            }
            if verdicts.last() == Some(&Verdict::Faulty) {
                break;
            }
            for _ in 0..4 {
                master += random.below(200_000);
                let (known, now) = (known.as_ref().unwrap(), local(master, drift_ppb));
                let (lower, upper) = (known.lower.lower(now), known.upper.upper(now));
                if verdicts.last() == Some(&Verdict::Good) {
                    assert!(lower <= master && master <= upper, "{drift_ppb}: {lower} {upper}");
                    (wide, looks) = (wide + (upper - lower), looks + 1);
                }
            }
        }
        (verdicts, wide / u64::max(looks, 1))
    }

    #[test]
    fn within_the_bounds_the_time_is_between_them() {
        for (seed, drift_ppb) in
            [-900_000, -190_000, -1, 0, 50_000, 190_000].into_iter().enumerate()
        {
            let (verdicts, uncertainty) = run(drift_ppb, 3_000, seed as u64);
            assert!(!verdicts.contains(&Verdict::Faulty), "{drift_ppb}");
            assert_eq!(verdicts[0], Verdict::Unproven);
            let suspicious = verdicts.contains(&Verdict::Suspicious);
            assert_eq!(suspicious, drift_ppb.abs() > 200_000, "{drift_ppb}");
            assert!(suspicious || uncertainty < 4_000, "{drift_ppb}: {uncertainty}");
        }
    }

    /// Whoever has the master's clock itself knows the time, however long ago it asked.
    #[test]
    fn the_same_clock_is_not_uncertain() {
        let (first, later) = (Sync::of_same_clock(1_000, 5_000), Sync::of_same_clock(2_000, 6_000));
        let mut known = Knowledge::begin(first, true);
        assert_eq!(known.take(later), Verdict::Good);
        let hours = 10_000_000_000_000;
        let bounds = (known.lower.lower(hours), known.upper.upper(hours));
        assert_eq!(bounds, (hours + 4_000, hours + 4_000));
        // If it turns out to be another one after all, nothing is done by it any more.
        let other = Sync { sent: hours, master: hours, received: hours + 50, exact: false };
        assert_eq!(known.take(other), Verdict::Faulty);
    }

    /// A clock beyond the bounds is never found to be good.
    #[test]
    fn a_clock_that_is_not_good_enough_is_found_before_it_is_used() {
        for seed in 0..50 {
            for drift_ppb in [-50_000_000, -3_000_000, -1_500_000, 1_500_000, 20_000_000] {
                let (verdicts, _) = run(drift_ppb, 3_000, seed);
                assert_eq!(verdicts.last(), Some(&Verdict::Faulty), "{drift_ppb}");
                assert!(!verdicts.contains(&Verdict::Good), "{drift_ppb}: {seed}");
            }
        }
    }
}
