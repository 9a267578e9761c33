//! How transactions are made: `--protocol` and `--without`.

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use farside_txn::{Protocol, Technique};

/// A choice of `--protocol`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolArg {
    /// No verbs: the oracle.
    Reference,
    Preset(Protocol),
}

const ALL: [ProtocolArg; 9] = [
    ProtocolArg::Preset(Protocol::FARSIDE),
    ProtocolArg::Preset(Protocol::FARSIDE_LV),
    ProtocolArg::Preset(Protocol::FORD),
    ProtocolArg::Preset(Protocol::FORD_LV),
    ProtocolArg::Preset(Protocol::FORD_LV_NODE),
    ProtocolArg::Preset(Protocol::FORD_LV_SWITCH),
    ProtocolArg::Preset(Protocol::FARM),
    ProtocolArg::Preset(Protocol::DRTM_H),
    ProtocolArg::Reference,
];

impl ProtocolArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ProtocolArg::Reference => "reference",
            ProtocolArg::Preset(preset) => preset.name,
        }
    }

    pub(crate) fn is_default(self) -> bool {
        self == ProtocolArg::Preset(Protocol::FARSIDE)
    }

    /// The protocol, without some techniques; `None` is the oracle.
    pub(crate) fn protocol(self, without: &[TechniqueArg]) -> Result<Option<Protocol>> {
        let ProtocolArg::Preset(mut protocol) = self else {
            return match without.first() {
                None => Ok(None),
                Some(part) => Err(anyhow!(
                    "--without {}: the reference engine has no techniques",
                    part.0.name()
                )),
            };
        };
        for TechniqueArg(part) in without {
            let parts = Technique::ALL.into_iter();
            let has: Vec<_> = parts.filter(|it| protocol.without(*it).is_some()).collect();
            let has: Vec<_> = has.into_iter().map(Technique::name).collect();
            protocol = protocol.without(*part).ok_or_else(|| {
                let (name, has) = (part.name(), has.join(", "));
                anyhow!("--without {name}: {} has not got that; it has {has}", protocol.name)
            })?;
        }
        Ok(Some(protocol))
    }
}

impl ValueEnum for ProtocolArg {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let about = match self.name() {
            "reference" => "The in-process oracle: a map under one lock",
            "ford" => {
                "FORD: locks with the reads, all copies written at once, backups are read; no opacity, one version"
            }
            "farside-lv" => "The default, with versions compared in the compute node",
            "ford-lv" => "FORD, with versions compared in the compute node",
            "ford-lv-node" => "The same for several compute nodes: the versions are at one of them",
            "ford-lv-switch" => "The same, at a node that stands for the switch: half as far away",
            "farm" => "FaRM, one-sided: execute, lock, validate, commit backups, commit primaries",
            "drtm-h" => {
                "DrTM+H, one-sided: execute, lock and validate, commit backups, commit primaries"
            }
            _ => {
                "The default protocol: snapshots, opacity, old versions; where one process writes (--compute 1, simulated), with versions compared there"
            }
        };
        Some(PossibleValue::new(self.name()).help(about))
    }
}

/// A choice of `--without`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TechniqueArg(pub(crate) Technique);

const TECHNIQUES: [TechniqueArg; Technique::ALL.len()] = {
    let mut all = [TechniqueArg(Technique::Opacity); Technique::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = TechniqueArg(Technique::ALL[at]);
        at += 1;
    }
    all
};

impl ValueEnum for TechniqueArg {
    fn value_variants<'a>() -> &'a [Self] {
        &TECHNIQUES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let about = match self.0 {
            Technique::HitchhikedLocking => "Lock with the read; without: when all was read",
            Technique::Turns => {
                "Threads of a process wait for their turns; without: whoever finds a lock aborts"
            }
            Technique::CoalescentCommit => "Write all copies at once; without: backups first",
            Technique::ParallelUndo => {
                "Write undo records while the transaction runs; without: in a round trip of their own"
            }
            Technique::CombinedUndo => {
                "Write undo records in front of the bodies; without: in a round trip of their own"
            }
            Technique::BackupReads => "Read any copy; without: primaries only",
            Technique::SelectiveFlush => {
                "Flush backups once; without: every write, in a round trip of its own"
            }
            Technique::VersionCache => {
                "Compare versions in the compute node; without: at the copies"
            }
            Technique::AddressCache => {
                "Remember addresses of rows; without: look them up every time"
            }
            Technique::OldVersions => {
                "Keep old versions for those who read them; without: what undo needs"
            }
            Technique::Opacity => {
                "Read from one moment, also in transactions that are aborted later; without: what is newest"
            }
            Technique::EarlySnapshots => {
                "Read from a moment that is past for sure, if that is late enough; without: wait until now is"
            }
        };
        Some(PossibleValue::new(self.0.name()).help(about))
    }
}
