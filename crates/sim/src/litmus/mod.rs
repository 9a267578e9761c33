//! Litmus programs: small programs that rely on exactly what the contracts promise, or, *careless*,
//! on a little more. The careful ones never go wrong; the careless ones do, and soon, or the
//! simulator is not adversarial enough to be worth anything.

mod errors;
mod order;
mod persistence;
mod tearing;

use farside_fabric::{FabricError, Queue};

use crate::adversary::{FaultKind, Faults};
use crate::profile::Profile;
use crate::sim::Sim;

/// A program, and what its careless form takes for granted.
#[derive(Clone, Copy)]
pub struct Litmus {
    /// Its name on the command line.
    pub name: &'static str,
    /// The contract it is about.
    pub contract: &'static str,
    /// What the careless form relies on without a promise.
    pub careless: &'static str,
    /// The faults that it needs to go wrong.
    faults: &'static [FaultKind],
    /// The faults that would break even the careful form, and are switched off.
    spared: &'static [FaultKind],
    /// The hardware that it needs to go wrong.
    profile: &'static str,
    run: fn(&Sim, Style, u64) -> Result<(), Stop>,
}

/// Why a program ended early.
#[derive(Debug)]
enum Stop {
    /// What it relied on did not hold.
    Violation(String),
    /// It met an error that it has no answer to: that proves nothing.
    Failed(FabricError),
}

impl From<FabricError> for Stop {
    fn from(error: FabricError) -> Self {
        Stop::Failed(error)
    }
}

impl From<String> for Stop {
    fn from(violation: String) -> Self {
        Stop::Violation(violation)
    }
}

/// Whether a program relies on what is promised only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// It does.
    Careful,
    /// It relies on a little more.
    Careless,
}

/// How many steps a program takes where nothing else is said.
pub const STEPS: u64 = 60;

/// The programs.
pub const PROGRAMS: &[Litmus] = &[
    Litmus {
        name: "write-after-read",
        contract: "C1",
        careless: "a WRITE that follows a READ without a fence stays behind it",
        faults: &[FaultKind::Reorder],
        spared: &[],
        profile: "connectx-5",
        run: order::write_after_read,
    },
    Litmus {
        name: "write-after-atomic",
        contract: "C1",
        careless: "a WRITE that follows an FAA without a fence stays behind it",
        faults: &[FaultKind::Reorder],
        spared: &[],
        profile: "connectx-5",
        run: order::write_after_atomic,
    },
    Litmus {
        name: "atomic-after-read",
        contract: "C1",
        careless: "an FAA that follows a READ without a fence stays behind it",
        faults: &[FaultKind::Reorder],
        spared: &[],
        profile: "connectx-5",
        run: order::atomic_after_read,
    },
    Litmus {
        name: "across-queues",
        contract: "C1",
        careless: "what was posted first on one queue lands before what was posted then on another",
        faults: &[FaultKind::Delay, FaultKind::Error],
        spared: &[],
        profile: "connectx-5",
        run: order::across_queues,
    },
    Litmus {
        name: "two-words",
        contract: "C2, C3",
        careless: "two words of one READ were true at the same time",
        faults: &[FaultKind::Tear],
        spared: &[],
        profile: "cxl",
        run: tearing::two_words,
    },
    Litmus {
        name: "lines-in-order",
        contract: "C3",
        careless: "the lines of one WRITE land in ascending order",
        faults: &[FaultKind::Tear],
        spared: &[],
        profile: "connectx-5",
        run: tearing::lines_in_order,
    },
    Litmus {
        name: "completed-is-persistent",
        contract: "C4",
        careless: "a WRITE that completed survives a loss of power",
        faults: &[FaultKind::Reorder, FaultKind::Tear],
        spared: &[],
        profile: "connectx-5+pm",
        run: persistence::completed_is_persistent,
    },
    Litmus {
        name: "persistent-in-order",
        contract: "C4",
        careless: "unflushed WRITEs survive a loss of power in posted order",
        faults: &[FaultKind::Reorder, FaultKind::Tear],
        spared: &[],
        profile: "connectx-5+pm",
        run: persistence::persistent_in_order,
    },
    Litmus {
        name: "error-is-no-effect",
        contract: "C5",
        careless: "a doorbell that failed had no effect",
        faults: &[FaultKind::Error, FaultKind::Partition],
        spared: &[FaultKind::Kill, FaultKind::NodeCrash],
        profile: "connectx-5",
        run: errors::error_is_no_effect,
    },
    Litmus {
        name: "silence-is-death",
        contract: "C6",
        careless: "a client that was killed a while ago changes nothing any more",
        faults: &[FaultKind::Delay, FaultKind::Tear],
        spared: &[],
        profile: "connectx-5",
        run: errors::silence_is_death,
    },
];

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Everything random derives from it.
    pub seed: u64,
    /// How many steps the program takes.
    pub steps: u64,
    /// What strikes it; `None`: what the program needs.
    pub faults: Option<Faults>,
    /// Careful or careless.
    pub style: Style,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What went wrong, if anything did.
    pub violation: Option<String>,
    /// The error at which it gave up, if it did: then nothing is proven.
    pub gave_up: Option<FabricError>,
    /// A hash of everything that happened.
    pub digest: u64,
    /// How often each kind of fault struck.
    pub struck: std::collections::BTreeMap<&'static str, u64>,
    /// The timeline, if it was asked for.
    pub trace: Vec<String>,
}

impl Litmus {
    /// The program of that name.
    pub fn named(name: &str) -> Option<&'static Litmus> {
        PROGRAMS.iter().find(|program| program.name == name)
    }

    /// The faults that it needs to go wrong, much more often than usual.
    pub fn faults(&self) -> Faults {
        let often = |kind| match kind {
            FaultKind::Error => 50_000,
            FaultKind::Delay => 200_000,
            _ => 300_000,
        };
        self.faults
            .iter()
            .fold(Faults::none(), |faults, kind| faults.with_rate(*kind, often(*kind)))
    }

    /// Runs it in a world of its own.
    pub fn run(&self, scenario: &Scenario, trace: bool) -> Outcome {
        let profile = Profile::named(self.profile).expect("a profile of the table");
        let faults = scenario.faults.unwrap_or_else(|| self.faults());
        let faults = self.spared.iter().fold(faults, |faults, kind| faults.without(*kind));
        let sim = Sim::new(profile, scenario.seed, faults);
        if trace {
            sim.trace();
        }
        let result = (self.run)(&sim, scenario.style, scenario.steps);
        let (violation, gave_up) = match result {
            Ok(()) => (None, None),
            Err(Stop::Violation(why)) => (Some(why), None),
            Err(Stop::Failed(error)) => (None, Some(error)),
        };
        Outcome {
            violation,
            gave_up,
            digest: sim.digest(),
            struck: sim.struck(),
            trace: sim.take_trace(),
        }
    }

    /// A smaller scenario that still goes wrong, as small as simple steps lead to.
    pub fn shrink(&self, failing: &Scenario) -> Scenario {
        let goes_wrong = |scenario: &Scenario| self.run(scenario, false).violation.is_some();
        let mut smallest = failing.clone();
        loop {
            let faults = smallest.faults.unwrap_or_else(|| self.faults());
            let fewer_steps =
                [smallest.steps / 2, smallest.steps - smallest.steps / 4, smallest.steps - 1]
                    .into_iter()
                    .filter(|steps| *steps > 0 && *steps < smallest.steps)
                    .map(|steps| Scenario { steps, ..smallest.clone() });
            let fewer_faults = faults
                .kinds()
                .map(|kind| Scenario { faults: Some(faults.without(kind)), ..smallest.clone() });
            let Some(next) = fewer_steps.chain(fewer_faults).find(goes_wrong) else {
                return smallest;
            };
            smallest = next;
        }
    }
}

/// Connects again, however often it takes.
async fn reconnect(queue: &Queue) {
    while queue.reconnect().await.is_err() {}
}

impl Style {
    fn is_careful(self) -> bool {
        self == Style::Careful
    }
}
