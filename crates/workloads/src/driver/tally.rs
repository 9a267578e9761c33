//! What a run counts.

use farside_fabric::Counts;
use farside_txn::Holding;
use hdrhistogram::Histogram;

/// Of one kind of transaction.
#[derive(Clone, Debug)]
pub struct KindTally {
    /// Its name.
    pub name: &'static str,
    /// Transactions that committed.
    pub committed: u64,
    /// Attempts that did not.
    pub aborted: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Round trips that those that committed have waited for, all attempts included.
    pub round_trips: u64,
    /// Those that committed and had to wait for a lock, at some read.
    pub waited: u64,
    /// Those that committed and read an older version, of something.
    pub hopped: u64,
    /// For how many nanoseconds those that committed waited for locks, at reads.
    pub waited_ns: u64,
    /// What those that committed took, all attempts included, in nanoseconds.
    pub latencies: Histogram<u64>,
}

/// Of all kinds.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Each kind.
    pub kinds: Vec<KindTally>,
    /// From when to when was counted, over all threads.
    pub(super) from: u64,
    pub(super) to: u64,
    /// The most attempts that one transaction took.
    pub most_tries: u32,
    /// Transactions that ended while it was not counted yet.
    pub uncounted: u64,
    /// About how many transactions arrived and were not begun.
    pub unserved: u64,
    /// Transactions of unknown outcome, because whoever made them died.
    pub lost: u64,
    /// Verbs of all transactions, also those that are not counted.
    pub counts: Counts,
    /// How long they held their locks.
    pub holding: Holding,
}

/// The longest that is told apart: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds that fit")
}

impl Tally {
    pub(super) fn new(names: &[&'static str]) -> Self {
        let kind = |name: &&'static str| KindTally {
            name,
            committed: 0,
            aborted: 0,
            unknown: 0,
            round_trips: 0,
            waited: 0,
            hopped: 0,
            waited_ns: 0,
            latencies: histogram(),
        };
        let kinds = names.iter().map(kind).collect();
        Tally {
            kinds,
            from: u64::MAX,
            to: 0,
            most_tries: 0,
            uncounted: 0,
            unserved: 0,
            lost: 0,
            counts: Counts::default(),
            holding: Holding::default(),
        }
    }

    /// Of all threads together; `None` if there are none.
    pub fn merged(tallies: impl IntoIterator<Item = Tally>) -> Option<Tally> {
        tallies.into_iter().reduce(|mut first, next| {
            first.merge(&next);
            first
        })
    }

    /// Adds what another thread has counted.
    pub fn merge(&mut self, other: &Tally) {
        for (kind, more) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.committed += more.committed;
            kind.aborted += more.aborted;
            kind.unknown += more.unknown;
            kind.round_trips += more.round_trips;
            kind.waited += more.waited;
            kind.hopped += more.hopped;
            kind.waited_ns += more.waited_ns;
            kind.latencies.add(&more.latencies).expect("the same bounds");
        }
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
        self.most_tries = self.most_tries.max(other.most_tries);
        self.uncounted += other.uncounted;
        self.unserved += other.unserved;
        self.lost += other.lost;
        self.counts += other.counts;
        self.holding += other.holding;
    }

    /// How long was counted: from the first begin of any thread to the last end.
    pub fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1e9
    }

    /// The latencies of all kinds.
    pub fn latencies(&self) -> Histogram<u64> {
        let mut all = histogram();
        self.kinds.iter().for_each(|kind| all.add(&kind.latencies).expect("the same bounds"));
        all
    }

    /// Transactions that committed.
    pub fn committed(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.committed).sum()
    }

    /// Attempts that did not.
    pub fn aborted(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.aborted).sum()
    }

    /// Transactions of unknown outcome.
    pub fn unknown(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.unknown).sum::<u64>() + self.lost
    }
}
