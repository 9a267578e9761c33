//! What a check finds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Level;
use super::load::{History, TxnId};

/// What came of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// How many attempts there are, whatever came of them.
    pub transactions: u64,
    /// The level, if it holds, or `violation`.
    pub verdict: &'static str,
    /// What was found: the shortest of each kind first, and not all of them if they are many.
    pub anomalies: Vec<Anomaly>,
    /// How many of each kind were found.
    pub found: BTreeMap<String, u64>,
    /// Reads of registers from which no order could be recovered: they were not judged.
    pub undecided: u64,
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Anomaly {
    /// Its name.
    pub kind: String,
    /// The attempts that it takes.
    pub transactions: Vec<u64>,
    /// What they did to each other.
    pub why: String,
}

/// How many of each kind are told.
const TOLD: u64 = 8;

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    anomalies: Vec<Anomaly>,
    found: BTreeMap<String, u64>,
    pub(super) undecided: u64,
}

impl Findings {
    pub(super) fn add(&mut self, history: &History, kind: &str, txns: &[TxnId], why: String) {
        let found = self.found.entry(kind.to_owned()).or_default();
        *found += 1;
        if *found <= TOLD {
            let transactions = txns.iter().map(|txn| history.txns[*txn as usize].id).collect();
            self.anomalies.push(Anomaly { kind: kind.to_owned(), transactions, why });
        }
    }

    /// Whether the next of a kind would be told.
    pub(super) fn tells(&self, kind: &str) -> bool {
        self.found.get(kind).is_none_or(|found| *found < TOLD)
    }

    pub(super) fn report(mut self, transactions: u64, level: Level) -> Report {
        self.anomalies.sort_by_key(|anomaly| (anomaly.kind.clone(), anomaly.transactions.len()));
        let verdict = if self.found.is_empty() { level.verdict() } else { "violation" };
        Report {
            transactions,
            verdict,
            anomalies: self.anomalies,
            found: self.found,
            undecided: self.undecided,
        }
    }
}
