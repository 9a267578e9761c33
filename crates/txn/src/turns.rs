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

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use farside_fabric::{Worker, probe};
use farside_pool::{Addr, within};
use smallvec::SmallVec;

const SHARDS: usize = 64;

/// Who waits for the objects of a shard.
#[derive(Debug, Default)]
struct Shard {
    /// The first is the one whose turn it is. Mostly there is only one.
    queues: HashMap<Addr, SmallVec<[Waiter; 1]>, BuildHasherDefault<AddrHasher>>,
    /// The number of the next who waits.
    next: u64,
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
    shards: [Mutex<Shard>; SHARDS],
}

/// A turn, or a place in the queue for it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    addr: Addr,
    number: u64,
}

/// How long anybody waits: longer than whoever is before it may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Turns {
    /// For a process.
    pub(crate) fn new() -> Arc<Self> {
        let shards = std::array::from_fn(|_| Mutex::default());
        Arc::new(Turns { shards })
    }

    fn shard(&self, addr: Addr) -> MutexGuard<'_, Shard> {
        let hash = (addr.to_word() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        self.shards[hash as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the queue of an object, unless somebody is before it who must not be; and whether it is the first.
    fn enqueue(
        self: &Arc<Self>,
        addr: Addr,
        age: u64,
        must_not: impl Fn(&Waiter) -> bool,
    ) -> Option<(Turn, bool)> {
        let mut shard = self.shard(addr);
        let number = shard.next;
        shard.next += 1;
        let queue = shard.queues.entry(addr).or_default();
        if queue.iter().any(must_not) {
            return None;
        }
        queue.push(Waiter { number, age, waker: None });
        let is_first = queue.len() == 1;
        drop(shard);
        Some((Turn { turns: Arc::clone(self), addr, number }, is_first))
    }

    /// The turn of an object that nobody has.
    pub(crate) fn take(self: &Arc<Self>, addr: Addr, age: u64) -> Option<Turn> {
        self.enqueue(addr, age, |_| true).map(|(turn, _)| turn)
    }

    /// Waits for the turn of an object; `None` if that takes too long, or somebody older is before it while it has
    /// others.
    pub(crate) async fn wait(
        self: &Arc<Self>,
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
        let mut shard = self.turns.shard(self.addr);
        let queue = shard.queues.get_mut(&self.addr).expect("this one waits there");
        let mine =
            queue.iter().position(|it| it.number == self.number).expect("until it is dropped");
        queue[mine].waker = (mine > 0).then(|| waker.clone());
        mine == 0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut shard = self.turns.shard(self.addr);
        let Some(queue) = shard.queues.get_mut(&self.addr) else { return };
        if queue.len() == 1 {
            shard.queues.remove(&self.addr);
            return;
        }
        let mine = queue.iter().position(|it| it.number == self.number);
        mine.map(|at| queue.remove(at));
        let next = queue[0].waker.take().filter(|_| mine == Some(0));
        drop(shard);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    #[test]
    fn turns_come_in_order_and_nothing_is_left_behind() {
        let (turns, worker) = (Turns::new(), Worker::new(1));
        let addr = Addr::new(RegionId(0), 64).unwrap();
        worker.block_on(async {
            let first = turns.wait(&worker, addr, 5, false).await.unwrap();
            let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..5)
                .map(|number| {
                    let (turns, worker) = (Arc::clone(&turns), worker.clone());
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
            assert!(turns.shard(addr).queues.is_empty());
            // A transaction that began again while its locks were still given back waited for ever: both places in
            // the queue were gone with the first (smallbank on sim:connectx-5, 20,000 accounts).
            let before = turns.wait(&worker, addr, 7, false).await.unwrap();
            let (again, clone) = (Arc::clone(&turns), worker.clone());
            let again = worker.spawn(async move { again.wait(&clone, addr, 7, false).await });
            worker.sleep(Duration::from_micros(50)).await;
            drop(before);
            assert!(again.await.is_some());
            assert!(turns.shard(addr).queues.is_empty());
        });
    }
}
