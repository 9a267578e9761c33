//! Turns: within a process, whoever wants to write an object waits for its turn before it asks for the remote
//! lock, first come, first served (`sherman.txt` §4.3 has the idea). The turn is handed over, never the
//! lock word, which names one transaction.
//!
//! So threads of one process do not fight for a lock over the network: at most one of them asks at a time.
//!
//! Whoever has turns already, and wants one more, waits only for transactions that are younger than itself, and gives
//! way to older ones: so no two wait for each other. One that gives way keeps its age when it begins again, and is
//! the oldest some day: nobody starves.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_fabric::{Worker, probe};
use farside_pool::Addr;
use smallvec::SmallVec;

const SHARDS: usize = 64;

/// Who waits for each object, the first first: their ages. Mostly there is only one.
type Shard = HashMap<Addr, SmallVec<[u64; 2]>, BuildHasherDefault<AddrHasher>>;

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

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    addr: Addr,
    age: u64,
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

    /// Waits for the turn of an object; `None` if that takes too long, or somebody older is before it while it has
    /// others.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        worker: &Worker,
        addr: Addr,
        age: u64,
        has_others: bool,
    ) -> Option<Turn> {
        {
            let mut shard = self.shard(addr);
            let waiting = shard.entry(addr).or_default();
            if has_others && waiting.iter().any(|before| *before < age) {
                probe!("a transaction gives way to an older one");
                return None;
            }
            waiting.push(age);
            if waiting.len() == 1 {
                drop(shard);
                return Some(Turn { turns: Arc::clone(self), addr, age });
            }
        }
        // From here on the place in the queue is given up when this is dropped.
        let turn = Turn { turns: Arc::clone(self), addr, age };
        probe!("a transaction waits for its turn");
        let start = worker.now();
        for tries in 0u32.. {
            worker.sleep(Duration::from_nanos(200 << tries.min(4))).await;
            if turn.has_come() {
                break;
            }
            if worker.now() - start > PATIENCE {
                probe!("a transaction does not wait for its turn any longer");
                return None;
            }
        }
        Some(turn)
    }
}

impl Turn {
    fn has_come(&self) -> bool {
        let shard = self.turns.shard(self.addr);
        let first = shard.get(&self.addr).and_then(|waiting| waiting.first());
        first == Some(&self.age)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut shard = self.turns.shard(self.addr);
        if let Some(waiting) = shard.get_mut(&self.addr) {
            // One that began again may wait for what it gives back itself: only one of the two goes.
            if waiting.len() > 1 {
                let mine = waiting.iter().position(|age| *age == self.age);
                mine.map(|at| waiting.remove(at));
            } else {
                shard.remove(&self.addr);
            }
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
            assert!(turns.shard(addr).is_empty());
            // A transaction that began again while its locks were still given back waited for ever: both places in
            // the queue were gone with the first (smallbank on sim:connectx-5, 20,000 accounts).
            let before = turns.wait(&worker, addr, 7, false).await.unwrap();
            let (again, clone) = (Arc::clone(&turns), worker.clone());
            let again = worker.spawn(async move { again.wait(&clone, addr, 7, false).await });
            worker.sleep(Duration::from_micros(50)).await;
            drop(before);
            assert!(again.await.is_some());
            assert!(turns.shard(addr).is_empty());
        });
    }
}
