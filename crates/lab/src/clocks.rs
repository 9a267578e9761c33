//! How well machines know the time, for few and for many.

use farside_workloads::clocks::mean_uncertainty;
use serde::Deserialize;

use crate::run::{Curve, Pace};
use crate::verdict::{Verdict, verdict};
use crate::{Experiment, run};

/// Machines that ask for the time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// How many.
    pub machines: Vec<u64>,
    /// The same, if it has to be quick.
    pub quick_machines: Vec<u64>,
    /// What is compared.
    pub claims: Vec<ClockClaim>,
}

/// How uncertain so many machines are, in microseconds; or how much more than so many others, in percent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockClaim {
    /// The claim.
    pub claim: String,
    /// How many machines.
    pub at: u64,
    /// The others.
    #[serde(default)]
    pub over: Option<u64>,
}

impl Clocks {
    pub(crate) fn sizes(&self, quick: bool) -> &[u64] {
        if quick { &self.quick_machines } else { &self.machines }
    }
}

impl Experiment {
    pub(crate) fn run_clocks(
        &self,
        clocks: &Clocks,
        pace: &Pace<'_>,
    ) -> Result<(Vec<Curve>, Vec<Verdict>), String> {
        let profile = run::named(&self.profile)?;
        let sizes = clocks.sizes(pace.quick);
        let found = run::on_all_cores(sizes, |machines| {
            let uncertainty = mean_uncertainty(profile, *machines, self.seed);
            (pace.tell)();
            (*machines as f64, uncertainty.as_secs_f64() * 1e6)
        });
        let of = |machines: u64| {
            let found = found.iter().find(|(size, _)| *size == machines as f64);
            found.map(|(_, microseconds)| *microseconds)
        };
        let judge = |it: &ClockClaim| {
            let value = match it.over {
                None => of(it.at),
                Some(over) => of(it.at).zip(of(over)).map(|(at, over)| 100.0 * (at / over - 1.0)),
            };
            verdict(&it.claim, value, &self.why)
        };
        let verdicts = clocks.claims.iter().map(judge).collect::<Result<_, _>>()?;
        let curve = Curve {
            name: "mean uncertainty".into(),
            x: "machines".into(),
            y: "mean uncertainty in µs".into(),
            points: found,
        };
        Ok((vec![curve], verdicts))
    }
}
