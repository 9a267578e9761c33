//! A history in memory, small enough for millions of attempts.
//!
//! Of a list that was read only its length is kept: all reads of a key are prefixes of one *spine*, the
//! longest list that was seen. Those that are not are kept apart, as odd ones.

use std::collections::HashMap;
use std::io::BufRead;

use super::deletes;
use crate::history::{Attempt, Flaw, Lines, Outcome, Step, Value};

pub(super) type TxnId = u32;

/// A history.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) txns: Vec<Txn>,
    pub(super) ops: Vec<Op>,
    pub(super) keys: Vec<Key>,
    /// Who wrote what, by key and value.
    pub(super) writers: HashMap<(u32, i64), Writer>,
    /// Lists that are no prefixes of their spine.
    pub(super) odd: Vec<(TxnId, u32, Vec<i64>)>,
    /// Attempts that did not see their own writes, with the key.
    pub(super) blind: Vec<(TxnId, u32)>,
    names: HashMap<String, u32>,
}

/// An attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Txn {
    pub(super) id: u64,
    pub(super) proc: u64,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Unknown ones become committed when somebody has seen what they wrote.
    pub(super) outcome: Outcome,
    /// Its client never knew how it ended: it may have ended at any time after it began.
    pub(super) endless: bool,
    pub(super) commit_ts: Option<u64>,
    /// As of when it read, the store says.
    pub(super) read_ts: Option<u64>,
    first_op: u32,
    ops: u32,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Op {
    pub(super) key: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Append(i64),
    /// So many elements were there that others had appended.
    List(u32),
    Write(Option<i64>),
    Read(Option<i64>, Option<u64>),
}

impl What {
    pub(super) fn writes(self) -> bool {
        matches!(self, What::Append(_) | What::Write(_))
    }
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) name: String,
    /// A list, a register, or not known.
    pub(super) is_list: Option<bool>,
    pub(super) spine: Vec<i64>,
}

/// Who wrote a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) txn: TxnId,
    /// It wrote nothing else to the key afterwards.
    pub(super) last: bool,
    /// Where the value is in the spine, from 1; 0: nobody saw it.
    pub(super) place: u32,
    /// Several have written the same value: it does not tell who.
    pub(super) ambiguous: bool,
}

impl History {
    /// Reads a history. What aborted attempts have read is kept only if it is to be judged, too.
    pub(super) fn read(input: impl BufRead, opaque: bool) -> Result<Self, Flaw> {
        let mut loader = Loader {
            history: History::default(),
            opaque,
            own: HashMap::new(),
            own_values: HashMap::new(),
        };
        let mut unsure = Vec::new();
        Lines::new(input).each(|_, attempt| loader.add(&attempt, &mut unsure))?;
        loader.resolve(unsure);
        Ok(loader.history)
    }

    pub(super) fn ops_of(&self, txn: TxnId) -> &[Op] {
        let Txn { first_op, ops, .. } = self.txns[txn as usize];
        &self.ops[first_op as usize..(first_op + ops) as usize]
    }

    pub(super) fn is_aborted(&self, txn: TxnId) -> bool {
        self.txns[txn as usize].outcome == Outcome::Aborted
    }

    pub(super) fn is_committed(&self, txn: TxnId) -> bool {
        self.txns[txn as usize].outcome == Outcome::Committed
    }

    pub(super) fn name(&self, key: u32) -> &str {
        &self.keys[key as usize].name
    }

    /// The only one of some attempts, as far as it makes a difference.
    fn one_of(&self, attempts: impl Iterator<Item = TxnId>) -> Option<TxnId> {
        let first = |a: TxnId, b: TxnId| {
            let begin = |id: TxnId| self.txns[id as usize].begin;
            if begin(b) < begin(a) { b } else { a }
        };
        let mut attempts = attempts.peekable();
        let pattern = self.ops_of(*attempts.peek()?);
        let alike = attempts.map(|id| (self.ops_of(id) == pattern).then_some(id));
        alike.reduce(|a, b| Some(first(a?, b?)))?
    }

    fn key(&mut self, name: &str) -> u32 {
        if let Some(key) = self.names.get(name) {
            return *key;
        }
        let key = self.keys.len() as u32;
        self.keys.push(Key { name: name.to_owned(), ..Key::default() });
        self.names.insert(name.to_owned(), key);
        key
    }
}

/// A list that an attempt of unknown outcome has read, by its position among the attempt's steps.
type Unsure = (TxnId, u32, u32, Vec<i64>);

struct Loader {
    history: History,
    opaque: bool,
    /// What the attempt at hand has appended to each key.
    own: HashMap<u32, Vec<i64>>,
    /// What it has written to each register.
    own_values: HashMap<u32, Option<i64>>,
}

impl Loader {
    fn add(&mut self, attempt: &Attempt<'_>, unsure: &mut Vec<Unsure>) -> Result<(), String> {
        let id = self.history.txns.len() as TxnId;
        let first_op = self.history.ops.len() as u32;
        self.own.clear();
        self.own_values.clear();
        let judged = self.opaque || attempt.outcome == Outcome::Committed;
        for op in &attempt.ops {
            let key = self.history.key(&op.k);
            self.note_kind(key, op.f, &op.v)?;
            let what = match (op.f, &op.v) {
                (Step::Append, Value::One(element)) => {
                    self.append(id, key, *element, attempt)?;
                    What::Append(*element)
                }
                (Step::W, value) => {
                    let value = if let Value::One(value) = value { Some(*value) } else { None };
                    self.write(id, key, value);
                    What::Write(value)
                }
                (Step::R, Value::Many(list)) => {
                    if attempt.outcome == Outcome::Unknown && !judged {
                        let Some(external) = self.without_own(id, key, list) else { continue };
                        let at = self.history.ops.len() as u32;
                        unsure.push((id, at, key, list[..external].to_vec()));
                        What::List(u32::MAX)
                    } else if judged {
                        let Some(external) = self.without_own(id, key, list) else { continue };
                        let Some(what) = self.prefix(id, key, &list[..external]) else { continue };
                        what
                    } else {
                        continue;
                    }
                }
                (Step::R, _) if !judged && attempt.outcome == Outcome::Aborted => continue,
                (Step::R, Value::One(value)) => What::Read(Some(*value), op.ver),
                (_, _) => What::Read(None, op.ver),
            };
            self.history.ops.push(Op { key, what });
        }
        self.history.txns.push(Txn {
            id: attempt.id,
            proc: attempt.proc,
            begin: attempt.begin,
            end: attempt.end,
            outcome: attempt.outcome,
            endless: attempt.outcome == Outcome::Unknown,
            commit_ts: attempt.commit_ts,
            read_ts: attempt.read_ts,
            first_op,
            ops: self.history.ops.len() as u32 - first_op,
        });
        Ok(())
    }

    fn note_kind(&mut self, key: u32, step: Step, value: &Value) -> Result<(), String> {
        let is_list = match (step, value) {
            (Step::Append, _) | (Step::R, Value::Many(_)) => true,
            (Step::W, _) | (Step::R, Value::One(_)) => false,
            (Step::R, Value::Nothing) => return Ok(()),
        };
        let key = &mut self.history.keys[key as usize];
        if *key.is_list.get_or_insert(is_list) != is_list {
            return Err(format!("key {:?} is a list here and a register elsewhere", key.name));
        }
        Ok(())
    }

    fn append(
        &mut self,
        id: TxnId,
        key: u32,
        element: i64,
        attempt: &Attempt<'_>,
    ) -> Result<(), String> {
        let own = self.own.entry(key).or_default();
        if let Some(before) = own.last()
            && let Some(writer) = self.history.writers.get_mut(&(key, *before))
        {
            writer.last = false;
        }
        own.push(element);
        let writer = Writer { txn: id, last: true, place: 0, ambiguous: false };
        if let Some(other) = self.history.writers.insert((key, element), writer) {
            let other = self.history.txns.get(other.txn as usize).map_or(attempt.id, |txn| txn.id);
            return Err(format!(
                "{element} is appended to key {:?}, as in attempt {other}: elements must be unique",
                self.history.name(key)
            ));
        }
        Ok(())
    }

    fn write(&mut self, id: TxnId, key: u32, value: Option<i64>) {
        if let Some(Some(before)) = self.own_values.insert(key, value)
            && Some(before) != value
            && let Some(writer) = self.history.writers.get_mut(&(key, before))
        {
            writer.last = false;
        }
        let Some(value) = value else { return };
        let writer = Writer { txn: id, last: true, place: 0, ambiguous: false };
        let known = self.history.writers.entry((key, value)).or_insert(writer);
        known.ambiguous |= known.txn != id;
        known.last |= known.txn == id;
    }

    /// How many elements of a list are not the attempt's own; `None` if its own are not at the end.
    fn without_own(&mut self, id: TxnId, key: u32, list: &[i64]) -> Option<usize> {
        let own = self.own.get(&key).map_or(&[][..], Vec::as_slice);
        if !list.ends_with(own) {
            self.history.blind.push((id, key));
            return None;
        }
        Some(list.len() - own.len())
    }

    /// Compares a list with the spine, which it may prolong.
    fn prefix(&mut self, id: TxnId, key: u32, list: &[i64]) -> Option<What> {
        let spine = &mut self.history.keys[key as usize].spine;
        let common = list.len().min(spine.len());
        if list[..common] != spine[..common] {
            self.history.odd.push((id, key, list.to_vec()));
            return None;
        }
        spine.extend_from_slice(&list[common..]);
        Some(What::List(list.len() as u32))
    }

    /// Attempts of unknown outcome are committed if what they wrote was seen; then what they have read
    /// counts, too, and may show others.
    fn resolve(&mut self, mut unsure: Vec<Unsure>) {
        // Of each key, how much of the spine was looked at.
        let mut seen = vec![0; self.history.keys.len()];
        loop {
            let mut found = self.see_registers();
            for (key, seen) in seen.iter_mut().enumerate() {
                let spine = &self.history.keys[key].spine[*seen..];
                for element in spine {
                    let writer = self.history.writers.get(&(key as u32, *element));
                    found.extend(writer.map(|writer| writer.txn));
                }
                *seen += spine.len();
            }
            let odd = std::mem::take(&mut self.history.odd);
            for (_, key, list) in &odd {
                let writers = list.iter().filter_map(|e| self.history.writers.get(&(*key, *e)));
                found.extend(writers.map(|writer| writer.txn));
            }
            self.history.odd = odd;
            found.retain(|id| self.history.txns[*id as usize].outcome == Outcome::Unknown);
            found.iter().for_each(|id| {
                self.history.txns[*id as usize].outcome = Outcome::Committed;
            });
            if found.is_empty() && !self.see_deletes() {
                break;
            }
            for (id, at, key, list) in std::mem::take(&mut unsure) {
                if !self.history.is_committed(id) {
                    unsure.push((id, at, key, list));
                } else if let Some(what) = self.prefix(id, key, &list) {
                    self.history.ops[at as usize].what = what;
                }
            }
        }
    }

    /// Attempts of unknown outcome are committed if somebody misses what they alone can have deleted; whether there were any.
    fn see_deletes(&mut self) -> bool {
        let judges = |id| self.opaque || self.history.is_committed(id);
        let found = deletes::inferred(&self.history, judges);
        for (id, time) in &found {
            let txn = &mut self.history.txns[*id as usize];
            (txn.outcome, txn.commit_ts) = (Outcome::Committed, Some(*time));
        }
        !found.is_empty()
    }

    /// Who wrote what registers were seen to hold. A version that nobody claims may be of an attempt whose
    /// client never got its commit time: if only one can be meant, that is it. Of several that did the same, the one that
    /// began first is taken: whatever is possible with another is possible with that one.
    fn see_registers(&mut self) -> Vec<TxnId> {
        let history = &self.history;
        if history.txns.iter().all(|txn| txn.outcome != Outcome::Unknown) {
            return Vec::new();
        }
        let mut claimed: HashMap<(u32, u64), TxnId> = HashMap::new();
        let mut untimed: HashMap<(u32, Option<i64>), Vec<TxnId>> = HashMap::new();
        for (id, txn) in (0..).zip(&history.txns) {
            for op in history.ops_of(id) {
                match (op.what, txn.commit_ts) {
                    (What::Write(_), Some(time)) => _ = claimed.insert((op.key, time), id),
                    (What::Write(value), None) if txn.endless => {
                        untimed.entry((op.key, value)).or_default().push(id);
                    }
                    _ => {}
                }
            }
        }
        let (mut seen, mut times) = (Vec::new(), Vec::new());
        for id in 0..history.txns.len() as TxnId {
            if !self.opaque && !history.is_committed(id) {
                continue;
            }
            for op in history.ops_of(id) {
                let What::Read(value, version) = op.what else { continue };
                let by_value = value.and_then(|value| history.writers.get(&(op.key, value)));
                let sure = by_value.filter(|writer| !writer.ambiguous).map(|writer| writer.txn);
                let writer = match version {
                    Some(0) => None,
                    None => sure,
                    Some(version) => claimed.get(&(op.key, version)).copied().or_else(|| {
                        let candidates =
                            untimed.get(&(op.key, value)).map_or(&[][..], Vec::as_slice);
                        let others = candidates.iter().filter(|other| **other != id);
                        let one = history.one_of(others.copied());
                        times.extend(one.map(|one| (one, version)));
                        one
                    }),
                };
                seen.extend(writer.filter(|writer| *writer != id));
            }
        }
        for (id, time) in times {
            self.history.txns[id as usize].commit_ts.get_or_insert(time);
        }
        seen
    }
}
