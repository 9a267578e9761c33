//! Finding what a dead session was about to do: its records on all replicas, and the objects that they name.

use std::collections::BTreeMap;

use farside_fabric::Worker;
use farside_pool::alloc::{Place, Used};
use farside_pool::{Addr, Replica};

use super::Repair;
use super::remains::{Copy, Object, Remains};
use crate::TxnError;
use crate::object::{LOCK, Raw, TS, Target, Version};
use crate::queues::{replicas, written};
use crate::record::Record;
use crate::session::is_slab_owner;

/// The heap's word is before records.
const HEAD_BYTES: u64 = 8;

/// How many verbs are posted at once.
const VERBS_PER_ROUND: usize = 1024;

/// A record, and on which replica of its region it is.
pub(super) struct Found {
    replica: usize,
    record: Record,
    old: Version,
}

/// A place that is in use on some replicas only, and one of those.
pub(super) type Half = (Addr, Replica);

impl Repair<'_> {
    /// All records, of all regions at once; and places that are in use on some replicas only.
    pub(super) async fn find_records(&self) -> Result<(Vec<Found>, Vec<Half>), TxnError> {
        let (worker, slot) = (&self.agent.worker, self.dead.slot);
        let mut searches = Vec::new();
        for region in &self.config().regions {
            let Some(primary) = region.replicas.first() else { continue };
            // Without one of its replicas nothing can be decided.
            let place = self.queues.place(region).ok_or(TxnError::Unreachable(primary.node))?;
            let copies = region.replicas.iter().chain(&region.joining).copied();
            let (clone, copies) = (worker.clone(), copies.collect::<Vec<_>>());
            let whole = region.replicas.len();
            let search = async move {
                let used = place.survey_raw(&clone, &|owner| is_slab_owner(slot, owner)).await?;
                let found = read_records(&clone, &place, &used).await?;
                let halves = used.iter().filter(|used| is_half(&used.headers[..whole]));
                let halves = halves.filter_map(|used| Addr::new(place.region, used.offset));
                let copies = copies.into_iter();
                let halves = halves.flat_map(|addr| copies.clone().map(move |copy| (addr, copy)));
                Ok::<_, TxnError>((found, halves.collect::<Vec<_>>()))
            };
            searches.push(worker.spawn(search));
        }
        let (mut all, mut halves) = (Vec::new(), Vec::new());
        for search in searches {
            let (found, more) = search.await?;
            all.extend(found);
            halves.extend(more);
        }
        Ok((all, halves))
    }

    /// What is left of the transactions that still hold a lock.
    pub(super) async fn find_remains(&self, found: Vec<Found>) -> Result<Vec<Remains>, TxnError> {
        let mut all: BTreeMap<u64, Remains> = BTreeMap::new();
        for Found { replica, record, old } in found {
            let Record { id, objects: count, object: addr, room, fresh, erased, time } = record;
            let new = || Remains { id, time, count, objects: Vec::new() };
            let objects = &mut all.entry(id).or_insert_with(new).objects;
            let whole = replicas(self.config(), addr)?.len();
            let joining = written(self.config(), addr)?.count() - whole;
            let at = objects.iter().position(|object| object.addr == addr).unwrap_or_else(|| {
                let copies = (0..whole + joining).map(|at| Copy::new(at >= whole)).collect();
                objects.push(Object { addr, room, fresh, erased, copies });
                objects.len() - 1
            });
            objects[at].copies[replica].old = Some(old);
        }
        // Most are long over, and have no locks: that is seen at little cost.
        let mut all: Vec<Remains> = all.into_values().collect();
        self.look(&mut all, false).await?;
        all.retain(Remains::is_held);
        self.look(&mut all, true).await?;
        all.retain(Remains::is_held);
        Ok(all)
    }

    /// Reads the locks of all objects on all replicas, or the objects, too.
    async fn look(&self, all: &mut [Remains], whole: bool) -> Result<(), TxnError> {
        let mut places = Vec::new();
        for (at, remains) in all.iter().enumerate() {
            for (number, object) in remains.objects.iter().enumerate() {
                let copies = written(self.config(), object.addr)?.enumerate();
                places.extend(copies.map(|(copy, replica)| (at, number, copy, replica)));
            }
        }
        for some in places.chunks(VERBS_PER_ROUND) {
            let mut round = self.agent.worker.round();
            let mut tickets = Vec::with_capacity(some.len());
            for (at, number, _, replica) in some {
                let Object { addr, room, .. } = all[*at].objects[*number];
                let mut bell = round.to(self.queues.to(replica.node)?);
                let base = replica.base + addr.offset();
                let lock = bell.read(base + LOCK, 8);
                let bytes = Target { addr, room }.bytes_from_ts();
                tickets.push((lock, whole.then(|| bell.read(base + TS, bytes))));
            }
            let done = round.ring().await?;
            for ((at, number, copy, _), (lock, object)) in some.iter().zip(tickets) {
                let id = all[*at].id;
                let copy = &mut all[*at].objects[*number].copies[*copy];
                copy.held = done[lock][0] == id;
                if let Some(object) = object {
                    let words = &done[object];
                    copy.ts = words[0];
                    copy.whole = Version::from_words(words).is_some();
                }
            }
        }
        Ok(())
    }
}

/// Whether a place was about to be used, by its first words on replicas that are whole: all have that of a ring or of a
/// large body before it is used, and that of a record when its transaction commits.
fn is_half(headers: &[u64]) -> bool {
    headers[0] == 0 || headers.iter().any(|header| *header != headers[0])
}

/// The records in some places of a region, on all its replicas.
async fn read_records(
    worker: &Worker,
    place: &Place,
    used: &[Used],
) -> Result<Vec<Found>, TxnError> {
    let mut round = worker.round();
    let mut tickets = Vec::new();
    for used in used {
        // A ring has its first word on all replicas before anything is in it.
        let ring =
            used.headers.iter().map(|word| Raw::from_word(*word)).find_map(|raw| match raw {
                Raw::Ring(owner) => Some(owner),
                _ => None,
            });
        for (number, (replica, base)) in place.replicas.iter().chain(&place.joining).enumerate() {
            let spilled = match Raw::from_word(used.headers[number]) {
                Raw::Spilled(owner) => Some(owner),
                _ => None,
            };
            let Some(owner) = ring.or(spilled) else { continue };
            let at = used.offset + HEAD_BYTES;
            let bytes = (used.class.bytes() - HEAD_BYTES) as usize;
            tickets.push((number, at, owner, round.to(replica).read(base + at, bytes)));
        }
    }
    if tickets.is_empty() {
        return Ok(Vec::new());
    }
    let done = round.ring().await?;
    let mut found = Vec::new();
    for (replica, at, owner, ticket) in tickets {
        let records = Record::all(at, &done[ticket], owner).into_iter();
        found.extend(records.map(|(record, old)| Found { replica, record, old }));
    }
    Ok(found)
}
