//! Lists: the order of versions is what was read.

use std::collections::HashMap;

use super::graph::{Edges, Kind};
use super::load::{History, TxnId, What};
use super::report::Findings;
use crate::history::Outcome;

/// A read of so many elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    key: u32,
    length: u32,
    reader: TxnId,
}

/// Finds what is wrong with single reads, and adds the edges between attempts. `judges` says whose reads
/// count.
pub(super) fn analyse(
    history: &mut History,
    judges: &dyn Fn(&History, TxnId) -> bool,
    snapshot: bool,
    edges: &mut Edges,
    findings: &mut Findings,
) {
    place(history, findings);
    let mut reads = Vec::new();
    let mut unseen: Vec<(u32, TxnId)> = Vec::new();
    for id in 0..history.txns.len() as TxnId {
        let committed = history.is_committed(id);
        if judges(history, id) {
            judge_own(history, id, findings);
        }
        for op in history.ops_of(id) {
            let is_list = history.keys[op.key as usize].is_list == Some(true);
            let length = match op.what {
                What::List(length) => length,
                What::Read(None, _) if is_list => 0,
                What::Append(element) => {
                    let writer = history.writers[&(op.key, element)];
                    if committed && writer.place == 0 {
                        unseen.push((op.key, id));
                    }
                    continue;
                }
                _ => continue,
            };
            if length != u32::MAX && judges(history, id) {
                reads.push(Read { key: op.key, length, reader: id });
            }
        }
    }
    reads.sort_unstable();
    reads.dedup();
    unseen.sort_unstable();
    unseen.dedup();
    let (mut reads, mut unseen) = (&reads[..], &unseen[..]);
    for key in 0..history.keys.len() as u32 {
        let mine = reads.partition_point(|read| read.key == key);
        let (now, later) = reads.split_at(mine);
        reads = later;
        let (behind, rest) = unseen.split_at(unseen.partition_point(|(of, _)| *of == key));
        unseen = rest;
        let writers = writers(history, key);
        judge_reads(history, now, &writers, findings);
        judge_claims(history, key, &writers, findings);
        connect(now, &writers, edges);
        let right_behind = connect_unseen(now, &writers, behind, snapshot, edges);
        // Where there is one order for all, this is a cycle of its own.
        if snapshot && right_behind.len() > 1 {
            let why = format!("both read key {:?}, and appended to it", history.name(key));
            findings.add(history, "lost update", &right_behind[..2], why);
        }
    }
    judge_odd(history, findings);
}

/// Notes where in its spine each element is.
fn place(history: &mut History, findings: &mut Findings) {
    for key in 0..history.keys.len() as u32 {
        for place in 1..=history.keys[key as usize].spine.len() as u32 {
            let element = history.keys[key as usize].spine[place as usize - 1];
            match history.writers.get_mut(&(key, element)) {
                Some(writer) if writer.place == 0 => writer.place = place,
                Some(writer) => {
                    let txn = writer.txn;
                    let why = format!("{element} is twice in key {:?}", history.name(key));
                    findings.add(history, "duplicate element", &[txn], why);
                }
                None => {
                    let told = findings.tells("garbage read");
                    let readers = if told { readers(history, key, element) } else { Vec::new() };
                    let why = format!(
                        "{element} was read from key {:?}, and nobody has appended it",
                        history.name(key)
                    );
                    findings.add(history, "garbage read", &readers, why);
                }
            }
        }
    }
}

/// Some attempt that has read an element, for a report.
fn readers(history: &History, key: u32, element: i64) -> Vec<TxnId> {
    let spine = &history.keys[key as usize].spine;
    let place = spine.iter().position(|known| *known == element).map_or(0, |at| at as u32 + 1);
    let reads = |id: &TxnId| {
        history.ops_of(*id).iter().any(|op| {
            op.key == key && matches!(op.what, What::List(n) if n >= place && n != u32::MAX)
        })
    };
    (0..history.txns.len() as TxnId).find(reads).into_iter().collect()
}

/// What an attempt must know of itself: it does not read what it appends later, and its appends stay in
/// order.
fn judge_own(history: &History, id: TxnId, findings: &mut Findings) {
    let ops = history.ops_of(id);
    // Of each key the first and the latest place of what it has appended.
    let mut places: HashMap<u32, (u32, u32)> = HashMap::new();
    let mut wrong = None;
    for op in ops {
        let is_list = history.keys[op.key as usize].is_list == Some(true);
        match op.what {
            What::Append(element) => {
                let place = history.writers[&(op.key, element)].place;
                let known = places.entry(op.key).or_insert((u32::MAX, 0));
                if place != 0 && place < known.1 {
                    wrong = Some((op.key, "its own appends are in another order"));
                }
                if place != 0 {
                    *known = (known.0.min(place), place);
                }
            }
            What::Read(None, _) if is_list && places.contains_key(&op.key) => {
                wrong = Some((op.key, "a read is without its own writes"));
            }
            _ => {}
        }
    }
    for op in ops {
        if let What::List(length) = op.what
            && length != u32::MAX
            && places.get(&op.key).is_some_and(|(first, _)| *first <= length)
        {
            wrong = Some((op.key, "a read has what it appended later"));
        }
    }
    if let Some((key, why)) = wrong {
        let why = format!("key {:?}: {why}", history.name(key));
        findings.add(history, "internal", &[id], why);
    }
}

/// Whoever comes later in a list must not claim an earlier commit time.
fn judge_claims(history: &History, key: u32, writers: &[Option<TxnId>], findings: &mut Findings) {
    let time = |txn: TxnId| Some((history.txns[txn as usize].commit_ts?, txn));
    let mut claims = writers.iter().flatten().filter_map(|txn| time(*txn));
    let Some(mut before) = claims.next() else { return };
    for claim in claims {
        if claim.1 != before.1 && claim.0 <= before.0 {
            let why = format!(
                "key {:?}: commit times {} and {} are not in the order of the list",
                history.name(key),
                before.0,
                claim.0
            );
            findings.add(history, "false claim", &[before.1, claim.1], why);
        }
        before = claim;
    }
}

/// For each place of the spine who wrote it; `None` for elements that should not be there.
fn writers(history: &History, key: u32) -> Vec<Option<TxnId>> {
    let spine = history.keys[key as usize].spine.iter().enumerate();
    let writer = |(at, element): (usize, &i64)| {
        let writer = history.writers.get(&(key, *element))?;
        let sound = writer.place as usize == at + 1 && history.is_committed(writer.txn);
        sound.then_some(writer.txn)
    };
    spine.map(writer).collect()
}

/// Reads of what was aborted, or of what its writer wrote over.
fn judge_reads(
    history: &History,
    reads: &[Read],
    writers: &[Option<TxnId>],
    findings: &mut Findings,
) {
    // The first place of something that was aborted.
    let Some(key) = reads.first().map(|read| read.key) else { return };
    let spine = &history.keys[key as usize].spine;
    let name = history.name(key);
    let is_aborted = |element: &i64| {
        let writer = history.writers.get(&(key, *element));
        writer.is_some_and(|w| history.txns[w.txn as usize].outcome == Outcome::Aborted)
    };
    let dirty = spine.iter().position(is_aborted);
    for read in reads {
        let committed = history.is_committed(read.reader);
        if let Some(at) = dirty
            && read.length as usize > at
        {
            let writer = history.writers[&(key, spine[at])].txn;
            if writer != read.reader {
                let why = format!(
                    "attempt {} read {} from key {name:?}, which attempt {} appended and aborted",
                    history.txns[read.reader as usize].id,
                    spine[at],
                    history.txns[writer as usize].id
                );
                let kind = if committed { "G1a" } else { "non-opaque read" };
                findings.add(history, kind, &[writer, read.reader], why);
            }
        }
        let Some(at) = (read.length as usize).checked_sub(1) else { continue };
        let Some(writer) = writers[at].filter(|writer| *writer != read.reader) else { continue };
        if !history.writers[&(key, spine[at])].last {
            let why = format!(
                "attempt {} read key {name:?} up to {}, after which attempt {} appended more to it",
                history.txns[read.reader as usize].id, spine[at], history.txns[writer as usize].id
            );
            let kind = if committed { "G1b" } else { "non-opaque read" };
            findings.add(history, kind, &[writer, read.reader], why);
        }
    }
}

/// The edges along a spine.
fn connect(reads: &[Read], writers: &[Option<TxnId>], edges: &mut Edges) {
    let mut before = None;
    for writer in writers.iter().flatten() {
        if let Some(before) = before.replace(*writer) {
            edges.add(before, Kind::Ww, *writer);
        }
    }
    // For each place the next one whose writer is known.
    let mut next = vec![None; writers.len() + 1];
    for at in (0..writers.len()).rev() {
        next[at] = writers[at].or(next[at + 1]);
    }
    for read in reads {
        let seen = &writers[..read.length as usize];
        if let Some(writer) = seen.iter().rev().find_map(|writer| *writer) {
            edges.add(writer, Kind::Wr, read.reader);
        }
        // If that is its own append, whoever follows comes later by that.
        if let Some(over) = next[read.length as usize] {
            edges.add(read.reader, Kind::Rw, over);
        }
    }
}

/// Elements that nobody has seen come after all that were seen: after the last of the spine, and after all
/// who have read no more than it. Between all of both there would be too many edges, so they go
/// through nodes between: from each reader to two chains that lead to everybody but itself. Returns those who
/// come right behind the spine: there is room for one.
fn connect_unseen(
    reads: &[Read],
    writers: &[Option<TxnId>],
    behind: &[(u32, TxnId)],
    snapshot: bool,
    edges: &mut Edges,
) -> Vec<TxnId> {
    let unseen: Vec<TxnId> = behind.iter().map(|(_, txn)| *txn).collect();
    let last = writers.iter().rev().find_map(|writer| *writer);
    let whole = reads.partition_point(|read| (read.length as usize) < writers.len());
    let leads = last.into_iter().map(|last| (last, Kind::Ww));
    let readers = reads[whole..].iter().map(|read| (read.reader, Kind::Rw));
    // Who has read all that was seen, and appended, comes right behind it, where no update is lost.
    let all = reads[whole..].iter().map(|read| read.reader);
    let right_behind: Vec<TxnId> =
        all.filter(|reader| unseen.binary_search(reader).is_ok()).collect();
    let alone = match right_behind[..] {
        [one] if snapshot => Some((one, Kind::Turn)),
        _ => None,
    };
    lead_to_all(leads.chain(readers).chain(alone), &unseen, edges);
    right_behind
}

/// Edges from each of these to all of those, in order, except to itself.
pub(super) fn lead_to_all(
    from: impl Iterator<Item = (TxnId, Kind)>,
    unseen: &[TxnId],
    edges: &mut Edges,
) {
    let mut from = from.peekable();
    if unseen.is_empty() || from.peek().is_none() {
        return;
    }
    let down: Vec<u32> = unseen.iter().map(|_| edges.add_node()).collect();
    let up: Vec<u32> = unseen.iter().map(|_| edges.add_node()).collect();
    for (at, txn) in unseen.iter().enumerate() {
        edges.add(down[at], Kind::Link, *txn);
        edges.add(up[at], Kind::Link, *txn);
        if at > 0 {
            edges.add(down[at], Kind::Link, down[at - 1]);
            edges.add(up[at - 1], Kind::Link, up[at]);
        }
    }
    for (from, kind) in from {
        match unseen.binary_search(&from) {
            Ok(at) => {
                if at > 0 {
                    edges.add(from, kind, down[at - 1]);
                }
                if at + 1 < unseen.len() {
                    edges.add(from, kind, up[at + 1]);
                }
            }
            Err(_) => edges.add(from, kind, up[0]),
        }
    }
}

/// Lists that do not agree with the spine of their key: at the first difference, two have appended to the
/// same list.
fn judge_odd(history: &History, findings: &mut Findings) {
    for (reader, key, list) in &history.odd {
        let spine = &history.keys[*key as usize].spine;
        let at = list.iter().zip(spine).position(|(one, other)| one != other).unwrap_or(0);
        let writer = |element: i64| history.writers.get(&(*key, element)).map(|w| w.txn);
        let (one, other) = (writer(list[at]), writer(spine[at]));
        let name = history.name(*key);
        let mut sorted = list.clone();
        sorted.sort_unstable();
        let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
        let aborted = list
            .iter()
            .filter_map(|element| writer(*element))
            .find(|txn| history.txns[*txn as usize].outcome == Outcome::Aborted && txn != reader);
        let committed = history.is_committed(*reader);
        let reader_id = history.txns[*reader as usize].id;
        let both =
            format!("{} and {} both follow {at} elements of key {name:?}", list[at], spine[at]);
        if let Some(garbage) = list.iter().find(|element| writer(**element).is_none()) {
            let why = format!("{garbage} was read from key {name:?}, and nobody has appended it");
            findings.add(history, "garbage read", &[*reader], why);
        } else if let Some(aborted) = aborted {
            let kind = if committed { "G1a" } else { "non-opaque read" };
            let why = format!("attempt {reader_id} read key {name:?} with what was aborted");
            findings.add(history, kind, &[aborted, *reader], why);
        } else if twice {
            let why = format!("attempt {reader_id} read an element of key {name:?} twice");
            findings.add(history, "duplicate element", &[*reader], why);
        } else if committed {
            let txns: Vec<TxnId> = one.into_iter().chain(other).chain([*reader]).collect();
            findings.add(history, "lost update", &txns, both);
        } else {
            let txns: Vec<TxnId> = one.into_iter().chain(other).chain([*reader]).collect();
            findings.add(history, "non-opaque read", &txns, both);
        }
    }
}
