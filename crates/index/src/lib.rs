//! # farside-index: tables of keys and values
//!
//! A table is made of objects alone, all of which are read and written by transactions like any other: *rows*,
//! each with its key and its value; *buckets*, which say where the rows are whose hashes begin alike; and
//! *nodes*, a trie that says where the buckets are. So a table is as consistent as the transactions that use
//! it, grows and shrinks as a part of them, and needs no rules of its own for snapshots, copies or repair.
//!
//! What proves something, and what is only a hint:
//!
//! | | |
//! | --- | --- |
//! | a row that has the key, in the version that is read | the key is there |
//! | a bucket that is for the key's hash and names no row with it | the key is not there |
//! | the empty root of a table | the key is not there |
//! | addresses of rows that a thread remembers, its copy of the trie, whatever it only peeked at | nothing |
//!
//! | room | what is in it |
//! | --- | --- |
//! | `tag`, `bucket`, `node` | the layouts |
//! | `addresses`, `directory` | what a thread remembers |
//! | `find` | from keys to rows, many at once |
//! | `change`, `shrink` | rows that are written, inserted and deleted; buckets that split and merge |
//! | `catalog` | tables by their names |
//! | [`Tx`] | a transaction on tables |

mod addresses;
mod bucket;
mod catalog;
mod change;
mod client;
mod directory;
mod error;
mod find;
mod node;
mod scan;
mod shrink;
mod table;
mod tag;
mod tx;

pub use catalog::TableOptions;
pub use client::{Client, Memory};
pub use error::Error;
pub use table::Table;
pub use tag::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use tx::{Intent, Tx, Want};
