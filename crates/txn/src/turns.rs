//! Turns: within a process, whoever wants to write an object waits for its turn before it asks for the remote
//! lock, first come, first served (`sherman.txt` §4.3 has the idea). The turn is handed over, never the
//! lock word, which names one transaction.
//!
//! So threads of one process do not fight for a lock over the network: at most one of them asks at a time.
//!
//! Whoever wants several turns takes all of them or none: while it waits for one, others have the rest. Only if that does not
//! succeed for long, or where it has locks already, it keeps what it has, and waits only for transactions that are younger than
//! itself, and gives way to older ones: so no two wait for each other. One that gives way keeps its age when it begins again, and is
//! the oldest some day: nobody starves.

//! Mostly nobody waits: then a turn is a word in a table, taken and given back by one CAS each. Whoever comes while somebody has it
//! turns that word into a queue, which it stays until it is empty.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use farside_fabric::{Worker, probe};
use farside_pool::{Addr, within};
use smallvec::SmallVec;

const SHARDS: usize = 64;

/// Words of the table: several addresses share one now and then, and then have queues.
const SLOTS: usize = 1 << 12;

/// Who has the turn of one of the addresses that share a slot.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Slot {
    /// Nobody has ([`FREE`]), somebody is about to have it ([`TAKING`]), an address in which nobody else is interested
    /// ([`HELD`]), or the number of queues ([`QUEUED`]), which changes only with the lock of the shard.
    state: AtomicU64,
    /// How old the transaction is that has it.
    age: AtomicU64,
}

const FREE: u64 = 0;
const TAKING: u64 = 1;
const HELD: u64 = 2;
const QUEUED: u64 = 3;
/// In the lowest bits: addresses are multiples of eight.
const STATE: u64 = 7;
const ONE_QUEUE: u64 = STATE + 1;

/// Who has a turn without a queue has this number, when there is one after all.
const ALONE: u64 = 0;

/// Who waits for the objects of a shard.
#[derive(Debug, Default)]
struct Shard {
    /// The first is the one whose turn it is. Mostly there is only one.
    queues: HashMap<Addr, SmallVec<[Waiter; 1]>, BuildHasherDefault<AddrHasher>>,
    /// The number of the last who came.
    last: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    age: u64,
    waker: Option<Waker>,
}

/// Addresses are spread well enough.
#[derive(Default)]
struct AddrHasher(u64);

impl Hasher for AddrHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

/// Who is waiting for what, in a process.
#[derive(Debug)]
pub(crate) struct Turns {
    slots: Box<[Slot]>,
    shards: [Mutex<Shard>; SHARDS],
}

/// The turns of its process, as a thread has them.
///
/// Counted by that thread alone: threads would share the count of an `Arc`, for each turn.
#[derive(Clone, Debug)]
pub(crate) struct Desk(Rc<Known>);

#[derive(Debug)]
struct Known(Arc<Turns>);

impl std::ops::Deref for Desk {
    type Target = Turns;

    fn deref(&self) -> &Turns {
        &self.0.0
    }
}

/// A turn, or a place in the queue for it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    desk: Desk,
    addr: Addr,
    number: u64,
}

/// How long anybody waits: longer than whoever is before it may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Turns {
    /// For a process.
    pub(crate) fn new() -> Arc<Self> {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Arc::new(Turns { slots, shards: std::array::from_fn(|_| Mutex::default()) })
    }

    /// The slot of an address, and its shard, which has all addresses of a slot.
    #[inline]
    fn places(&self, addr: Addr) -> (&Slot, &Mutex<Shard>) {
        let hash = (addr.to_word() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (hash >> (64 - SLOTS.trailing_zeros())) as usize;
        (&self.slots[slot], &self.shards[slot % SHARDS])
    }

    fn shard(&self, addr: Addr) -> MutexGuard<'_, Shard> {
        self.places(addr).1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has or wants anything.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        let queues = self.shards.iter().map(|shard| shard.lock().unwrap().queues.len());
        let is_free = |slot: &Slot| slot.state.load(Ordering::Acquire) == FREE;
        queues.sum::<usize>() == 0 && self.slots.iter().all(is_free)
    }

    /// From now on there are queues in a slot. Whoever has a turn there is the first in one.
    fn queue_up(slot: &Slot, shard: &mut Shard) {
        loop {
            let state = slot.state.load(Ordering::Acquire);
            let (next, holder) = match state & STATE {
                QUEUED => return,
                // Its thread is between two steps, or was stopped there.
                TAKING => {
                    std::thread::yield_now();
                    continue;
                }
                HELD => (QUEUED + ONE_QUEUE, Some(Addr::from_word(state & !STATE))),
                _ => (QUEUED, None),
            };
            let age = slot.age.load(Ordering::Relaxed);
            let (done, seen) = (Ordering::AcqRel, Ordering::Relaxed);
            if slot.state.compare_exchange(state, next, done, seen).is_ok() {
                if let Some(addr) = holder {
                    let holder = Waiter { number: ALONE, age, waker: None };
                    shard.queues.insert(addr, SmallVec::from_buf([holder]));
                }
                return;
            }
        }
    }

    fn leave(&self, addr: Addr, number: u64) {
        let (slot, _) = self.places(addr);
        let free = || {
            let (done, seen) = (Ordering::Release, Ordering::Relaxed);
            slot.state.compare_exchange(addr.to_word() | HELD, FREE, done, seen).is_ok()
        };
        if number == ALONE && free() {
            return;
        }
        let mut shard = self.shard(addr);
        let Some(queue) = shard.queues.get_mut(&addr) else { return };
        if queue.len() == 1 {
            shard.queues.remove(&addr);
            let left = slot.state.load(Ordering::Relaxed) - ONE_QUEUE;
            slot.state.store(if left == QUEUED { FREE } else { left }, Ordering::Release);
            return;
        }
        let mine = queue.iter().position(|it| it.number == number);
        mine.map(|at| queue.remove(at));
        let next = queue[0].waker.take().filter(|_| mine == Some(0));
        drop(shard);
        if let Some(next) = next {
            next.wake();
        }
    }
}

impl Desk {
    /// A thread's.
    pub(crate) fn new(turns: &Arc<Turns>) -> Self {
        Desk(Rc::new(Known(Arc::clone(turns))))
    }

    fn turn(&self, addr: Addr, number: u64) -> Turn {
        Turn { desk: self.clone(), addr, number }
    }

    /// A turn that nobody has, and for which nobody waits.
    #[inline]
    fn take_alone(&self, slot: &Slot, addr: Addr, age: u64) -> Option<Turn> {
        let (done, seen) = (Ordering::Acquire, Ordering::Relaxed);
        slot.state.compare_exchange(FREE, TAKING, done, seen).ok()?;
        slot.age.store(age, Ordering::Relaxed);
        slot.state.store(addr.to_word() | HELD, Ordering::Release);
        Some(self.turn(addr, ALONE))
    }

    /// A place in the queue of an object, unless somebody is before it who must not be; and whether it is the first.
    fn enqueue(
        &self,
        addr: Addr,
        age: u64,
        must_not: impl Fn(&Waiter) -> bool,
    ) -> Option<(Turn, bool)> {
        let (slot, _) = self.places(addr);
        if let Some(turn) = self.take_alone(slot, addr, age) {
            return Some((turn, true));
        }
        let mut shard = self.shard(addr);
        Turns::queue_up(slot, &mut shard);
        shard.last += 1;
        let number = shard.last;
        let queue = shard.queues.entry(addr).or_default();
        if queue.iter().any(must_not) {
            return None;
        }
        queue.push(Waiter { number, age, waker: None });
        let is_first = queue.len() == 1;
        if is_first {
            // With the lock of the shard nobody else changes it.
            let queues = slot.state.load(Ordering::Relaxed);
            slot.state.store(queues + ONE_QUEUE, Ordering::Relaxed);
        }
        drop(shard);
        Some((self.turn(addr, number), is_first))
    }

    /// The turn of an object that nobody has.
    pub(crate) fn take(&self, addr: Addr, age: u64) -> Option<Turn> {
        let (slot, _) = self.places(addr);
        if slot.state.load(Ordering::Relaxed) == addr.to_word() | HELD {
            return None;
        }
        self.enqueue(addr, age, |_| true).map(|(turn, _)| turn)
    }

    /// Waits for the turn of an object; `None` if that takes too long, or somebody older is before it while it has
    /// others.
    pub(crate) async fn wait(
        &self,
        worker: &Worker,
        addr: Addr,
        age: u64,
        has_others: bool,
    ) -> Option<Turn> {
        let Some((turn, is_first)) =
            self.enqueue(addr, age, |before| has_others && before.age < age)
        else {
            probe!("a transaction gives way to an older one");
            return None;
        };
        if is_first {
            return Some(turn);
        }
        probe!("a transaction waits for its turn");
        let comes = poll_fn(|cx| match turn.has_come(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        if within(worker, PATIENCE, comes).await.is_none() {
            probe!("a transaction does not wait for its turn any longer");
            return None;
        }
        Some(turn)
    }
}

impl Turn {
    /// Whether it is the first of its queue; if not, somebody will wake it.
    fn has_come(&self, waker: &Waker) -> bool {
        let mut shard = self.desk.shard(self.addr);
        let queue = shard.queues.get_mut(&self.addr).expect("this one waits there");
        let mine =
            queue.iter().position(|it| it.number == self.number).expect("until it is dropped");
        queue[mine].waker = (mine > 0).then(|| waker.clone());
        mine == 0
    }
}

impl Drop for Turn {
    #[inline]
    fn drop(&mut self) {
        self.desk.leave(self.addr, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    #[test]
    fn turns_come_in_order_and_nothing_is_left_behind() {
        let (turns, worker) = (Desk::new(&Turns::new()), Worker::new(1));
        let addr = Addr::new(RegionId(0), 64).unwrap();
        worker.block_on(async {
            let first = turns.wait(&worker, addr, 5, false).await.unwrap();
            let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..5)
                .map(|number| {
                    let (turns, worker) = (turns.clone(), worker.clone());
                    let (order, clone) = (std::rc::Rc::clone(&order), worker.clone());
                    worker.spawn(async move {
                        let turn =
                            turns.wait(&clone, addr, 10 + number, number % 2 == 7).await.unwrap();
                        order.borrow_mut().push(number);
                        drop(turn);
                    })
                })
                .collect();
            worker.sleep(Duration::from_millis(1)).await;
            assert!(
                turns.wait(&worker, addr, 9, true).await.is_none(),
                "it holds others, and gives way to an older one"
            );
            assert!(order.borrow().is_empty());
            drop(first);
            for task in tasks {
                task.await;
            }
            assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
            assert!(turns.is_idle());
            // A transaction that began again while its locks were still given back waited for ever: both places in
            // the queue were gone with the first (smallbank on sim:connectx-5, 20,000 accounts).
            let before = turns.wait(&worker, addr, 7, false).await.unwrap();
            let (again, clone) = (turns.clone(), worker.clone());
            let again = worker.spawn(async move { again.wait(&clone, addr, 7, false).await });
            worker.sleep(Duration::from_micros(50)).await;
            drop(before);
            assert!(again.await.is_some());
            assert!(turns.is_idle());
        });
    }

    /// Threads that want the same few objects, several of which share a slot: no two have a turn at a time, nobody waits in vain, and
    /// nothing is left behind.
    #[test]
    fn a_turn_is_had_by_one_at_a_time() {
        let (turns, bytes) = (Turns::new(), 8 * SLOTS as u64 * 4);
        let slot = |addr: Addr| std::ptr::from_ref(turns.places(addr).0);
        let all = (0..bytes / 8).map(|n| Addr::new(RegionId(0), n * 8).unwrap());
        let first = Addr::new(RegionId(0), 0).unwrap();
        let addrs: Vec<Addr> = all.filter(|addr| slot(*addr) == slot(first)).take(3).collect();
        assert_eq!(addrs.len(), 3, "they share a slot");
        let had: Vec<AtomicU64> = addrs.iter().map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (turns, had, addrs) = (Arc::clone(&turns), &had, &addrs);
                scope.spawn(move || {
                    let (desk, worker) = (Desk::new(&turns), Worker::new(thread));
                    worker.block_on(async {
                        for round in 0..3000u64 {
                            let which = (worker.random_below(3)) as usize;
                            let age = round * 4 + thread;
                            let turn = match desk.take(addrs[which], age) {
                                Some(turn) => turn,
                                None => desk.wait(&worker, addrs[which], age, false).await.unwrap(),
                            };
                            assert_eq!(had[which].fetch_add(1, Ordering::SeqCst), 0);
                            if round % 16 == 0 {
                                std::thread::yield_now();
                            }
                            had[which].fetch_sub(1, Ordering::SeqCst);
                            drop(turn);
                        }
                    });
                });
            }
        });
        assert!(turns.is_idle());
    }
}
