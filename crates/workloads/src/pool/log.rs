//! What happened, in true time, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

use farside_pool::{Config, Replica};

/// A write that its session believed in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Believed {
    pub(super) region: u16,
    /// The configuration by which it was posted.
    pub(super) epoch: u64,
    /// The primary it went to.
    pub(super) node: u16,
    pub(super) posted_ns: u64,
    pub(super) completed_ns: u64,
}

/// The log of a run.
#[derive(Default)]
pub(super) struct Log {
    pub(super) writes: Vec<Believed>,
    /// Every configuration that was ever in the store.
    pub(super) configs: BTreeMap<u64, Config>,
    /// A last copy that was given up, though its node may have been there.
    pub(super) given_up: Option<String>,
}

impl Log {
    /// Notes a configuration; `lives` are those of the machines at this time.
    pub(super) fn note(&mut self, config: Config, lives: &BTreeSet<u64>) {
        if self.configs.contains_key(&config.epoch) {
            return;
        }
        if let Some(before) = self.configs.values().next_back() {
            for (was, is) in before.regions.iter().zip(&config.regions) {
                let lived = |replica: &Replica| {
                    before.node(replica.node).is_some_and(|node| lives.contains(&node.incarnation))
                };
                if is.replicas.is_empty() && was.replicas.iter().any(lived) {
                    let region = was.id;
                    self.given_up =
                        Some(format!("region {region} was given up on suspicion: {before:?}"));
                }
            }
        }
        self.configs.insert(config.epoch, config);
    }

    /// Never two primaries: whoever believes in a write to one primary has its completion before the
    /// first write to the next is posted.
    pub(super) fn check_primaries(&self) -> Result<(), String> {
        let mut regions: BTreeMap<u16, Vec<Believed>> = BTreeMap::new();
        for write in &self.writes {
            regions.entry(write.region).or_default().push(*write);
        }
        for (region, mut writes) in regions {
            writes.sort_by_key(|write| (write.epoch, write.posted_ns));
            // The latest completion among all writes of earlier configurations, by node.
            let mut latest: BTreeMap<u16, Believed> = BTreeMap::new();
            for write in writes {
                let clash = latest.values().find(|earlier| {
                    earlier.node != write.node && earlier.completed_ns > write.posted_ns
                });
                if let Some(earlier) = clash {
                    return Err(format!(
                        "region {region} had two primaries: {earlier:?} and {write:?}"
                    ));
                }
                let known = latest.entry(write.node).or_insert(write);
                if known.completed_ns < write.completed_ns {
                    *known = write;
                }
            }
        }
        Ok(())
    }
}
