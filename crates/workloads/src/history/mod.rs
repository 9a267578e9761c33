//! Histories: what each attempt at a transaction did and saw, one JSON object a line.
//!
//! ```text
//! {"id":7,"proc":3,"begin":1200,"end":4711,"outcome":"committed",
//!  "ops":[{"f":"r","k":"12","v":[1,4]},{"f":"append","k":"12","v":9}]}
//! ```
//!
//! `begin` and `end` are nanoseconds on one clock, taken before the first and after the last step. Reads of
//! aborted attempts are recorded, too: opacity is about them.

mod read;
mod text;
mod write;

pub use read::{Flaw, Lines};
pub use write::{Ended, Name, Recorder, Sink, UNTOLD};

use std::borrow::Cow;

use serde::Deserialize;

/// How an attempt ended, as far as its client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was reported committed.
    Committed,
    /// It was reported aborted.
    Aborted,
    /// The client does not know.
    Unknown,
}

/// One attempt at a transaction.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Attempt<'a> {
    /// Its number, its own alone.
    pub id: u64,
    /// The client that made it; a client makes one after the other.
    pub proc: u64,
    /// Before its first step, in nanoseconds.
    pub begin: u64,
    /// After its last step.
    pub end: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    #[serde(borrow)]
    pub ops: Vec<Op<'a>>,
    /// The snapshot that the store says it read from.
    #[serde(default)]
    pub read_ts: Option<u64>,
    /// The time at which the store says it committed.
    #[serde(default)]
    pub commit_ts: Option<u64>,
}

/// One step.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Op<'a> {
    /// What it did.
    pub f: Step,
    /// To which key.
    #[serde(borrow)]
    pub k: Cow<'a, str>,
    /// What it read or wrote; `null` for nothing.
    pub v: Value,
    /// Which version it read: the commit time of its writer, for values that are not unique.
    #[serde(default)]
    pub ver: Option<u64>,
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Reads a list or a register.
    R,
    /// Appends to a list.
    Append,
    /// Writes a register.
    W,
}

/// What was read or written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Value {
    /// Nothing: the key is absent, or was deleted.
    #[default]
    Nothing,
    /// A register's value, or an element.
    One(i64),
    /// A list.
    Many(Vec<i64>),
}
