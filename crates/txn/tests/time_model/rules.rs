//! The rules of time and versions, any of which can be left out.

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Rule {
    /// A snapshot is read when its time is past for certain.
    SnapshotIsPast,
    /// The commit time is taken when all locks are held.
    TimeAfterLocks,
    /// Validation begins when the commit time is past for certain.
    ValidationAfterTheWait,
    /// A commit is reported when its time is past for certain.
    ReportAfterTheWait,
    /// What is locked has changed, as far as validation is concerned.
    ValidationSeesLocks,
    /// What was only read is looked at again.
    Validation,
    /// A reader waits for a lock that is older than its snapshot.
    ReaderSeesLocks,
    /// A reader goes back to the version of its snapshot.
    OldVersions,
    /// What is locked and newer than the snapshot does not go with what was read.
    LockReadOfTheSnapshot,
    /// What may have been committed before it began is seen by whoever begins with an early snapshot.
    EarlyIsLate,
    /// Whoever reads early, and goes on with a later snapshot, has seen what that shows, too.
    EarlyIsLookedAtAgain,
    /// Where all share a version cache, each commit time is later than those that were taken before.
    TimesInOrder,
    /// There a commit time is taken when all is marked that will be written.
    MarkedBeforeItsTime,
}

impl Rule {
    pub(crate) const ALL: [Rule; 13] = [
        Rule::SnapshotIsPast,
        Rule::TimeAfterLocks,
        Rule::ValidationAfterTheWait,
        Rule::ReportAfterTheWait,
        Rule::ValidationSeesLocks,
        Rule::Validation,
        Rule::ReaderSeesLocks,
        Rule::OldVersions,
        Rule::LockReadOfTheSnapshot,
        Rule::EarlyIsLate,
        Rule::EarlyIsLookedAtAgain,
        Rule::TimesInOrder,
        Rule::MarkedBeforeItsTime,
    ];
}

impl Rule {
    /// Whether it is one of those who share a version cache.
    pub(crate) fn is_of_sharing(self) -> bool {
        matches!(self, Rule::TimesInOrder | Rule::MarkedBeforeItsTime)
    }
}
