//! Nodes die under load: for how long there is no time, when as much is committed as before, and how much in each millisecond.

use farside_workloads::losses::{Loss, Victims, lose};
use serde::Deserialize;

use crate::Experiment;
use crate::run::{Curve, Pace, named, on_all_cores};
use crate::verdict::{Verdict, verdict};

/// Losses, several of each kind. `{case}` and `{what}` in the name of the claim are those of Table 1 of FaRMv2.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Losses {
    /// The claims.
    pub claim: String,
    /// How often.
    pub times: u64,
    /// The same, if it has to be quick.
    pub quick_times: u64,
}

/// Who dies, as the claims call it.
const CASES: [(&str, Victims); 3] = [
    ("non-cm", Victims { home: false, other: true }),
    ("cm", Victims { home: true, other: false }),
    ("cm-and-non-cm", Victims { home: true, other: true }),
];

/// What is compared, in milliseconds.
const MEASURES: [&str; 4] = ["clock-off", "clock-off-max", "recovery", "recovery-max"];

impl Losses {
    pub(crate) fn times(&self, quick: bool) -> u64 {
        if quick { self.quick_times } else { self.times }
    }

    pub(crate) fn size(&self, quick: bool) -> usize {
        CASES.len() * self.times(quick) as usize
    }

    fn id(&self, case: &str, what: &str) -> String {
        self.claim.replace("{case}", case).replace("{what}", what)
    }

    /// The claims that there are.
    pub(crate) fn claim_ids(&self) -> Vec<String> {
        let all = CASES.iter().flat_map(|(case, _)| MEASURES.map(|what| self.id(case, what)));
        all.filter(|id| crate::claims::claim(id).is_some()).collect()
    }
}

fn measured(losses: &[Loss], what: &str) -> Option<f64> {
    let millis = |loss: &Loss| match what.starts_with("clock-off") {
        true => Some(loss.clock_off.as_secs_f64() * 1e3),
        false => loss.recovery().map(|millis| millis as f64),
    };
    let all: Vec<f64> = losses.iter().map(millis).collect::<Option<_>>()?;
    match what.ends_with("-max") {
        true => all.into_iter().reduce(f64::max),
        false => Some(all.iter().sum::<f64>() / all.len().max(1) as f64),
    }
}

impl Experiment {
    pub(crate) fn run_losses(
        &self,
        losses: &Losses,
        pace: &Pace<'_>,
    ) -> Result<(Vec<Curve>, Vec<Verdict>), String> {
        let profile = named(&self.profile)?;
        let (mut curves, mut verdicts) = (Vec::new(), Vec::new());
        for (case, victims) in CASES {
            let seeds: Vec<u64> = (0..losses.times(pace.quick)).map(|it| self.seed + it).collect();
            let all = on_all_cores(&seeds, |seed| {
                let loss = lose(profile, victims, *seed);
                (pace.tell)();
                loss
            });
            let all: Vec<Loss> = all.into_iter().collect::<Result<_, _>>()?;
            for what in MEASURES {
                let id = losses.id(case, what);
                if crate::claims::claim(&id).is_some() {
                    verdicts.push(verdict(&id, measured(&all, what), &self.why)?);
                }
            }
            curves.extend(all.first().map(|loss| timeline(case, loss)));
        }
        Ok((curves, verdicts))
    }
}

/// The first of the losses, by the millisecond.
fn timeline(case: &str, loss: &Loss) -> Curve {
    let at = |(millisecond, count): (usize, &u32)| {
        (millisecond as f64 - loss.died_at as f64, f64::from(*count))
    };
    Curve {
        name: format!("{case} dies at 0"),
        x: "milliseconds".into(),
        y: "commits in a millisecond".into(),
        points: loss.commits.iter().enumerate().map(at).collect(),
    }
}
