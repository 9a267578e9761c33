//! Checks histories, in nearly linear time.
//!
//! From what was read follows who came before whom: who wrote over whom (*ww*), who read from whom (*wr*),
//! who wrote over what another had read (*rw*), and by the clock who ended before whom began (*rt*).
//! A history is strictly serializable and opaque if no cycle is in that, with attempts that were aborted as
//! readers, and if no read is wrong by itself. Lists tell the order of their versions; of registers see
//! `registers`.

mod cycles;
mod deletes;
mod explain;
mod graph;
mod lists;
mod load;
mod realtime;
mod registers;
mod report;
mod search;
mod sessions;
mod snapshot;

use std::io::BufRead;

pub use crate::history::Flaw;
pub use report::{Anomaly, Report};

use graph::{Edges, Kind, Kinds};
use load::{History, TxnId};
use registers::Registers;
use report::Findings;

/// What a history is checked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// Strict serializability, and opacity.
    #[default]
    Strict,
    /// Strict serializability of what committed: what aborted attempts read does not count.
    StrictCommitted,
    /// Some order explains what committed attempts read and wrote, whatever the clock says.
    Serializable,
    /// Every committed attempt reads from one snapshot, and no two that overlap write the same.
    Snapshot,
    /// What each client sees and does goes forward; nobody reads what was not committed.
    SessionGuarantees,
}

impl Level {
    /// Whether the clock counts.
    fn is_strict(self) -> bool {
        matches!(self, Level::Strict | Level::StrictCommitted)
    }

    fn verdict(self) -> &'static str {
        match self {
            Level::Strict | Level::StrictCommitted => "strict-serializable",
            Level::Serializable => "serializable",
            Level::Snapshot => "snapshot",
            Level::SessionGuarantees => "session-guarantees",
        }
    }
}

/// Checks a history; or says what is wrong with its file.
///
/// ```
/// use farside_workloads::check::{Level, check};
///
/// let history = r#"
/// {"id":1,"proc":1,"begin":0,"end":5,"outcome":"committed","ops":[{"f":"append","k":"x","v":1}]}
/// {"id":2,"proc":2,"begin":9,"end":12,"outcome":"committed","ops":[{"f":"r","k":"x","v":[]}]}
/// "#;
/// let report = check(history.trim().as_bytes(), Level::Strict).unwrap();
/// assert_eq!((report.verdict, &*report.anomalies[0].kind), ("violation", "stale read"));
/// ```
pub fn check(input: impl BufRead, level: Level) -> Result<Report, Flaw> {
    let (strict, opaque) = (level.is_strict(), level == Level::Strict);
    let mut history = History::read(input, opaque)?;
    let mut findings = Findings::default();
    let judges = |history: &History, id: TxnId| opaque || history.is_committed(id);
    let blind = history.blind.iter().filter(|(txn, _)| judges(&history, *txn));
    for (txn, key) in blind.copied() {
        let why = format!("a read of key {:?} is without its own writes", history.name(key));
        findings.add(&history, "internal", &[txn], why);
    }
    let mut edges = Edges::new(history.txns.len());
    lists::analyse(&mut history, &judges, level == Level::Snapshot, &mut edges, &mut findings);
    let registers =
        registers::resolve(&history, &judges, level != Level::SessionGuarantees, &mut findings);
    registers::connect(&history, &registers, strict, &mut edges);
    registers::connect_claimed(&history, &registers, &mut edges);
    let open = registers::unclaimed(&history, &registers);
    if open > 0 {
        try_orders(&history, &registers, level, open, &edges, &mut findings);
    }
    match level {
        Level::Strict | Level::StrictCommitted => {
            let counts = |id: TxnId| opaque || !history.is_aborted(id);
            realtime::add(&history, &counts, &mut edges);
            cycles::find(&history, &edges.into_graph(), true, &mut findings);
        }
        Level::Serializable => {
            cycles::find(&history, &edges.into_graph(), false, &mut findings);
        }
        Level::Snapshot => snapshot::find(&history, &edges, &mut findings),
        Level::SessionGuarantees => {
            dependencies(&history, edges, &mut findings);
            sessions::find(&history, &registers, &mut findings);
        }
    }
    Ok(findings.report(history.txns.len() as u64, level))
}

/// Cycles of what was read and written alone.
fn dependencies(history: &History, edges: Edges, findings: &mut Findings) {
    let mut kept = Edges::new(edges.nodes() as usize);
    let kinds = Kinds::of(&[Kind::Ww, Kind::Wr]);
    edges
        .iter()
        .filter(|(_, kind, _)| kinds.has(*kind))
        .for_each(|(from, kind, to)| kept.add(from, kind, to));
    cycles::find(history, &kept.into_graph(), false, findings);
}

/// Registers whose order nobody claims: where there are few attempts all orders are tried.
fn try_orders(
    history: &History,
    registers: &Registers,
    level: Level,
    open: usize,
    edges: &Edges,
    findings: &mut Findings,
) {
    let (strict, opaque) = (level.is_strict(), level == Level::Strict);
    let counts = |id: TxnId| opaque || history.is_committed(id);
    let small = history.txns.len() <= search::MOST && (strict || level == Level::Serializable);
    match small.then(|| search::is_orderable(history, registers, &counts, strict, edges)).flatten()
    {
        Some(true) => {}
        Some(false) => {
            let txns: Vec<TxnId> = (0..history.txns.len() as TxnId).collect();
            let why = "no order of the writes explains all reads".to_owned();
            findings.add(history, "unorderable", &txns, why);
        }
        None => findings.undecided += open as u64,
    }
}
