//! Why a transaction ends without a commit.

use farside_fabric::FabricError;

/// What was in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// Another transaction holds the lock.
    Locked,
    /// An older transaction of the same process waits for it, or holds it.
    Older,
    /// An object that was only read has changed.
    Changed,
    /// An object that was read has changed before it was locked.
    Overtaken,
    /// There is no room for old versions, which somebody still reads.
    OldVersions,
}

/// Why a transaction did not commit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// Others were in the way: to be tried again.
    #[error("a conflict with another transaction: {0:?}")]
    Conflict(Why),
    /// There is no lease, or the configuration does not count yet: to be tried again soon.
    #[error("this process may not act now")]
    NotNow,
    /// The regions moved while it ran: to be tried again.
    #[error("the configuration changed")]
    Moved,
    /// The snapshot is older than what is kept.
    #[error("the snapshot is too old")]
    TooOld,
    /// A memory node cannot be reached now: to be tried again.
    #[error("memory node {0} cannot be reached")]
    Unreachable(u16),
    /// An object is in no region of the pool, or larger than its room.
    #[error("{0}")]
    Refused(String),
    /// There is no room in the pool for an object.
    #[error("the pool has no room for {0} bytes more")]
    Full(u64),
    /// Something took longer than anything should.
    #[error("no progress for too long: {0}")]
    TimedOut(&'static str),
    /// It may have committed, or not: nobody knows yet.
    #[error("the outcome is not known yet: {0}")]
    Pending(String),
    /// A node did not do what it was asked.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl TxnError {
    /// Whether the same transaction may succeed when it is tried again soon.
    pub fn is_passing(&self) -> bool {
        use TxnError::{Conflict, Fabric, Moved, NotNow, Unreachable};
        match self {
            // The node may answer again: then its queues are connected anew.
            Fabric(error) => !matches!(error, FabricError::Fenced(_)),
            Conflict(_) | NotNow | Moved | Unreachable(_) => true,
            _ => false,
        }
    }
}
