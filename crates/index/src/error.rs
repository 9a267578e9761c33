//! What can go wrong with tables.

use farside_txn::TxnError;

/// Why something could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction cannot go on.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// There is no such table, or it was dropped.
    #[error("there is no table '{0}'")]
    NoTable(String),
    /// There is such a table already.
    #[error("there is a table '{0}' already")]
    TableExists(String),
    /// Nobody could be called that.
    #[error(
        "'{0}' cannot be the name of a table: expected 1 to 200 bytes without control characters"
    )]
    BadName(String),
    /// A key is too long.
    #[error("a key of {0} bytes; expected at most 1024")]
    KeyTooLong(usize),
    /// A value is too long.
    #[error("a value of {0} bytes; expected at most 1048576")]
    ValueTooLong(usize),
    /// The key is there already.
    #[error("the key is there already")]
    KeyExists,
    /// The key is not there.
    #[error("the key is not there")]
    NoKey,
    /// What is there is no number.
    #[error("the value has {0} bytes; expected 8, a number")]
    NoNumber(usize),
    /// More keys have the same hash than a bucket has room for.
    #[error("too many keys of the same hash")]
    Crowded,
    /// There are as many tables as there can be.
    #[error("there are too many tables")]
    TooManyTables,
}
