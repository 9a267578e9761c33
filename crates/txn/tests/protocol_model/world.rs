//! A state: what is in the nodes, and where everybody is.

use crate::rules::{Broken, Scope, members};

/// Where a transaction is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Hash, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Locking,
    /// Lock CASes may be on their way, with releases behind them.
    Aborting,
    Installing,
    /// By a new configuration all is posted again; that waits for its turn to be read back, or is
    /// being read.
    ReadingBack,
    Releasing,
    Committed,
    Aborted,
    /// It is dead, or knows that it is fenced.
    Stopped,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Txn {
    pub(crate) phase: Phase,
    /// How many of the posted verbs have landed, at each node.
    pub(crate) landed: [u8; 2],
    /// The objects whose bit it has won, at each node.
    pub(crate) won: [u8; 2],
    /// What it read behind the lock.
    pub(crate) old: [u8; 2],
    /// The time in its locks, and its commit time.
    pub(crate) t: u8,
    pub(crate) w: u8,
    pub(crate) dead: bool,
    /// Somebody repairs it, dead or not.
    pub(crate) suspected: bool,
    pub(crate) fenced: bool,
    /// Its locks are nobody's.
    pub(crate) repaired: bool,
    pub(crate) reported: bool,
    /// It goes by the new configuration.
    pub(crate) moved: bool,
    /// It has posted anew for that.
    pub(crate) anew: bool,
}

/// Where a repairer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Claimed,
    ReadingRecords,
    ReadingObjects,
    Restoring,
    Releasing,
    /// All is done but to say so.
    Finishing,
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Repairer {
    pub(crate) stage: Stage,
    pub(crate) landed: [u8; 2],
    /// At each node the objects that have a record, that the transaction holds, and that are new.
    pub(crate) recorded: [u8; 2],
    pub(crate) held: [u8; 2],
    pub(crate) new: [u8; 2],
    /// At each node the objects that would be restored.
    pub(crate) undo: [u8; 2],
    /// What it has decided, if it has.
    pub(crate) committed: Option<bool>,
    /// The objects that it is at, and that it has to do after those.
    pub(crate) part: u8,
    pub(crate) rest: u8,
    pub(crate) moved: bool,
    pub(crate) dead: bool,
    pub(crate) fenced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Reading {
    #[default]
    Idle,
    /// So many objects are read.
    Between,
    /// The first of two READs is done, at a node: of the lock, or of the version.
    Half {
        node: u8,
        seen: u8,
    },
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reader {
    pub(crate) reading: Reading,
    pub(crate) snapshot: u8,
    /// The transactions that were reported before it took its snapshot.
    pub(crate) reported: u8,
    /// The versions that it found, and how many.
    pub(crate) found: [u8; 2],
    pub(crate) count: u8,
}

/// A version of which only a part was read.
pub(crate) const TORN: u8 = u8::MAX;

/// An object at a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Replica {
    /// Who has the lock, from 1 on.
    pub(crate) lock: u8,
    pub(crate) ts: u8,
    /// A WRITE is half done.
    pub(crate) torn: bool,
    /// The transactions that have a record of it here.
    pub(crate) records: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct World {
    pub(crate) clock: u8,
    /// By object, and by node; the first node is the primary.
    pub(crate) replicas: [[Replica; 2]; 2],
    pub(crate) txns: [Txn; 2],
    pub(crate) repairers: [Repairer; 2],
    pub(crate) reader: Reader,
    /// Who repairs each transaction, from 1 on.
    pub(crate) claims: [u8; 2],
    /// The node that has failed.
    pub(crate) gone: Option<u8>,
    /// The node that the newest configuration is without.
    pub(crate) removed: Option<u8>,
    /// That configuration counts.
    pub(crate) counts: bool,
    /// For each transaction, how repairs of it ended: bit 0 aborted, bit 1 committed.
    pub(crate) verdicts: [u8; 2],
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let mut world = World::default();
        for (txn, writes) in world.txns.iter_mut().zip(scope.writes) {
            if writes == 0 {
                txn.phase = Phase::Aborted;
            }
        }
        if !scope.reader {
            world.reader.reading = Reading::Done;
        }
        world
    }

    pub(crate) fn is_gone(&self, node: usize) -> bool {
        self.gone == Some(node as u8)
    }

    /// The nodes of a configuration: the old one, or the new one.
    pub(crate) fn nodes(&self, moved: bool) -> impl Iterator<Item = usize> + use<> {
        let removed = self.removed.filter(|_| moved).map(usize::from);
        (0..2).filter(move |node| Some(*node) != removed)
    }

    pub(crate) fn primary(&self, moved: bool) -> usize {
        usize::from(moved && self.removed == Some(0))
    }

    /// What is left of a session whose verbs have no effect any more. One that lives may still
    /// believe the acknowledgements that it has, and say so.
    pub(crate) fn fence(&mut self, scope: &Scope, txn: usize) {
        let all = if scope.one_thread { 0..2 } else { txn..txn + 1 };
        for txn in &mut self.txns[all] {
            txn.fenced = true;
            if !matches!(txn.phase, Phase::Committed | Phase::Aborted) {
                let may_report = matches!(txn.phase, Phase::Installing | Phase::ReadingBack);
                if txn.dead || txn.reported || !may_report {
                    txn.stop();
                }
            }
        }
    }

    /// Whether a transaction has nothing left to do.
    fn is_over(&self, txn: usize) -> bool {
        let Txn { phase, dead, fenced, repaired, .. } = self.txns[txn];
        matches!(phase, Phase::Committed | Phase::Aborted) || (dead || fenced) && repaired
    }

    /// Everybody but the reader has come to an end, and no lock is left.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = |repairer: &Repairer| {
            matches!(repairer.stage, Stage::Idle | Stage::Over) || repairer.dead
        };
        let nodes = || self.nodes(self.counts);
        (0..2).all(|txn| self.is_over(txn))
            && self.repairers.iter().all(is_idle)
            && (self.gone.is_none() && self.removed.is_none() || self.counts)
            && self.replicas.iter().all(|object| nodes().all(|node| object[node].lock == 0))
    }

    /// The transaction that a version is of.
    pub(crate) fn writer(&self, version: u8) -> Option<usize> {
        (0..2).find(|txn| version != 0 && self.txns[*txn].w == version)
    }

    /// The transactions in the history of an object.
    fn history(&self, object: usize) -> u8 {
        let node = self.nodes(self.counts).next().unwrap_or(0);
        let (mut version, mut found) = (self.replicas[object][node].ts, 0);
        while let Some(txn) = self.writer(version) {
            found |= 1 << txn;
            version = self.txns[txn].old[object];
        }
        found
    }

    /// What an end shows: both have committed, a repair has aborted, a repair has committed, the
    /// configuration has changed, somebody has read a snapshot that is older than what is there.
    pub(crate) fn sights(&self) -> [bool; 5] {
        let both = self.txns.iter().all(|txn| txn.reported);
        let ended = |bit: u8| self.verdicts.iter().any(|verdict| verdict & bit != 0);
        let reader = &self.reader;
        let late = reader.count == 2 && self.txns.iter().any(|txn| txn.w > reader.snapshot);
        [both, ended(1), ended(2), self.counts, late]
    }

    /// What does not hold in a state in which everybody is at an end.
    pub(crate) fn judge(&self, scope: &Scope) -> Option<Broken> {
        let survivor = self.nodes(self.counts).next().unwrap_or(0);
        for object in &self.replicas {
            if self.nodes(self.counts).any(|node| object[node].torn) {
                return Some(Broken::TornLeft);
            }
            if self.nodes(self.counts).any(|node| object[node].ts != object[survivor].ts) {
                return Some(Broken::ReplicasDiffer);
            }
        }
        let histories = [self.history(0), self.history(1)];
        for txn in 0..2 {
            let has = |object: usize| histories[object] & 1 << txn != 0;
            let is_in = members(scope.writes[txn]).filter(|object| has(*object)).count() as u8;
            if self.txns[txn].reported && is_in < scope.count(txn) {
                return Some(Broken::ReportedIsLost);
            }
            if is_in != 0 && is_in != scope.count(txn) {
                return Some(Broken::HalfCommitted);
            }
            let outcome = if is_in == 0 { 1 } else { 2 };
            if scope.outcomes && self.verdicts[txn] & !outcome != 0 {
                return Some(Broken::TwoOutcomes);
            }
        }
        if self.reader.count == 2 { self.judge_reader(scope, histories) } else { None }
    }

    /// A snapshot has all commits until its time, and nothing else.
    fn judge_reader(&self, scope: &Scope, histories: [u8; 2]) -> Option<Broken> {
        for (object, history) in histories.into_iter().enumerate() {
            let found = self.reader.found[object];
            if found == TORN {
                return Some(Broken::TornRead);
            }
            if self.writer(found).is_some_and(|txn| history & 1 << txn == 0) {
                return Some(Broken::DirtyRead);
            }
            let is_due =
                |txn: &usize| history & 1 << txn != 0 && self.txns[*txn].w <= self.reader.snapshot;
            let due = (0..2).filter(is_due).map(|txn| self.txns[txn].w).max().unwrap_or(0);
            if found < due {
                let is_missed =
                    |txn: usize| self.txns[txn].w > found && scope.writes[txn] & 1 << object != 0;
                let strict =
                    (0..2).any(|txn| self.reader.reported & 1 << txn != 0 && is_missed(txn));
                return Some(if strict { Broken::NotStrict } else { Broken::MissedCommit });
            }
        }
        None
    }
}

impl Txn {
    /// It does nothing any more; what it wrote can still be told from its name and its times.
    pub(crate) fn stop(&mut self) {
        (self.phase, self.landed, self.won) = (Phase::Stopped, [0; 2], [0; 2]);
    }

    /// It is over, and everything of it that nobody needs is forgotten.
    pub(crate) fn end(&mut self, phase: Phase) {
        (self.phase, self.landed, self.won, self.t) = (phase, [0; 2], [0; 2], 0);
        if phase == Phase::Aborted {
            (self.old, self.w) = ([0; 2], 0);
        }
    }
}
