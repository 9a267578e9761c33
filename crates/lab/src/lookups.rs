//! The addresses that a thread remembers (`ford.txt` Fig. 21).

use farside_workloads::lookups::{Learned, look_up};
use serde::Deserialize;

use crate::run::{Curve, Pace};
use crate::verdict::{Verdict, verdict};
use crate::{Experiment, run};

/// Threads that know no addresses, and look up rows of tables of several sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lookups {
    /// Rows of the tables; what is claimed is about the last one.
    pub rows: Vec<u64>,
    /// The same, if it has to be quick.
    pub quick_rows: Vec<u64>,
    /// How many rows each thread looks up.
    pub lookups: u64,
    /// How rows are drawn.
    pub draws: Vec<Draw>,
}

/// How rows are drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// In a word.
    pub name: String,
    /// By which skew.
    pub skew: f64,
    /// How many of a hundred are not known.
    pub misses: String,
    /// How many bytes they take, if that is claimed.
    #[serde(default)]
    pub bytes: Option<String>,
}

impl Lookups {
    pub(crate) fn sizes(&self, quick: bool) -> &[u64] {
        if quick { &self.quick_rows } else { &self.rows }
    }

    pub(crate) fn claim_ids(&self) -> impl Iterator<Item = String> {
        self.draws.iter().flat_map(|draw| [Some(draw.misses.clone()), draw.bytes.clone()]).flatten()
    }
}

impl Experiment {
    pub(crate) fn run_lookups(
        &self,
        lookups: &Lookups,
        pace: &Pace<'_>,
    ) -> Result<(Vec<Curve>, Vec<Verdict>), String> {
        let profile = run::named(&self.profile)?;
        let sizes = lookups.sizes(pace.quick);
        let skews: Vec<f64> = lookups.draws.iter().map(|draw| draw.skew).collect();
        let found = run::on_all_cores(sizes, |rows| {
            let found = look_up(profile, *rows, &skews, lookups.lookups, self.seed);
            (pace.tell)();
            found
        });
        let found: Vec<Vec<Learned>> =
            found.into_iter().collect::<Result<_, _>>().map_err(|failure| failure.to_string())?;
        let (mut curves, mut verdicts) = (Vec::new(), Vec::new());
        for (at, draw) in lookups.draws.iter().enumerate() {
            let of = |figure: fn(&Learned) -> f64| {
                let points = sizes.iter().zip(&found);
                points.map(|(rows, found)| (*rows as f64, figure(&found[at]))).collect::<Vec<_>>()
            };
            let curve = |y: &str, points| Curve {
                name: draw.name.clone(),
                x: "rows".into(),
                y: y.into(),
                points,
            };
            let misses = of(|learned| learned.missed_percent);
            let bytes = of(|learned| learned.bytes as f64);
            let last = |points: &[(f64, f64)]| points.last().map(|(_, figure)| *figure);
            verdicts.push(verdict(&draw.misses, last(&misses), &self.why)?);
            if let Some(claim) = &draw.bytes {
                verdicts.push(verdict(claim, last(&bytes), &self.why)?);
            }
            let megabytes = bytes.into_iter().map(|(rows, bytes)| (rows, bytes / 1e6)).collect();
            curves.extend([curve("misses in %", misses), curve("MB of addresses", megabytes)]);
        }
        Ok((curves, verdicts))
    }
}
