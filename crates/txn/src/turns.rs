//! Turns: within a process, whoever wants to write an object waits for its turn before it asks for the remote
//! lock, first come, first served (`sherman.txt` §4.3 has the idea). The turn is handed over, never the
//! lock word, which names one transaction.
//!
//! So threads of one process do not fight for a lock over the network: at most one of them asks at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_fabric::{Worker, probe};
use farside_pool::Addr;

const SHARDS: usize = 64;

/// Who is waiting for what, in a process.
#[derive(Debug)]
pub(crate) struct Turns {
    shards: [Mutex<HashMap<Addr, VecDeque<u64>>>; SHARDS],
    next: AtomicU64,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    addr: Addr,
    number: u64,
}

/// How long somebody who holds other turns waits for one more: two could wait for each other.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_micros(50);

/// How long anybody waits: longer than whoever is before it may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Turns {
    /// For a process.
    pub(crate) fn new() -> Arc<Self> {
        let shards = std::array::from_fn(|_| Mutex::default());
        Arc::new(Turns { shards, next: AtomicU64::new(1) })
    }

    fn shard(&self, addr: Addr) -> MutexGuard<'_, HashMap<Addr, VecDeque<u64>>> {
        let hash = (addr.to_word() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        self.shards[hash as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of an object; `None` if that takes too long.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        worker: &Worker,
        addr: Addr,
        has_others: bool,
    ) -> Option<Turn> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(addr).entry(addr).or_default().push_back(number);
        // From here on the place in the queue is given up when this is dropped.
        let turn = Turn { turns: Arc::clone(self), addr, number };
        let start = worker.now();
        let patience = if has_others { PATIENCE_WITH_OTHERS } else { PATIENCE };
        for tries in 0u32.. {
            if turn.has_come() {
                break;
            }
            if tries == 0 {
                probe!("a transaction waits for its turn");
            }
            if worker.now() - start > patience {
                probe!("a transaction does not wait for its turn any longer");
                return None;
            }
            worker.sleep(Duration::from_nanos(200 << tries.min(4))).await;
        }
        Some(turn)
    }
}

impl Turn {
    fn has_come(&self) -> bool {
        let shard = self.turns.shard(self.addr);
        shard.get(&self.addr).and_then(VecDeque::front) == Some(&self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut shard = self.turns.shard(self.addr);
        if let Some(waiting) = shard.get_mut(&self.addr) {
            waiting.retain(|number| *number != self.number);
            if waiting.is_empty() {
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
            let first = turns.wait(&worker, addr, false).await.unwrap();
            let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..5)
                .map(|number| {
                    let (turns, worker) = (Arc::clone(&turns), worker.clone());
                    let (order, clone) = (std::rc::Rc::clone(&order), worker.clone());
                    worker.spawn(async move {
                        let turn = turns.wait(&clone, addr, false).await.unwrap();
                        order.borrow_mut().push(number);
                        drop(turn);
                    })
                })
                .collect();
            worker.sleep(Duration::from_millis(1)).await;
            assert!(
                turns.wait(&worker, addr, true).await.is_none(),
                "it holds others, and gives way"
            );
            assert!(order.borrow().is_empty());
            drop(first);
            for task in tasks {
                task.await;
            }
            assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
            assert!(turns.shard(addr).is_empty());
        });
    }
}
