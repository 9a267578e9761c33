//! Protocols: which technique is used in each phase of a transaction (`drtmx.txt` §4.1). The phases are the same code
//! for all of them; a preset is a choice for each, in a file of its own that says what its paper says.
//!
//! | phase | choices |
//! | --- | --- |
//! | execute | reads from any copy, or from primaries; lock at once ([`Locking::Hitchhiked`]), or later |
//! | lock | [`Locking`], [`Conflicts`] |
//! | validate | at any copy, in the memory of the compute node, or at a node near to it ([`Versions`]) |
//! | log | [`Undo`] |
//! | commit | [`Copies`], [`Flush`] |
//! | release | in the background |
//!
//! What is the same for all, because without it a protocol would not be sound here: locks are taken on every copy (a copy
//! that becomes the primary has them, whoever died), validation looks at locks, repair decides by what is on all
//! copies. All sessions of a pool have to follow the same one.

mod drtm_h;
mod farm;
mod farside;
mod ford;

/// When locks are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locking {
    /// With the read, in one doorbell (`ford.txt` §4.2).
    Hitchhiked,
    /// When all was read, with a look at the version behind each (`drtmx.txt` §4.3.2).
    WithValidation,
    /// When all was read; versions are looked at when all locks are held.
    BeforeValidation,
}

/// What is done about a lock that somebody else has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflicts {
    /// Threads of a process wait for their turns, and then a few times more.
    Queue,
    /// The transaction is aborted.
    Abort,
    /// It is asked for again until it is free (`ford.txt` §6.2.1).
    Wait,
}

/// When undo records are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undo {
    /// In front of each body, in the same doorbell (`sherman.txt` §4.5).
    Combined,
    /// As soon as the old version is known, while the transaction goes on (`ford.txt` §4.3.1).
    Parallel,
    /// In a round trip of their own.
    Ahead,
}

/// In which order copies are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// All at once (`ford.txt` §4.3).
    Together,
    /// The primaries when all backups have it.
    BackupsFirst,
}

/// What is flushed, where commits are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// Every node that was written to, once, behind the last write.
    Nodes,
    /// The same, backups only (`ford.txt` §4.5). What was committed survives as long as one copy of it does not lose its power.
    Backups,
    /// Every write, in a round trip behind them.
    Writes,
}

/// Where versions are compared (`ford.txt` §4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Versions {
    /// At the copies.
    Copies,
    /// In the memory of the process, which is the only one that writes.
    Process,
    /// The same where it is known to be the only one; elsewhere at the copies.
    ProcessIfAlone,
    /// At a node of the compute pool, for all processes.
    Node,
    /// At the switch before the compute pool: a node that stands for it.
    Switch,
}

impl Versions {
    /// Whether a node has them.
    #[inline]
    pub fn are_at_a_node(self) -> bool {
        matches!(self, Versions::Node | Versions::Switch)
    }
}

/// A choice for each phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// What it is called.
    pub name: &'static str,
    /// When locks are taken.
    pub locking: Locking,
    /// What is done about one that somebody else has.
    pub conflicts: Conflicts,
    /// When undo records are written.
    pub undo: Undo,
    /// In which order copies are written.
    pub copies: Copies,
    /// What is flushed.
    pub flush: Flush,
    /// Whether also one object that was read alone is looked at again: it is of one moment anyhow, but published
    /// protocols do so (`ford.txt` §4.6).
    pub looks_twice: bool,
    /// Whether any copy is read, or primaries only.
    pub backup_reads: bool,
    /// Where versions are compared, as far as they are known there.
    pub versions: Versions,
    /// Whether addresses of rows are remembered.
    pub address_cache: bool,
    /// Whether old versions are kept for those who read them.
    pub old_versions: bool,
    /// Whether all that a transaction reads is of one moment, also if it is aborted later. Without, it reads what is newest, and
    /// looks again when it commits.
    pub opacity: bool,
    /// Whether whoever only reads begins with a moment that is past, and looks whether that is late enough.
    pub early_snapshots: bool,
}

impl Protocol {
    /// The default.
    pub const FARSIDE: Protocol = farside::FARSIDE;
    /// The same with a version cache.
    pub const FARSIDE_LV: Protocol = farside::FARSIDE_LV;
    /// FORD.
    pub const FORD: Protocol = ford::FORD;
    /// FORD with localized validation.
    pub const FORD_LV: Protocol = ford::FORD_LV;
    /// The same for several compute nodes: the versions are at one of them.
    pub const FORD_LV_NODE: Protocol = ford::FORD_LV_NODE;
    /// The same with a node that stands for the switch.
    pub const FORD_LV_SWITCH: Protocol = ford::FORD_LV_SWITCH;
    /// FaRM, one-sided.
    pub const FARM: Protocol = farm::FARM;
    /// DrTM+H, one-sided.
    pub const DRTM_H: Protocol = drtm_h::DRTM_H;

    /// Those that have names.
    pub const PRESETS: [Protocol; 8] = [
        Self::FARSIDE,
        Self::FARSIDE_LV,
        Self::FORD,
        Self::FORD_LV,
        Self::FORD_LV_NODE,
        Self::FORD_LV_SWITCH,
        Self::FARM,
        Self::DRTM_H,
    ];

    /// One by its name.
    pub fn named(name: &str) -> Option<Protocol> {
        Self::PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// One by its name, perhaps without techniques that it has: `ford-without-backup-reads`.
    pub fn spelled(text: &str) -> Option<Protocol> {
        let mut parts = text.split("-without-");
        let preset = Self::named(parts.next()?)?;
        parts.try_fold(preset, |protocol, part| protocol.without(Technique::named(part)?))
    }

    /// The same without a technique; `None` if it has not got that.
    pub fn without(mut self, technique: Technique) -> Option<Protocol> {
        let before = self;
        match technique {
            Technique::HitchhikedLocking if self.locking == Locking::Hitchhiked => {
                self.locking = Locking::BeforeValidation;
                // The old version may change until it is locked.
                self.undo = if self.undo == Undo::Parallel { Undo::Combined } else { self.undo };
            }
            Technique::Turns if self.conflicts == Conflicts::Queue => {
                self.conflicts = Conflicts::Abort;
            }
            Technique::CoalescentCommit => self.copies = Copies::BackupsFirst,
            Technique::ParallelUndo if self.undo == Undo::Parallel => self.undo = Undo::Ahead,
            Technique::CombinedUndo if self.undo == Undo::Combined => self.undo = Undo::Ahead,
            Technique::BackupReads => self.backup_reads = false,
            Technique::SelectiveFlush if self.flush == Flush::Backups => self.flush = Flush::Writes,
            Technique::VersionCache => self.versions = Versions::Copies,
            Technique::AddressCache => self.address_cache = false,
            Technique::OldVersions => (self.old_versions, self.early_snapshots) = (false, false),
            Technique::Opacity => (self.opacity, self.early_snapshots) = (false, false),
            Technique::EarlySnapshots => self.early_snapshots = false,
            _ => {}
        }
        (self != before).then_some(self)
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self::FARSIDE
    }
}

/// Something that a protocol can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Technique {
    /// What will be written is locked with the read.
    HitchhikedLocking,
    /// Threads of a process wait for their turns, instead of being aborted.
    Turns,
    /// All copies are written at once.
    CoalescentCommit,
    /// Undo records are written while the transaction goes on.
    ParallelUndo,
    /// Undo records are written in front of the bodies, in the same doorbell.
    CombinedUndo,
    /// Backups are read.
    BackupReads,
    /// Only backups are flushed, once.
    SelectiveFlush,
    /// Versions are compared in the memory of the compute node, or near to it.
    VersionCache,
    /// Addresses of rows are remembered.
    AddressCache,
    /// Old versions are kept for those who read them.
    OldVersions,
    /// All that is read is of one moment, also in transactions that are aborted later.
    Opacity,
    /// Whoever only reads begins with a moment that is past, and looks whether that is late enough.
    EarlySnapshots,
}

impl Technique {
    /// All of them.
    pub const ALL: [Technique; 12] = [
        Technique::HitchhikedLocking,
        Technique::Turns,
        Technique::CoalescentCommit,
        Technique::ParallelUndo,
        Technique::CombinedUndo,
        Technique::BackupReads,
        Technique::SelectiveFlush,
        Technique::VersionCache,
        Technique::AddressCache,
        Technique::OldVersions,
        Technique::Opacity,
        Technique::EarlySnapshots,
    ];

    /// One by its name.
    pub fn named(name: &str) -> Option<Technique> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Technique::HitchhikedLocking => "hitchhiked-locking",
            Technique::Turns => "turns",
            Technique::CoalescentCommit => "coalescent-commit",
            Technique::ParallelUndo => "parallel-undo",
            Technique::CombinedUndo => "combined-undo",
            Technique::BackupReads => "backup-reads",
            Technique::SelectiveFlush => "selective-flush",
            Technique::VersionCache => "version-cache",
            Technique::AddressCache => "address-cache",
            Technique::OldVersions => "old-versions",
            Technique::Opacity => "opacity",
            Technique::EarlySnapshots => "early-snapshots",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_name() {
        for preset in Protocol::PRESETS {
            assert_eq!(Protocol::named(preset.name), Some(preset));
        }
        assert_eq!(Protocol::named("paxos"), None);
    }

    #[test]
    fn a_technique_is_left_out_once() {
        for preset in Protocol::PRESETS {
            for technique in Technique::ALL {
                let Some(less) = preset.without(technique) else { continue };
                assert_ne!(less, preset);
                assert_eq!(
                    less.without(technique),
                    None,
                    "{} of {}",
                    technique.name(),
                    preset.name
                );
            }
        }
        assert_eq!(Protocol::FARM.without(Technique::HitchhikedLocking), None);
    }
}
