//! Where a thread keeps the records of its transactions in a region: one after the other, in a circle.
//!
//! A record is the old version of an object, so its place is used again only when its transaction has released
//! all its locks, and nobody reads a snapshot that is older than its commit time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use farside_fabric::probe;
use farside_pool::Addr;

use crate::object::Target;
use crate::txn::Txn;
use crate::{TxnError, horizon, record};

/// The heap's word is before it.
const HEAD_BYTES: u64 = 8;

/// The heap's word, before a record that is outside of the ring.
pub(crate) const RECORD_HEAD: u64 = 8;

/// A place for a record, and whether that is outside of the ring.
pub(crate) type RecordPlace = (u64, bool);

/// Whether a transaction has released all its locks.
pub(crate) type Released = Rc<Cell<bool>>;

#[derive(Debug)]
pub(crate) struct Ring {
    /// The object that it is in.
    place: Addr,
    /// Where it begins in the region, and how long it is.
    begin: u64,
    bytes: u64,
    /// Where the next record goes, from the beginning.
    next: u64,
    /// The oldest first.
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    at: u64,
    /// The commit time of the version that took the old one's place.
    time: u64,
    released: Released,
}

impl Ring {
    /// In an object of so many bytes, all of which was in use until a time.
    pub(crate) fn new(place: Addr, bytes: u64, busy_until: u64) -> Self {
        let (begin, bytes) = (place.offset() + HEAD_BYTES, bytes - HEAD_BYTES);
        let released = Rc::new(Cell::new(true));
        let busy = Slot { at: 0, time: busy_until, released };
        let slots = VecDeque::from_iter((busy_until > 0).then_some(busy));
        Ring { place, begin, bytes, next: if slots.is_empty() { 0 } else { bytes }, slots }
    }

    /// Where it is, and until when it is needed.
    pub(crate) fn into_place(self) -> (Addr, u64) {
        (self.place, self.slots.iter().map(|slot| slot.time).max().unwrap_or(0))
    }

    /// Forgets records that nobody needs: released, and older than every snapshot.
    pub(crate) fn forget(&mut self, horizon: u64) {
        while self.slots.front().is_some_and(|slot| slot.released.get() && slot.time < horizon) {
            self.slots.pop_front();
        }
        if self.slots.is_empty() {
            self.next = 0;
        }
    }

    /// A place for a record, as an offset of the region; `None` if there is none now. Whoever reads it may read
    /// `reach` bytes from there, and no more than there are.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        reach: u64,
        time: u64,
        released: &Released,
    ) -> Option<u64> {
        let at = match self.slots.front().map(|oldest| oldest.at) {
            None => 0,
            Some(oldest) if self.next > oldest => {
                if self.next + reach <= self.bytes {
                    self.next
                } else if bytes <= oldest {
                    0
                } else {
                    return None;
                }
            }
            Some(oldest) if self.next + bytes <= oldest => self.next,
            Some(_) => return None,
        };
        if at + reach > self.bytes {
            return None;
        }
        self.next = at + bytes;
        self.slots.push_back(Slot { at, time, released: Rc::clone(released) });
        Some(self.begin + at)
    }
}

impl Txn {
    /// A place for a record in the ring, if there is one, and room.
    pub(crate) fn ring_slot(&self, at: usize, time: u64, released: &Released) -> Option<u64> {
        let Target { addr, room } = self.entries[at].target;
        let bytes = record::bytes(self.entries[at].version.words.len() as u32);
        // Readers do not know how long the old version is.
        let reach = record::bytes(room);
        self.agent
            .with_ring(addr.region(), |ring: &mut Ring| ring.take(bytes, reach, time, released))?
    }

    /// A place for a record, and whether that is outside of the ring: where there is no room in it, because somebody
    /// reads an old snapshot, or this writes much, a record has a place of its own.
    pub(crate) async fn take_slot(
        &mut self,
        at: usize,
        time: u64,
        released: &Released,
    ) -> Result<RecordPlace, TxnError> {
        if let Some(place) = self.ring_slot(at, time, released) {
            return Ok((place, false));
        }
        Box::pin(self.find_slot(at, time, released)).await
    }

    /// The same, where it takes longer.
    async fn find_slot(
        &mut self,
        at: usize,
        time: u64,
        released: &Released,
    ) -> Result<RecordPlace, TxnError> {
        let Target { addr, room } = self.entries[at].target;
        let (region, reach) = (addr.region(), record::bytes(room));
        self.agent.need_ring(region).await?;
        let start = self.agent.worker.now();
        loop {
            if let Some(place) = self.ring_slot(at, time, released) {
                return Ok((place, false));
            }
            horizon::look(&self.agent).await?;
            if let Some(place) = self.ring_slot(at, time, released) {
                return Ok((place, false));
            }
            let waited = self.agent.worker.now() - start;
            let outside = self.agent.place_outside(region, reach + RECORD_HEAD, waited).await?;
            if let Some(addr) = outside {
                probe!("a record is outside of the ring");
                self.spilled.push(addr);
                return Ok((addr.offset() + RECORD_HEAD, true));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_when_nobody_needs_them() {
        let place = Addr::new(farside_pool::RegionId(0), 992).unwrap();
        let mut ring = Ring::new(place, 108, 0);
        let released = Released::default();
        assert_eq!(ring.take(40, 40, 5, &released), Some(1000));
        assert_eq!(ring.take(40, 40, 6, &released), Some(1040));
        assert_eq!(ring.take(40, 40, 7, &released), None, "full");
        ring.forget(100);
        assert_eq!(ring.take(40, 40, 7, &released), None, "not released");
        released.set(true);
        ring.forget(6);
        assert_eq!(ring.take(40, 40, 7, &released), Some(1000), "the first is older than 6");
        assert_eq!(ring.take(8, 8, 8, &released), None);
        ring.forget(7);
        assert_eq!(ring.take(60, 60, 9, &released), Some(1040));
        assert_eq!(ring.take(1, 1, 9, &released), None);
        ring.forget(100);
        assert_eq!(ring.take(100, 100, 10, &released), Some(1000));
        let (place, busy_until) = ring.into_place();
        assert_eq!(busy_until, 10);
        let mut next = Ring::new(place, 108, busy_until);
        next.forget(10);
        assert_eq!(next.take(8, 8, 11, &released), None, "the thread before needs it");
        next.forget(11);
        assert_eq!(next.take(8, 8, 11, &released), Some(1000));
    }

    /// Nothing that is still needed is handed out again, whatever the order of sizes and releases.
    #[test]
    fn places_never_overlap() {
        let mut random = farside_fabric::runtime::Random::new(3);
        let place = Addr::new(farside_pool::RegionId(0), 0).unwrap();
        let mut ring = Ring::new(place, 508, 0);
        let mut held: VecDeque<(u64, u64, u64, Released)> = VecDeque::new();
        let mut taken = 0;
        for time in 1..20_000 {
            let bytes = 8 * (1 + random.below(20));
            let released = Released::default();
            if let Some(at) = ring.take(bytes, bytes, time, &released) {
                taken += 1;
                assert!(at + bytes <= 508);
                assert!(held.iter().all(|(a, b, ..)| at + bytes <= *a || a + b <= at));
                held.push_back((at, bytes, time, released));
            }
            let horizon = time.saturating_sub(random.below(5));
            held.iter()
                .for_each(|(.., released)| released.set(released.get() | (random.below(3) == 0)));
            while held.front().is_some_and(|(.., t, released)| released.get() && *t < horizon) {
                held.pop_front();
            }
            ring.forget(horizon);
        }
        assert!(taken > 5000, "{taken}");
    }
}
