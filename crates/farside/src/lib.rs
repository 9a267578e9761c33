//! # Farside: ACID transactions over far memory
//!
//! A [`Database`] is in this process, in a file that several processes share, or in memory nodes that are
//! reached over TCP or RDMA; which of them, its URL says:
//!
//! ```
//! use farside::Database;
//!
//! let db = Database::open("mem:")?;
//! let db = db.blocking()?;
//! let accounts = db.create_table("accounts")?;
//! db.put(&accounts, b"alice", b"100")?;
//! db.transact(|tx| {
//!     let balance = tx.get(&accounts, b"alice")?;
//!     tx.put(&accounts, b"bob", &balance.unwrap_or_default())
//! })?;
//! assert_eq!(db.get(&accounts, b"bob")?.as_deref(), Some(&b"100"[..]));
//! # Ok::<(), farside::Error>(())
//! ```
//!
//! Transactions are strictly serializable, and opaque: whatever a transaction reads, also one that will not
//! commit, comes from one moment. Those that only read are never aborted by those that write.
//!
//! | | |
//! | --- | --- |
//! | [`Database`] | an open database, for all threads |
//! | [`Connection`] | the way to it of one thread, asynchronous: many transactions at once |
//! | [`Blocking`] | the same, one call after the other |
//! | [`Transaction`], [`Snapshot`] | what reads and writes |
//! | [`Level`], [`Moment`] | what a transaction is promised, and a snapshot that others read, too |
//! | [`TransactionId`] | asks later whether a transaction has committed |
//! | [`Typed`], [`Grouped`] | tables of other things than bytes; with columns in groups |
//! | [`Backup`] | a snapshot of a whole database as a stream of bytes, and back |
//! | [`Scrub`] | what is damaged, found before anybody needs it |
//! | [`ford`] | the interface of the FORD paper |

mod backup;
mod blocking;
mod connection;
mod database;
mod error;
mod fabric;
pub mod ford;
mod grouped;
mod opening;
mod outcome;
mod pool;
mod scrub;
mod snapshot;
mod transaction;
mod typed;
mod url;

pub use backup::{Backup, check_backup};
pub use blocking::{Blocking, BlockingSnapshot, BlockingTransaction};
pub use connection::{Connection, RetryLimits};
pub use database::{Database, Options};
pub use error::{Error, Result};
pub use farside_index::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Table, TableOptions};
pub use farside_txn::{Flaw, Level, Scrub, Scrubbed, Wrong};
pub use grouped::{Group, Grouped, Groups};
pub use outcome::{OUTCOMES_KEPT, Outcome, TransactionId};
pub use snapshot::{Moment, Snapshot};
pub use transaction::Transaction;
pub use typed::{Codec, Key, Plain, Serde, Typed};
