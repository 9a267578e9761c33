//! Registers with unique values: who read what is known, and the order of versions as far as it can be
//! recovered.
//!
//! What is certain: nothing comes before the initial version; who has read a version and written over it
//! comes right behind it; and by time, who began to write after another had ended comes behind it. Where the
//! store claims commit times, they give an order for all, which is verified like any other: if it
//! explains all reads without a cycle, it is a proof; if not, the claim is false.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::deletes::newest_read;
use super::graph::{Edges, Kind};
use super::lists::lead_to_all;
use super::load::{History, TxnId, What};
use super::report::Findings;
use crate::history::Outcome;

/// What is known of one register.
#[derive(Debug, Default)]
pub(super) struct Register {
    /// Who has written it, and is committed; in order.
    pub(super) writers: Vec<TxnId>,
    /// Who has read whose version; `None` is the initial one.
    pub(super) readers: BTreeMap<Option<TxnId>, Vec<TxnId>>,
}

pub(super) type Registers = BTreeMap<u32, Register>;

/// Finds out who read what; single reads that are wrong are told.
pub(super) fn resolve(
    history: &History,
    judges: &dyn Fn(&History, TxnId) -> bool,
    repeatable: bool,
    findings: &mut Findings,
) -> Registers {
    let (mut registers, writes) = collect_writes(history, findings);
    // What each register was in the beginning, as far as anybody says.
    let mut initial: HashMap<u32, Option<i64>> = HashMap::new();
    for reader in (0..history.txns.len() as TxnId).filter(|id| judges(history, *id)) {
        // What it has written itself, by key.
        let mut own: BTreeMap<u32, Option<i64>> = BTreeMap::new();
        let mut first: BTreeMap<u32, Option<TxnId>> = BTreeMap::new();
        for op in history.ops_of(reader) {
            let (value, version) = match op.what {
                What::Write(value) => {
                    own.insert(op.key, value);
                    continue;
                }
                What::Read(value, version) => (value, version),
                _ => continue,
            };
            if history.keys[op.key as usize].is_list == Some(true) {
                continue;
            }
            if let Some(mine) = own.get(&op.key) {
                judge_own(history, op.key, reader, *mine == value, findings);
                continue;
            }
            let mut source = writes.source(history, reader, op.key, value, version);
            if matches!(source, Source::Initial) && *initial.entry(op.key).or_insert(value) != value
            {
                source = Source::Nobody;
            }
            let writer = match source {
                Source::Initial => None,
                Source::Of(writer) => Some(writer),
                Source::Nobody => {
                    let name = history.name(op.key);
                    let why = format!("nobody has written what was read from key {name:?}");
                    findings.add(history, "garbage read", &[reader], why);
                    continue;
                }
                Source::Unclear => {
                    findings.undecided += 1;
                    continue;
                }
            };
            if let Some(writer) = writer
                && !judge_read(history, op.key, reader, writer, value, findings)
            {
                continue;
            }
            if *first.entry(op.key).or_insert(writer) != writer && repeatable {
                let kind =
                    if history.is_committed(reader) { "G-single" } else { "non-opaque read" };
                let why = format!("two versions of key {:?} were read", history.name(op.key));
                findings.add(history, kind, &[reader], why);
            }
            let register = registers.entry(op.key).or_default();
            let readers = register.readers.entry(writer).or_default();
            if readers.last() != Some(&reader) {
                readers.push(reader);
            }
        }
    }
    registers
}

fn judge_own(history: &History, key: u32, reader: TxnId, same: bool, findings: &mut Findings) {
    if !same {
        let why = format!("a read of key {:?} is not its own write", history.name(key));
        findings.add(history, "internal", &[reader], why);
    }
}

/// Where a version comes from.
enum Source {
    Initial,
    Of(TxnId),
    Nobody,
    /// Several have written that value, and no version is told.
    Unclear,
}

/// What is known of all writes.
struct Writes {
    deleted: BTreeSet<u32>,
    /// Of those keys, by commit time: who, and whether something was left.
    around_deletes: BTreeMap<(u32, u64), (TxnId, bool)>,
    /// By key and commit time: who, and what.
    by_time: HashMap<(u32, u64), (TxnId, Option<i64>)>,
    /// Keys that were there in the beginning.
    there_at_first: BTreeSet<u32>,
    /// What attempts of unknown outcome wrote, without a time.
    untimed: HashMap<(u32, Option<i64>), Vec<TxnId>>,
}

fn collect_writes(history: &History, findings: &mut Findings) -> (Registers, Writes) {
    let mut registers = Registers::new();
    let mut writes = Writes {
        deleted: BTreeSet::new(),
        around_deletes: BTreeMap::new(),
        by_time: HashMap::new(),
        untimed: HashMap::new(),
        there_at_first: BTreeSet::new(),
    };
    for id in 0..history.txns.len() as TxnId {
        for op in history.ops_of(id) {
            if matches!(op.what, What::Read(Some(_), Some(0))) {
                writes.there_at_first.insert(op.key);
            }
            let What::Write(value) = op.what else { continue };
            if value.is_none() {
                writes.deleted.insert(op.key);
            }
            let txn = history.txns[id as usize];
            if let Some(time) = txn.commit_ts {
                let other = writes.by_time.insert((op.key, time), (id, value));
                if let Some((other, _)) = other.filter(|(other, _)| *other != id) {
                    let name = history.name(op.key);
                    let why = format!("both claim to have written key {name:?} at {time}");
                    findings.add(history, "false claim", &[other, id], why);
                }
            } else if txn.endless {
                writes.untimed.entry((op.key, value)).or_default().push(id);
            }
            if history.is_committed(id) {
                let writers = &mut registers.entry(op.key).or_default().writers;
                if writers.last() != Some(&id) {
                    writers.push(id);
                }
            }
        }
    }
    infer_times(history, &mut writes);
    let around = writes.by_time.iter().filter(|((key, _), _)| writes.deleted.contains(key));
    writes.around_deletes =
        around.map(|(at, (writer, value))| (*at, (*writer, value.is_some()))).collect();
    (registers, writes)
}

/// An attempt of unknown outcome has committed at a time, if somebody read what it alone can have written then: so it has
/// written everything else at that time, too. Where several can have written it, one of them is taken for it: if there is
/// nothing wrong then, there is an order that explains everything.
fn infer_times(history: &History, writes: &mut Writes) {
    if writes.untimed.is_empty() {
        return;
    }
    let mut times: HashMap<TxnId, u64> = HashMap::new();
    loop {
        let (mut found, mut guess) = (Vec::new(), None);
        let ids = 0..history.txns.len() as TxnId;
        for (reader, op) in ids.flat_map(|id| history.ops_of(id).iter().map(move |op| (id, op))) {
            let What::Read(value, Some(version)) = op.what else { continue };
            let end = history.txns[reader as usize].end;
            let Some(writers) = writes.untimed.get(&(op.key, value)) else { continue };
            if version == 0 || writes.by_time.contains_key(&(op.key, version)) {
                continue;
            }
            let may = |id: &&TxnId| match times.get(*id) {
                Some(time) => *time == version,
                None => {
                    let begin = history.txns[**id as usize].begin;
                    begin <= end && newest_read(history, **id) < version
                }
            };
            let mut possible = writers.iter().filter(may);
            match (possible.next(), possible.next()) {
                (Some(writer), None) => found.push((*writer, version)),
                (Some(writer), Some(_)) => guess = guess.or(Some((*writer, version))),
                (None, _) => {}
            }
        }
        if found.is_empty() {
            found.extend(guess);
        }
        found.retain(|(writer, version)| times.insert(*writer, *version).is_none());
        if found.is_empty() {
            return;
        }
        for (writer, version) in found {
            for op in history.ops_of(writer).iter().rev() {
                if let What::Write(value) = op.what {
                    writes.by_time.entry((op.key, version)).or_insert((writer, value));
                }
            }
        }
    }
}

/// As of which time somebody has read. Whoever reads under a lock may do so after the time of its commit: what it writes is not what it read.
pub(super) fn as_of(history: &History, reader: TxnId) -> Option<u64> {
    let it = &history.txns[reader as usize];
    let before = it.commit_ts.map_or(u64::MAX, |commit| commit.saturating_sub(1));
    it.read_ts.map(|time| time.min(before))
}

impl Writes {
    /// Who has deleted a key that was not there as of a time that the store claims: the last who wrote it until
    /// then. Whether that can be is seen from what follows from it, like any other read.
    fn deleter(&self, key: u32, time: u64) -> Source {
        let may_be_another = self.untimed.contains_key(&(key, None));
        match self.around_deletes.range((key, 0)..=(key, time)).next_back() {
            // Should somebody of unknown outcome have deleted it once more, that explains nothing that this does not.
            Some((_, (writer, false))) => Source::Of(*writer),
            None if !self.there_at_first.contains(&key) => Source::Initial,
            _ if may_be_another => Source::Unclear,
            None => Source::Initial,
            Some((_, (_, true))) => Source::Nobody,
        }
    }

    /// Where what somebody has read comes from.
    fn source(
        &self,
        history: &History,
        reader: TxnId,
        key: u32,
        value: Option<i64>,
        version: Option<u64>,
    ) -> Source {
        match (value, version, as_of(history, reader)) {
            (None, None, Some(time)) => self.deleter(key, time),
            _ => self.writer(history, key, value, version),
        }
    }

    /// A version tells more than a value, which need not be unique then.
    fn writer(
        &self,
        history: &History,
        key: u32,
        value: Option<i64>,
        version: Option<u64>,
    ) -> Source {
        let known = value.and_then(|value| history.writers.get(&(key, value)));
        let by_value = known.filter(|writer| !writer.ambiguous).map(|writer| writer.txn);
        let claimed = version.and_then(|version| self.by_time.get(&(key, version)));
        match (version, claimed) {
            (Some(0), _) => Source::Initial,
            (_, Some((writer, wrote))) if *wrote == value => Source::Of(*writer),
            // It may have written that before it wrote something else.
            (_, Some((writer, _))) if wrote_before(history, *writer, key, value) => {
                Source::Of(*writer)
            }
            (_, None) if let Some(writer) = by_value => {
                match history.txns[writer as usize].commit_ts {
                    Some(time) if version.is_some_and(|version| version != time) => Source::Nobody,
                    _ => Source::Of(writer),
                }
            }
            (Some(_), None) if self.untimed.contains_key(&(key, value)) => Source::Unclear,
            (None, _) if value.is_none() && !self.deleted.contains(&key) => Source::Initial,
            (Some(_), _) => Source::Nobody,
            (None, _) if value.is_some() && known.is_none() => Source::Nobody,
            (None, _) => Source::Unclear,
        }
    }
}

fn wrote_before(history: &History, txn: TxnId, key: u32, value: Option<i64>) -> bool {
    history.ops_of(txn).iter().any(|op| op.key == key && op.what == What::Write(value))
}

/// Whether a read may be: not of what was aborted, and not of what its writer wrote over.
fn judge_read(
    history: &History,
    key: u32,
    reader: TxnId,
    writer: TxnId,
    value: Option<i64>,
    findings: &mut Findings,
) -> bool {
    let committed = history.is_committed(reader);
    let name = history.name(key);
    if writer == reader {
        let why = format!("a read of key {name:?} has what it wrote later");
        findings.add(history, "internal", &[reader], why);
        return false;
    }
    let ids = (history.txns[reader as usize].id, history.txns[writer as usize].id);
    if history.txns[writer as usize].outcome == Outcome::Aborted {
        let kind = if committed { "G1a" } else { "non-opaque read" };
        let why =
            format!("attempt {} read key {name:?} from attempt {}, which aborted", ids.0, ids.1);
        findings.add(history, kind, &[writer, reader], why);
        return false;
    }
    let known = value.and_then(|value| history.writers.get(&(key, value)));
    let last = match known.filter(|known| !known.ambiguous && known.txn == writer) {
        Some(known) => known.last,
        None => {
            let mut writes = history.ops_of(writer).iter().rev();
            let last = writes.find(|op| op.key == key && matches!(op.what, What::Write(_)));
            last.is_none_or(|op| op.what == What::Write(value))
        }
    };
    if !last {
        let kind = if committed { "G1b" } else { "non-opaque read" };
        let why =
            format!("attempt {} read what attempt {} wrote over in key {name:?}", ids.0, ids.1);
        findings.add(history, kind, &[writer, reader], why);
    }
    true
}

/// The edges that are certain. With `strict` also those by time.
pub(super) fn connect(history: &History, registers: &Registers, strict: bool, edges: &mut Edges) {
    for register in registers.values() {
        let starts = register.readers.get(&None).into_iter().flatten();
        lead_to_all(starts.map(|reader| (*reader, Kind::Rw)), &register.writers, edges);
        for (writer, readers) in &register.readers {
            let Some(writer) = writer else { continue };
            readers.iter().for_each(|reader| edges.add(*writer, Kind::Wr, *reader));
            // Who wrote over it.
            let over =
                readers.iter().filter(|reader| register.writers.binary_search(reader).is_ok());
            let over: Vec<TxnId> = over.copied().collect();
            over.iter().for_each(|over| edges.add(*writer, Kind::Ww, *over));
            lead_to_all(readers.iter().map(|reader| (*reader, Kind::Rw)), &over, edges);
        }
        if strict {
            connect_by_time(history, register, edges);
        }
    }
}

/// Who has read a version comes before everybody who began to write after its writer had ended. Of those the
/// first that ended is enough to show that a read was stale.
fn connect_by_time(history: &History, register: &Register, edges: &mut Edges) {
    let txn = |id: TxnId| &history.txns[id as usize];
    let mut writers: Vec<TxnId> = register.writers.clone();
    writers.sort_unstable_by_key(|id| txn(*id).begin);
    // From each on, who ended first.
    let mut first = vec![None; writers.len() + 1];
    for at in (0..writers.len()).rev() {
        let later: Option<TxnId> = first[at + 1];
        let me = (!txn(writers[at]).endless).then_some(writers[at]);
        first[at] = [me, later].into_iter().flatten().min_by_key(|id| txn(*id).end);
    }
    for (writer, readers) in &register.readers {
        let Some(writer) = writer.filter(|writer| !txn(*writer).endless) else { continue };
        let end = txn(writer).end;
        let after = writers.partition_point(|id| txn(*id).begin <= end);
        let Some(over) = first[after] else { continue };
        readers.iter().for_each(|reader| edges.add(*reader, Kind::Rw, over));
    }
}

/// Whether the store claims a commit time for everybody who has written a register.
fn is_claimed(history: &History, register: &Register) -> bool {
    register.writers.iter().all(|writer| history.txns[*writer as usize].commit_ts.is_some())
}

/// Who has written a register at a time that the store claims, in that order.
fn claimed(history: &History, register: &Register) -> Vec<TxnId> {
    let time = |id: &TxnId| history.txns[*id as usize].commit_ts;
    let mut order: Vec<TxnId> =
        register.writers.iter().copied().filter(|id| time(id).is_some()).collect();
    order.sort_unstable_by_key(|id| (time(id), *id));
    order
}

/// The registers whose order nobody claims, and that several have written.
pub(super) fn unclaimed(history: &History, registers: &Registers) -> usize {
    let open = |register: &&Register| register.writers.len() > 1 && !is_claimed(history, register);
    registers.values().filter(open).count()
}

/// The edges of the order that the store claims.
pub(super) fn connect_claimed(history: &History, registers: &Registers, edges: &mut Edges) {
    for register in registers.values() {
        let order = claimed(history, register);
        for pair in order.windows(2) {
            edges.add(pair[0], Kind::Ww, pair[1]);
        }
        let places: HashMap<TxnId, usize> = order.iter().copied().zip(1..).collect();
        for (writer, readers) in &register.readers {
            let next = writer.map_or(Some(0), |writer| places.get(&writer).copied());
            let Some(over) = next.and_then(|next| order.get(next)) else { continue };
            readers.iter().for_each(|reader| edges.add(*reader, Kind::Rw, *over));
        }
    }
}
