//! What was measured beside what was claimed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::claims::{Relation, all, claim};
use crate::experiment::{At, Compare, Experiment, How, Metric};
use crate::lookups::Lookups;
use crate::losses::Losses;
use crate::run::{Point, Series};

/// A claim, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Its name.
    pub id: String,
    /// In words.
    pub what: String,
    /// The figure of the paper.
    pub expected: f64,
    /// How it is compared.
    pub relation: Relation,
    /// How far it may be missed.
    pub tolerance: f64,
    /// What was measured.
    pub measured: Option<f64>,
    /// Whether it holds.
    pub holds: bool,
    /// Why not, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

pub(crate) fn verdict(
    id: &str,
    measured: Option<f64>,
    why: &BTreeMap<String, String>,
) -> Result<Verdict, String> {
    let claim = claim(id).ok_or_else(|| format!("no claim {id}"))?;
    let holds = measured.and_then(|measured| claim.holds(measured)).unwrap_or(false);
    // `ford-fig23-*-throughput` is about all of them.
    let is_about = |name: &str| {
        let pattern = name.split_once('*');
        pattern.map_or(name == id, |(begin, end)| id.starts_with(begin) && id.ends_with(end))
    };
    let reason = why.iter().find(|(name, _)| !holds && is_about(name));
    let why = reason.map(|(_, reason)| reason.clone());
    let (id, what) = (claim.id.clone(), claim.what.clone());
    let (expected, relation, tolerance) = (claim.expected, claim.relation, claim.tolerance);
    Ok(Verdict { id, what, expected, relation, tolerance, measured, holds, why })
}

impl Compare {
    /// Each claim that it is about, with the workload and the pair.
    fn cases(&self) -> impl Iterator<Item = (String, &str, &str, &str)> {
        self.workloads.iter().flat_map(move |workload| {
            self.pairs.iter().map(move |(of, to)| {
                // As the claims spell it.
                let short = |name: &str| name.replace("drtm-h", "drtmh").replace(" waiting", "");
                let id = self.claim.replace("{workload}", workload);
                let id = id.replace("{of}", &short(of)).replace("{to}", &short(to));
                (id, workload.as_str(), of.as_str(), to.as_str())
            })
        })
    }
}

impl Experiment {
    /// The claims that it is about.
    pub fn claim_ids(&self) -> Vec<String> {
        let counts = self.counts.iter().map(|count| count.claim.clone());
        let compared = self.compare.iter().flat_map(|rule| rule.cases().map(|(id, ..)| id));
        let clocks = self.clocks.iter().flat_map(|it| it.claims.iter().map(|it| it.claim.clone()));
        let losses = self.losses.iter().flat_map(Losses::claim_ids);
        let lookups = self.lookups.iter().flat_map(Lookups::claim_ids);
        let mixed = self.mixed.iter().map(|mixed| mixed.claim.clone());
        let census = self.census.iter().flat_map(|_| {
            let ours =
                all().filter(|it| it.experiment == self.id && it.relation != Relation::Parameter);
            ours.map(|claim| claim.id.clone())
        });
        let all = counts.chain(compared).chain(clocks).chain(lookups).chain(losses);
        let all = all.chain(mixed).chain(census);
        let mut all: Vec<String> = all.collect();
        all.dedup();
        all
    }
}

pub(crate) fn compare(
    rule: &Compare,
    series: &[Series],
    why: &BTreeMap<String, String>,
) -> Result<Vec<Verdict>, String> {
    let find = |workload: &str, protocol: &str| {
        let found = series.iter().find(|it| it.workload == workload && it.protocol == protocol);
        found.map(|it| &it.points[..]).ok_or_else(|| format!("no series {workload} {protocol}"))
    };
    let judge = |(id, workload, of, to): (String, &str, &str, &str)| {
        let unsaturated = unsaturated(series.iter().filter(|it| it.workload == workload));
        let measured = rule.measured(find(workload, of)?, find(workload, to)?, unsaturated);
        verdict(&id, measured, why)
    };
    let mut all: Vec<Verdict> = Vec::new();
    for judged in rule.cases().map(judge) {
        let judged = judged?;
        // Of several cases of one claim, one that does not hold decides.
        match all.iter_mut().find(|other| other.id == judged.id) {
            None => all.push(judged),
            Some(other) if other.holds => *other = judged,
            Some(_) => {}
        }
    }
    Ok(all)
}

impl Compare {
    fn measured(&self, of: &[Point], to: &[Point], unsaturated: Option<usize>) -> Option<f64> {
        let value = |point: &Point| match self.metric {
            Metric::Throughput => point.throughput_tps,
            Metric::P50 => point.p50_us,
            Metric::P99 => point.p99_us,
            Metric::LockTime => point.lock_us,
            Metric::WaitShare => point.wait_percent,
            Metric::Rows => point.rows.map_or(f64::NAN, |rows| rows.per_second),
            Metric::ReadLatency => point.rows.map_or(f64::NAN, |rows| rows.mean_us),
        };
        let compared = |of: &Point, to: &Point| match self.how {
            How::Ratio => value(of) / value(to),
            How::Gain => 100.0 * (value(of) / value(to) - 1.0),
            How::Reduction => 100.0 * (1.0 - value(of) / value(to)),
            How::Value => value(of),
        };
        let each = || of.iter().zip(to).map(|(of, to)| compared(of, to));
        match self.at {
            At::Peak => Some(compared(peak(of)?, peak(to)?)),
            At::PeakOverFirst => Some(compared(peak(of)?, to.first()?)),
            At::Best => each().reduce(f64::max),
            At::Worst => each().reduce(f64::min),
            At::First => Some(compared(of.first()?, to.first()?)),
            At::FirstOverLast => Some(compared(of.first()?, to.last()?)),
            At::Objects => {
                let (ours, theirs) = self.objects?;
                Some(compared(with_objects(of, ours)?, with_objects(to, theirs)?))
            }
            At::Knee => knee(of, value),
            At::Unsaturated => Some(compared(of.get(unsaturated?)?, to.get(unsaturated?)?)),
            At::CoordinatorsAtPeak => coordinators_at_peak(of),
            At::Last => Some(compared(of.last()?, to.last()?)),
            At::Mean => Some(each().sum::<f64>() / of.len().max(1) as f64),
        }
    }
}

/// The number of the last load that keeps nothing busy for more than four fifths of the time, whatever the protocol.
fn unsaturated<'s>(series: impl Iterator<Item = &'s Series>) -> Option<usize> {
    const SHORT: f64 = 0.8;
    let is_free = |point: &Point| point.busy.most() < SHORT;
    series
        .map(|it| it.points.iter().take_while(|point| is_free(point)).count())
        .min()?
        .checked_sub(1)
}

/// Coordinators of a thread from which on more of them make no more than a twentieth of difference; and the coroutine that
/// polls in the paper.
fn coordinators_at_peak(points: &[Point]) -> Option<f64> {
    let enough = peak(points)?.throughput_tps * 0.95;
    let first = points.iter().find(|point| point.throughput_tps >= enough)?;
    Some(first.coordinators as f64 + 1.0)
}

fn with_objects(points: &[Point], objects: usize) -> Option<&Point> {
    points.iter().find(|point| point.objects == Some(objects))
}

/// Up to how many objects it is within a fifth of the best before.
fn knee(points: &[Point], value: impl Fn(&Point) -> f64) -> Option<f64> {
    let mut best: f64 = 0.0;
    let holds = points.iter().take_while(|point| {
        let holds = value(point) >= 0.8 * best;
        best = best.max(value(point));
        holds
    });
    holds.last()?.objects.map(|objects| objects as f64)
}

fn peak(points: &[Point]) -> Option<&Point> {
    points.iter().max_by(|one, two| one.throughput_tps.total_cmp(&two.throughput_tps))
}
