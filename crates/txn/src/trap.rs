//! Rules that can be left out, to see what each is good for.

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trap {
    /// Validation does not look at locks.
    ValidationIgnoresLocks,
    /// The commit time is taken when the primaries are held, and the other bits are not waited for.
    TimeBeforeAllBits,
    /// The commit time may be that of the lock.
    TimeOfTheLock,
    /// A lock-read that is newer than the snapshot is used.
    NewLockRead,
    /// The read behind a lock that was lost is used: the transaction goes on without the lock.
    ReadOfALostLock,
    /// An abort writes 0 to locks, whoever holds them.
    AbortClearsAll,
    /// A backup's bit is taken from whoever has it.
    StolenBit,
    /// Locks are given back in the doorbell that installs.
    EarlyRelease,
    /// A reader looks at the lock after the object.
    LockReadLast,
    /// A lock and its object are read by one READ, also where a line is not of one moment.
    LinesAreWhole,
    /// A reader goes on with an early snapshot, whatever it finds that may be of before it began.
    EarlyIsEnough,
    /// A reader goes on with a later snapshot than the one it has begun with, whatever has changed between.
    EarlyIsNotLookedAtAgain,
    /// A reader does not wait for a lock that is older than its snapshot.
    LockedIsReadable,
    /// Nobody waits until the commit time is past before it is reported.
    NoUncertaintyWait,
    /// Record slots are used again as soon as the locks are released.
    EarlyReuse,
    /// Checksums are not looked at.
    TornIsFine,
    /// A key that was not there is not looked for again before a commit.
    AbsenceUnproved,
    /// A row is taken for that of a key because it was at that address once.
    StaleAddress,
    /// Two may repair the same session at the same time.
    RacingRepairers,
    /// A session is repaired that was not fenced.
    NoFence,
    /// A transaction is committed when all objects are written that records name, however many it has.
    RecordWithoutN,
    /// A transaction is committed when it has lost one of its locks.
    NotHeldIsCommitted,
    /// Objects are copied without their locks, and not compared.
    CopyWithoutLocks,
    /// A copy counts before anything was copied.
    CopyOfNothing,
    /// The commit time is taken before the locks are.
    TimeBeforeLocks,
    /// What was only read is looked at again before the commit time is past.
    ValidationBeforeTheWait,
    /// What nobody reads is not kept, though somebody may be about to.
    OneRound,
    /// A commit is reported before it is durable.
    CommitWithoutFlush,
    /// Where persistence has no order, bodies are written before all records are durable.
    BodyBeforeRecords,
    /// What a repairer has decided is there for others before it is durable.
    RepairWithoutFlush,
    /// A repairer gives up records before it is durable that their locks were given back.
    RepairForgetsEarly,
    /// A record is used again before it is durable that its locks were given back.
    ReleaseWithoutFlush,
    /// Those who share a version cache take commit times as their clocks tell, and wait for them no longer than with an order.
    TimesInNoOrder,
    /// The version cache of a node is believed, whoever is about to write.
    MarksAreIgnored,
    /// The version cache is not told of what was written, and the marks are taken back.
    CacheIsNotTold,
}

impl Trap {
    /// Those of persistence that go wrong soon.
    pub const OF_PERSISTENCE: [Trap; 2] = [Trap::CommitWithoutFlush, Trap::BodyBeforeRecords];

    /// Those of the version cache at a node that go wrong soon: `version_cache_model.rs` has the others.
    pub const OF_VERSION_CACHE: [Trap; 2] = [Trap::MarksAreIgnored, Trap::CacheIsNotTold];

    /// Those of time: `farmv2.txt` §7.3 has the counterexamples, and `time_model.rs` those of early snapshots.
    pub const OF_TIME: [Trap; 5] = [
        Trap::NoUncertaintyWait,
        Trap::TimeBeforeLocks,
        Trap::ValidationBeforeTheWait,
        Trap::EarlyIsEnough,
        Trap::EarlyIsNotLookedAtAgain,
    ];

    /// Those that go wrong while everybody lives.
    pub const OF_THE_LIVING: [Trap; 16] = [
        Trap::ValidationIgnoresLocks,
        Trap::TimeBeforeAllBits,
        Trap::TimeOfTheLock,
        Trap::NewLockRead,
        Trap::ReadOfALostLock,
        Trap::AbortClearsAll,
        Trap::StolenBit,
        Trap::EarlyRelease,
        Trap::LockReadLast,
        Trap::LinesAreWhole,
        Trap::LockedIsReadable,
        Trap::NoUncertaintyWait,
        Trap::EarlyReuse,
        Trap::TornIsFine,
        Trap::AbsenceUnproved,
        Trap::StaleAddress,
    ];
}
