//! What a client sees and does goes forward, key by key: it reads its own writes, does not read backwards,
//! and its writes come behind what it has read and written.

use std::collections::{BTreeMap, HashMap};

use super::load::{History, TxnId, What};
use super::registers::Registers;
use super::report::Findings;

/// How far a client has come with a key, and who put it there.
#[derive(Clone, Copy, Default)]
struct Reached {
    read: u64,
    written: u64,
}

impl Reached {
    fn join(&mut self, more: Reached) {
        self.read = self.read.max(more.read);
        self.written = self.written.max(more.written);
    }
}

/// Checks every client.
pub(super) fn find(history: &History, registers: &Registers, findings: &mut Findings) {
    let versions = register_reads(history, registers);
    let mut order: Vec<TxnId> = (0..history.txns.len() as TxnId)
        .filter(|id| history.is_committed(*id) && !history.txns[*id as usize].endless)
        .collect();
    order.sort_unstable_by_key(|id| {
        let txn = history.txns[*id as usize];
        (txn.proc, txn.begin, txn.end)
    });
    let mut reached: HashMap<u32, Reached> = HashMap::new();
    let mut proc = None;
    // Attempts of the client that had not ended when the latest began.
    let mut open: Vec<(u64, BTreeMap<u32, Reached>)> = Vec::new();
    for id in order {
        let txn = history.txns[id as usize];
        if proc.replace(txn.proc) != Some(txn.proc) {
            reached.clear();
            open.clear();
        }
        open.retain(|(end, later)| {
            let over = *end <= txn.begin;
            if over {
                later.iter().for_each(|(key, more)| reached.entry(*key).or_default().join(*more));
            }
            !over
        });
        let later = judge(history, id, &reached, &versions, findings);
        open.push((txn.end, later));
    }
}

/// Compares an attempt with what its client had reached; what it has reached itself.
fn judge(
    history: &History,
    id: TxnId,
    reached: &HashMap<u32, Reached>,
    versions: &HashMap<(TxnId, u32), (u64, u64)>,
    findings: &mut Findings,
) -> BTreeMap<u32, Reached> {
    let txn = history.txns[id as usize];
    let mut later: BTreeMap<u32, Reached> = BTreeMap::new();
    for op in history.ops_of(id) {
        let before = reached.get(&op.key).copied().unwrap_or_default();
        let next = later.entry(op.key).or_default();
        let is_list = history.keys[op.key as usize].is_list == Some(true);
        // Of several versions that were read, the earliest must not be too early.
        let mut latest = None;
        let (version, reads) = match op.what {
            What::List(length) => (u64::from(length), true),
            What::Read(None, _) if is_list => (0, true),
            What::Append(element) => {
                let place = history.writers[&(op.key, element)].place;
                (if place == 0 { u64::MAX } else { u64::from(place) }, false)
            }
            What::Read(..) => match versions.get(&(id, op.key)) {
                Some((first, last)) => {
                    latest = Some(*last);
                    (*first, true)
                }
                None => continue,
            },
            What::Write(_) => match txn.commit_ts {
                Some(time) => (time, false),
                None => continue,
            },
        };
        // What nobody saw comes after all that was seen.
        let written = before.written;
        let broken = match reads {
            true if version < written => Some("read your writes"),
            true if version < before.read => Some("monotonic reads"),
            false if version <= written && written != u64::MAX => Some("monotonic writes"),
            false if version <= before.read => Some("writes follow reads"),
            _ => None,
        };
        if let Some(kind) = broken {
            let name = history.name(op.key);
            let why = format!(
                "attempt {} of client {} is at version {version} of key {name:?}, after it had \
                 read version {} and written version {written}",
                txn.id, txn.proc, before.read
            );
            findings.add(history, kind, &[id], why);
        }
        if reads {
            next.read = next.read.max(latest.unwrap_or(version));
        } else {
            next.written = next.written.max(version);
        }
    }
    later
}

/// The first and the last version of a register that an attempt read, by the claims of the store.
fn register_reads(history: &History, registers: &Registers) -> HashMap<(TxnId, u32), (u64, u64)> {
    let mut versions: HashMap<(TxnId, u32), (u64, u64)> = HashMap::new();
    for (key, register) in registers {
        for (writer, readers) in &register.readers {
            let version = match writer {
                None => Some(0),
                Some(writer) => history.txns[*writer as usize].commit_ts,
            };
            let Some(version) = version else { continue };
            for reader in readers {
                let known = versions.entry((*reader, *key)).or_insert((version, version));
                *known = (known.0.min(version), known.1.max(version));
            }
        }
    }
    versions
}
