//! A pool under faults: machines die, restart, stop, are cut off and drain; clients die and stop; the
//! store is slow or away. What must hold: never two primaries, promotion within three leases, every
//! change seen by all who live.

mod log;
mod machine;
mod measure;
mod schedule;
mod store;
mod timeline;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use farside_sim::Faults;

pub use schedule::{Event, KINDS};
pub(crate) use store::{SimStore, StoreWorld};

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Everything random derives from it.
    pub seed: u64,
    /// How many faults of machines, clients, networks and the store.
    pub events: u64,
    /// What strikes verbs besides.
    pub faults: Faults,
    /// A rule that is left out, to see what it is good for.
    pub without: Option<Rule>,
}

/// How many events a run usually has.
pub const EVENTS: u64 = 12;

impl Scenario {
    /// A smaller scenario that still goes wrong, as small as simple steps lead to.
    pub fn shrink(&self) -> Scenario {
        let goes_wrong = |scenario: &Scenario| run(scenario, false).violation.is_some();
        let mut smallest = self.clone();
        loop {
            let fewer = [smallest.events / 2, smallest.events.saturating_sub(1)].into_iter();
            let fewer = fewer
                .filter(|events| *events > 0 && *events < smallest.events)
                .map(|events| Scenario { events, ..smallest.clone() });
            let calmer = smallest.faults.kinds().map(|kind| {
                let faults = smallest.faults.without(kind);
                Scenario { faults, ..smallest.clone() }
            });
            let Some(next) = fewer.chain(calmer).find(goes_wrong) else { return smallest };
            smallest = next;
        }
    }
}

/// A rule of the protocol that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Who has no lease does nothing.
    Lease,
    /// A configuration counts only when all have acknowledged it.
    Counting,
    /// A silent node that has the last copy of a region is waited for.
    LastCopy,
    /// A configuration that is contested is no evidence of its manager's office.
    Contest,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What went wrong, if anything did.
    pub violation: Option<String>,
    /// Writes that were believed.
    pub writes: u64,
    /// Writes that failed or were not believed.
    pub lost: u64,
    /// How often the configuration changed.
    pub changes: u64,
    /// How often each kind of fault struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// The longest time that a region with a live copy was not served, where faults came one by one.
    pub unserved: Duration,
    /// How many masters of the time there were.
    pub masters: u64,
    /// How uncertain those who had a lease were of the time, on the average.
    pub uncertainty: Duration,
    /// The longest that somebody with a lease had no clock, after it had one.
    pub clock_off: Duration,
    /// A hash of everything that happened.
    pub digest: u64,
    /// The timeline, if it was asked for.
    pub trace: Vec<String>,
}

/// The lease in the simulator.
pub const LEASE: Duration = Duration::from_millis(2);

/// Runs a scenario in a world of its own.
pub fn run(scenario: &Scenario, trace: bool) -> Outcome {
    world::run(scenario, trace)
}
