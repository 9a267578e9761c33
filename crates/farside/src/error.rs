//! What can go wrong.

use farside_fabric::FabricError;
use farside_txn::TxnError;

/// A result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Other transactions were in the way, however often it was tried. Nothing was changed.
    #[error("other transactions were in the way, {0} times in a row; nothing was changed")]
    Conflict(u32),
    /// A memory node does not answer. Nothing was changed.
    #[error("a memory node does not answer: {0}")]
    NodeLost(String),
    /// This process was put out of the pool: open the database again.
    #[error("this process was put out of the pool; open the database again")]
    Fenced,
    /// A key or a value is too large. Nothing was changed.
    #[error("{0}")]
    TooLarge(String),
    /// Old versions of the moment that was to be read are not kept any more: take a newer snapshot.
    #[error("the snapshot is too old: what was there at that time is not kept any more")]
    SnapshotTooOld,
    /// Something took too long. Nothing was changed.
    #[error("timed out: {0}")]
    TimedOut(String),
    /// The transaction may have committed, or not. If it was to be remembered, [`Connection::outcome`](crate::Connection::outcome)
    /// tells.
    #[error("the outcome is not known: {0}")]
    OutcomePending(String),
    /// The transaction's id was used before, or somebody has asked how it ended: this one has not committed.
    #[error("the transaction of this id has ended already: {0:?}")]
    Decided(crate::Outcome),
    /// The outcome was asked for too late.
    #[error("the outcome is not known any more: it is too long ago")]
    OutcomeExpired,
    /// There is no such table, or it was dropped.
    #[error("there is no table '{0}'")]
    NoTable(String),
    /// There is such a table already.
    #[error("there is a table '{0}' already")]
    TableExists(String),
    /// The key is there already.
    #[error("the key is there already")]
    KeyExists,
    /// The key is not there.
    #[error("the key is not there")]
    NoKey,
    /// The pool has no room left.
    #[error("{0}")]
    Full(String),
    /// Something is wrong with what was asked for.
    #[error("{0}")]
    Invalid(String),
    /// What is there is not what was expected.
    #[error("{0}")]
    Damaged(String),
    /// The database could not be opened.
    #[error("cannot open '{url}': {why}")]
    Open {
        /// What was to be opened.
        url: String,
        /// Why not.
        why: String,
    },
}

impl Error {
    /// Whether the same may succeed when it is tried again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Conflict(_) | Error::NodeLost(_) | Error::TimedOut(_))
    }
}

impl From<FabricError> for Error {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::Fenced(_) => Error::Fenced,
            other => Error::NodeLost(other.to_string()),
        }
    }
}

impl From<TxnError> for Error {
    fn from(error: TxnError) -> Self {
        match error {
            TxnError::Conflict(_) | TxnError::Moved => Error::Conflict(1),
            TxnError::Unreachable(_) => Error::NodeLost(error.to_string()),
            TxnError::NotNow => Error::TimedOut("the pool cannot be used now".into()),
            TxnError::TooOld => Error::SnapshotTooOld,
            TxnError::TimedOut(what) => Error::TimedOut(what.into()),
            TxnError::Pending(why) => Error::OutcomePending(why),
            TxnError::Full(_) => Error::Full(error.to_string()),
            TxnError::Fabric(error) => error.into(),
            other => Error::Damaged(other.to_string()),
        }
    }
}

impl From<farside_index::Error> for Error {
    fn from(error: farside_index::Error) -> Self {
        use farside_index::Error as Index;
        match error {
            Index::Txn(error) => error.into(),
            Index::NoTable(name) => Error::NoTable(name),
            Index::TableExists(name) => Error::TableExists(name),
            Index::KeyExists => Error::KeyExists,
            Index::NoKey => Error::NoKey,
            Index::KeyTooLong(_) | Index::ValueTooLong(_) => Error::TooLarge(error.to_string()),
            Index::TooManyTables | Index::Crowded => Error::Full(error.to_string()),
            other => Error::Invalid(other.to_string()),
        }
    }
}
