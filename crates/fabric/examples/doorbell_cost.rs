//! A doorbell of four verbs, awaited by a task, again and again; or only the copies that it makes.
//! `cargo xtask cost` counts the instructions of both.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::memory::{load_words, store_words};
use farside_fabric::{ClientId, NodeId, Queue, Result, Worker, local, shm};

/// Lock and read an object of 64 bytes, write another one, and add to a counter.
async fn doorbells(worker: Worker, queue: Queue, rounds: u64) -> Result<u64> {
    let mut sum = 0;
    let object = [7; 8];
    for i in 0..rounds {
        let mut round = worker.round();
        let (lock, body, counter) = {
            let mut bell = round.to(&queue);
            bell.write(128, &object);
            (bell.cas(0, i, i + 1), bell.read(64, 64), bell.faa(8, 1))
        };
        let done = round.ring().await?;
        sum += done[lock] + done[counter] + done[body][7];
    }
    Ok(sum)
}

/// What of that must be done in any case.
fn copies(rounds: u64) -> u64 {
    let memory: Vec<AtomicU64> = (0..32).map(AtomicU64::new).collect();
    let memory = black_box(memory.as_slice());
    memory[0].store(0, Ordering::Relaxed);
    let object = black_box([7; 8]);
    let mut body = [0; 8];
    let mut sum = 0;
    for i in 0..rounds {
        store_words(&object, &memory[16..24]);
        let lock = memory[0].compare_exchange(i, i + 1, Ordering::SeqCst, Ordering::SeqCst);
        load_words(&memory[8..16], &mut body);
        let counter = memory[1].fetch_add(1, Ordering::SeqCst);
        sum += lock.unwrap_or(0) + counter + black_box(&body)[7];
    }
    sum
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, rounds] = args.as_slice() else {
        panic!("usage: doorbell_cost copies|local|shm ROUNDS");
    };
    let rounds = rounds.parse().expect("a number of rounds");
    let worker = Worker::new(1);
    let sum = match mode.as_str() {
        "copies" => copies(rounds),
        "local" => {
            let queue = local::Cluster::new(1, 4096)?.client().connect(&worker, NodeId(0))?;
            worker.block_on(worker.spawn(doorbells(worker.clone(), queue, rounds)))?
        }
        "shm" => {
            let segment = shm::Segment::in_memory(NodeId(0), 4096)?;
            let queue = shm::Client::attach([segment], ClientId(1))?.connect(&worker, NodeId(0))?;
            worker.block_on(worker.spawn(doorbells(worker.clone(), queue, rounds)))?
        }
        other => panic!("'{other}' is neither copies, local nor shm"),
    };
    println!("{sum}");
    Ok(())
}
