//! What may happen in a search, what may be left out of the protocol, and what must hold.

use std::fmt;

/// A rule of the protocol that is left out, to see what it is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A repairer does not fence the session that it repairs.
    FenceFirst,
    /// Two repairers may be at the same session.
    ExclusiveClaim,
    /// A repairer restores and releases one object after the other.
    RestoreAllFirst,
    /// A record does not say how many objects its transaction writes.
    RecordWithN,
    /// A transaction that has lost one of its locks is taken for committed.
    DecideByTime,
    /// The commit time is taken when the primaries' bits are held.
    TimeAfterAllBits,
    /// A backup's bit is taken from whoever has it.
    NeverSteal,
    /// An abort writes 0 to every lock that it asked for.
    ReleaseOwnOnly,
    /// Locks are given back in the doorbell that installs.
    ReleaseAfterAcks,
    /// A commit is reported when the primary has it.
    ReportAfterAcks,
    /// The next transaction of a thread writes its records over those of one that is being
    /// released.
    ReuseAfterReleases,
    /// A reader takes what is locked.
    ReaderWaits,
    /// A reader looks at the lock after the object.
    LockReadFirst,
    /// A repairer decides although no lock of the transaction is left.
    NothingLeftToDecide,
    /// After a change of the configuration nothing is posted again and nothing is read back.
    ReadBack,
    /// A transaction locks, and takes its time, by a configuration that does not count yet.
    TimeWhenItCounts,
    /// A commit on fewer replicas is read back and reported before that configuration counts.
    ReportWhenItCounts,
    /// A transaction without all its locks goes on by the new configuration.
    AbortOnPromotion,
    /// A configuration counts while somebody repairs by the older one.
    CountsAfterRepairs,
    /// Locks of the dead are cleared also at nodes that the repair left out.
    OrphansWhereRepaired,
    /// A reader takes what is torn.
    ReadWhole,
    /// A repairer takes what is torn for installed.
    DecideByWhole,
    /// A repairer restores only where it finds the new time.
    RestoreWhateverIsThere,
}

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// (1) A transaction that was reported is not in the history of one of its objects.
    ReportedIsLost,
    /// (2) A transaction is in the history of some of its objects only.
    HalfCommitted,
    /// (2) Two repairs ended with different outcomes, or with another than the objects show.
    TwoOutcomes,
    /// (3) Replicas differ.
    ReplicasDiffer,
    /// (3) Something is torn.
    TornLeft,
    /// (3, 5) A state that nobody gets out of, and somebody is not done or a lock is left.
    Stuck,
    /// (4) A reader has a version of a transaction that is aborted in the end.
    DirtyRead,
    /// (4) A reader has what was torn.
    TornRead,
    /// (4) A reader missed a commit that is in its snapshot.
    MissedCommit,
    /// (4) A reader missed a commit that was reported before it began.
    NotStrict,
}

/// What may happen in a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    /// The objects that each transaction writes, as a mask; none: there is no such transaction.
    pub(crate) writes: [u8; 2],
    /// Both transactions are of one thread, the second after the first, with records in the same
    /// places.
    pub(crate) one_thread: bool,
    /// May die anywhere.
    pub(crate) dies: [bool; 2],
    /// May be taken for dead while it lives.
    pub(crate) suspected: [bool; 2],
    /// Whom each repairer repairs.
    pub(crate) repairs: [Option<usize>; 2],
    /// The first repairer may die anywhere.
    pub(crate) repairer_dies: bool,
    pub(crate) reader: bool,
    /// A node may fail.
    pub(crate) fails: bool,
    /// A node may be removed that lives and serves whoever does not know of that.
    pub(crate) removed: bool,
    /// Queues may break: what was on its way is lost, or only its acknowledgement, and is posted
    /// again.
    pub(crate) breaks: bool,
    /// A WRITE of an object may be half done.
    pub(crate) tears: bool,
    /// Repairers go by the newest configuration there is when they have fenced, whether it counts
    /// or not; and nobody waits for that before it reads back.
    pub(crate) newest: bool,
    /// What repairers say is compared, and not only what they do.
    pub(crate) outcomes: bool,
    /// The rule that is left out.
    pub(crate) without: Option<Rule>,
}

/// A world in which everybody lives and there is nobody else.
pub(crate) const CALM: Scope = Scope {
    name: "calm",
    writes: [XY, XY],
    one_thread: false,
    dies: [false; 2],
    suspected: [false; 2],
    repairs: [None; 2],
    repairer_dies: false,
    reader: false,
    fails: false,
    removed: false,
    breaks: false,
    tears: false,
    newest: false,
    outcomes: true,
    without: None,
};

/// Both objects, or one of them.
pub(crate) const XY: u8 = 3;
pub(crate) const ONLY_X: u8 = 1;
pub(crate) const ONLY_Y: u8 = 2;

impl Scope {
    /// Whether a rule holds.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    pub(crate) fn without(self, rule: Rule) -> Self {
        Scope { without: Some(rule), ..self }
    }

    /// The objects of a transaction, in the order in which it posts.
    pub(crate) fn objects(&self, txn: usize) -> impl Iterator<Item = usize> + use<> {
        members(self.writes[txn])
    }

    pub(crate) fn count(&self, txn: usize) -> u8 {
        self.writes[txn].count_ones() as u8
    }
}

/// The objects in a mask.
pub(crate) fn members(mask: u8) -> impl Iterator<Item = usize> {
    (0..2).filter(move |object| mask & 1 << object != 0)
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::ReportedIsLost => "(1) a reported commit is lost",
            Broken::HalfCommitted => "(2) half of a transaction is there",
            Broken::TwoOutcomes => "(2) two outcomes of one transaction",
            Broken::ReplicasDiffer => "(3) replicas differ",
            Broken::TornLeft => "(3) something is torn",
            Broken::Stuck => "(3, 5) somebody is stuck, or a lock is left",
            Broken::DirtyRead => "(4) a reader has what was aborted",
            Broken::TornRead => "(4) a reader has what was torn",
            Broken::MissedCommit => "(4) a reader missed a part of its snapshot",
            Broken::NotStrict => "(4) a reader missed what was reported before it began",
        })
    }
}
