//! Experiments: small files that say what runs, where, and what of it is compared with which claims.

use std::collections::BTreeMap;

use farside_txn::protocol::Conflicts;
use farside_txn::{OldVersions, Protocol};
use farside_workloads::load::{Kind, Shape};
use serde::Deserialize;

use crate::census::Census;
use crate::clocks::Clocks;
use crate::lookups::Lookups;
use crate::losses::Losses;
use crate::verbs::Mixed;

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// That of its claims.
    pub id: String,
    /// In a few words.
    pub title: String,
    /// What is shown, and how it was measured.
    pub about: String,
    /// The simulated hardware.
    pub profile: String,
    /// Copies of each region.
    #[serde(default = "two")]
    pub copies: u16,
    /// Machines that compute; with more than one, as many are memory nodes, as where each machine is both.
    #[serde(default = "one_machine")]
    pub machines: usize,
    /// Whether commits are flushed.
    #[serde(default)]
    pub durable: bool,
    /// Whether all primaries are at one node, as where a table has one.
    #[serde(default)]
    pub one_primary: bool,
    /// Whether transactions that are aborted are not begun again, and latencies are those of single attempts, as papers have it that say no
    /// more than that committed ones are counted.
    #[serde(default)]
    pub drops: bool,
    /// Whether threads pay for the code between verbs, too, as in figures that are about the CPU.
    #[serde(default)]
    pub code: bool,
    /// Everything random derives from it.
    #[serde(default = "one")]
    pub seed: u64,
    /// Runs of workloads.
    #[serde(default)]
    pub runs: Option<Runs>,
    /// What transactions touch.
    #[serde(default)]
    pub census: Option<Census>,
    /// How well machines know the time.
    #[serde(default)]
    pub clocks: Option<Clocks>,
    /// Addresses that threads remember.
    #[serde(default)]
    pub lookups: Option<Lookups>,
    /// Nodes that die.
    #[serde(default)]
    pub losses: Option<Losses>,
    /// WRITEs beside READs.
    #[serde(default)]
    pub mixed: Option<Mixed>,
    /// Single transactions that are looked at.
    #[serde(default)]
    pub counts: Vec<CountOf>,
    /// What of the runs is compared.
    #[serde(default)]
    pub compare: Vec<Compare>,
    /// Why a claim does not hold, by its name, or how that begins (`ford-fig23-tatp-*`).
    #[serde(default)]
    pub why: BTreeMap<String, String>,
}

fn two() -> u16 {
    2
}

fn one() -> u64 {
    1
}

fn one_machine() -> usize {
    1
}

/// Runs of workloads: each protocol on each workload is a series, each load a point.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// Which workloads, perhaps with their sizes.
    pub workloads: Vec<Work>,
    /// Presets; `ford without backup-reads` is one, too.
    pub protocols: Vec<String>,
    /// How many at once.
    pub loads: Vec<Load>,
    /// Virtual milliseconds of each.
    pub milliseconds: f64,
    /// The same, if it has to be quick.
    pub quick_milliseconds: f64,
    /// So much longer for each object of a transaction.
    #[serde(default)]
    pub microseconds_per_object: f64,
    /// What is drawn.
    pub plot: Plot,
}

/// A workload with its size.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Its name in series.
    pub name: String,
    /// Which.
    pub workload: String,
    /// Hardware, if it is another than that of the experiment.
    #[serde(default)]
    pub profile: Option<String>,
    // Sizes, as of `farside bench`.
    accounts: Option<u64>,
    subscribers: Option<u64>,
    keys: Option<u64>,
    value_size: Option<usize>,
    skew: Option<f64>,
    objects: Option<usize>,
    read_share: Option<u64>,
    mixed: Option<u64>,
}

/// How much at once.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Threads.
    pub threads: usize,
    /// Coordinators of each.
    pub coordinators: usize,
    /// Other shares of reads than the workload has.
    #[serde(default)]
    pub read_share: Option<u64>,
    /// Other numbers of objects than the workload has.
    #[serde(default)]
    pub objects: Option<usize>,
    /// Another skew than the workload has.
    #[serde(default)]
    pub skew: Option<f64>,
    /// Also if it has to be quick.
    #[serde(default)]
    pub quick: bool,
}

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plot {
    /// The median latency over the throughput.
    ThroughputLatency,
    /// The throughput over the share of reads.
    ReadShare,
    /// The throughput over the objects of a transaction.
    Objects,
    /// The throughput over the coordinators of a thread.
    Coordinators,
    /// The throughput over the skew.
    Skew,
    /// Rows that are read in a second over those of a transaction.
    Rows,
    /// The best throughput of each protocol.
    Bars,
}

/// Something that is counted in a single transaction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountOf {
    /// The claim.
    pub claim: String,
    /// A preset.
    pub protocol: String,
    /// Rows that it writes.
    #[serde(default)]
    pub updates: usize,
    /// Rows that it only reads.
    #[serde(default)]
    pub reads: usize,
    /// What: `round-trips`, `lock-phases`, or a phase and its verbs, `execute.cas`; several are added.
    pub what: Vec<String>,
    /// It is of so many.
    #[serde(default = "one_of")]
    pub of: f64,
    /// So many are not meant.
    #[serde(default)]
    pub less: f64,
    /// Hardware, if it is another.
    #[serde(default)]
    pub profile: Option<String>,
    /// Whether its commit is flushed.
    #[serde(default)]
    pub durable: bool,
}

fn one_of() -> f64 {
    1.0
}

/// What is compared with claims: for every workload and every pair. `{workload}`, `{of}` and `{to}` in the name of the claim are theirs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The claim.
    pub claim: String,
    /// Of which workloads, by their names in series.
    pub workloads: Vec<String>,
    /// Which protocols: this one to that one.
    pub pairs: Vec<(String, String)>,
    /// What of it.
    pub metric: Metric,
    /// How.
    pub how: How,
    /// Where in the series.
    pub at: At,
    /// With [`At::Objects`]: for how many of them, and for how many those that they are compared with.
    #[serde(default)]
    pub objects: Option<(usize, usize)>,
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Committed transactions in a second.
    Throughput,
    /// The median latency.
    P50,
    /// The latency that one of a hundred exceeds.
    P99,
    /// For how long locks are held, on the average.
    LockTime,
    /// Of a hundred, the time that is spent with waiting for what is about to be committed.
    WaitShare,
    /// Rows that are read in a second by those who read many.
    Rows,
    /// The mean latency of those who read many.
    ReadLatency,
}

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// One over the other.
    Ratio,
    /// By how many of a hundred one is more.
    Gain,
    /// By how many of a hundred one is less.
    Reduction,
    /// The first alone.
    Value,
}

/// Where in series values are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// Each at the load where its throughput is best.
    Peak,
    /// At the load where the comparison is best.
    Best,
    /// At the load where it is worst.
    Worst,
    /// At the last load.
    Last,
    /// On the average over all loads.
    Mean,
    /// The one at its best, the other at the first load.
    PeakOverFirst,
    /// The first load over the last.
    FirstOverLast,
    /// At the first load.
    First,
    /// At the largest load at which no hardware is short by any protocol: what is compared then is how they go about it, and not
    /// what a NIC can do.
    Unsaturated,
    /// So many coordinators of a thread as it needs to come within a few of a hundred of its best, and one that polls.
    CoordinatorsAtPeak,
    /// At certain numbers of objects.
    Objects,
    /// The largest number of objects at which it is not much worse than with fewer.
    Knee,
}

impl Work {
    /// Its kind.
    pub fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == self.workload)
    }

    /// Its size under a load.
    pub fn shape(&self, load: &Load) -> Shape {
        Shape {
            keys: self.keys,
            value_size: self.value_size,
            skew: load.skew.or(self.skew),
            read_share: load.read_share.or(self.read_share),
            mixed: self.mixed,
            objects: load.objects.or(self.objects),
            accounts: self.accounts,
            subscribers: self.subscribers,
            threads: load.threads as u64,
        }
    }
}

/// A protocol by its name, perhaps without some techniques; or one that waits for locks (`ford waiting`), and what becomes of old versions
/// for which there is no room (`farside aborting`, `farside truncating`).
pub fn protocol(text: &str) -> Option<(Protocol, OldVersions)> {
    let (text, manner) = match text.split_once(' ') {
        Some((text, manner @ ("waiting" | "aborting" | "truncating"))) => (text, manner),
        _ => (text, ""),
    };
    let mut protocol = Protocol::spelled(&text.replace(" without ", "-without-"))?;
    if manner == "waiting" {
        protocol.conflicts = Conflicts::Wait;
    }
    let old_versions = match manner {
        "aborting" => OldVersions::Abort,
        "truncating" => OldVersions::Truncate,
        _ => OldVersions::Block,
    };
    Some((protocol, old_versions))
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../experiments/", $name, ".toml")))),*]
    };
}

/// All experiments, in the order of the papers.
pub fn all() -> Vec<Experiment> {
    let files = files![
        "ford-fig2",
        "ford-fig3",
        "ford-fig5",
        "ford-fig6",
        "ford-fig8",
        "ford-fig9",
        "ford-fig10",
        "ford-fig14",
        "ford-fig15",
        "ford-table2",
        "ford-table3",
        "ford-table4",
        "ford-fig16",
        "ford-fig17",
        "ford-fig18",
        "ford-fig19",
        "ford-fig20",
        "ford-fig21",
        "ford-fig22",
        "ford-fig23",
        "farmv2-fig14",
        "farmv2-fig15",
        "farmv2-fig16",
        "farmv2-fig17",
        "farmv2-table1",
        "factors",
        "presets"
    ];
    let parse = |(name, text): (&str, &str)| -> Experiment {
        toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    files.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use farside_txn::Technique;

    use super::*;
    use crate::claims::claim;

    #[test]
    fn every_experiment_is_about_claims_that_exist() {
        for experiment in all() {
            for id in experiment.claim_ids() {
                let claim =
                    claim(&id).unwrap_or_else(|| panic!("{}: no claim {id}", experiment.id));
                assert_eq!(claim.experiment, experiment.id);
            }
            assert!(farside_sim::Profile::named(&experiment.profile).is_some());
            let runs = experiment.runs.iter();
            let protocols = runs.clone().flat_map(|runs| &runs.protocols);
            for name in protocols.chain(experiment.counts.iter().map(|count| &count.protocol)) {
                assert!(protocol(name).is_some(), "{}: {name}", experiment.id);
            }
            for runs in runs {
                assert!(runs.workloads.iter().all(|work| work.kind().is_some()));
                assert!(runs.loads.iter().any(|load| load.quick), "{}", experiment.id);
            }
        }
    }

    #[test]
    fn protocols_are_named_with_what_they_lack() {
        let of = |text| protocol(text).map(|(protocol, _)| protocol);
        assert_eq!(of("ford"), Some(Protocol::FORD));
        let without = Protocol::FORD.without(Technique::BackupReads);
        assert_eq!(of("ford without backup-reads"), without);
        assert_eq!(protocol("farside aborting"), Some((Protocol::FARSIDE, OldVersions::Abort)));
        assert_eq!(protocol("ford without luck"), None);
        assert_eq!(protocol("farm without hitchhiked-locking"), None);
    }
}
