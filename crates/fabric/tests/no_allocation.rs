//! No verb allocates once its slots are warm.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use farside_fabric::{
    ClientId, MaskedCas, NodeId, Phase, Queue, Result, Tally, Worker, local, shm,
};

struct Counting;

thread_local! {
    /// Of this thread alone: the test harness allocates beside us, whenever it gets to it.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn four_verbs(worker: &Worker, queues: &[Queue], tally: &Tally, i: u64) -> Result<u64> {
    let mut round = worker.round().counted(tally, Phase(1));
    let mut sum = 0;
    let (mut olds, mut bodies) = ([None; 2], [None; 2]);
    for (number, queue) in queues.iter().enumerate() {
        let mut bell = round.to(queue);
        bell.write(64, &[i; 16]);
        olds[number] = Some(bell.cas(0, i, i + 1));
        bell.masked_cas(8, MaskedCas { expected: 0, desired: 1, compare_mask: 1, swap_mask: 1 });
        bell.faa(16, 1);
        bodies[number] = Some(bell.read(64, 4096));
        bell.flush();
    }
    let done = round.ring().await?;
    for (old, body) in olds.iter().zip(&bodies) {
        sum += done[old.unwrap()] + done[body.unwrap()][0];
    }
    let mut round = worker.round();
    round.to(&queues[0]).faa(16, 1);
    round.post().acknowledged().expect("at once on these backends")?;
    Ok(sum)
}

#[test]
fn verbs_allocate_nothing() -> Result<()> {
    let worker = Worker::new(1);
    let cluster = local::Cluster::new(2, 1 << 20)?;
    let client = cluster.client();
    let segments = [0, 1].map(|node| shm::Segment::in_memory(NodeId(node), 1 << 20).unwrap());
    let process = shm::Client::attach(segments, ClientId(1))?;
    let connect = |node| -> Result<[Queue; 2]> {
        Ok([client.connect(&worker, NodeId(node))?, process.connect(&worker, NodeId(node))?])
    };
    let [local0, shm0] = connect(0)?;
    let [local1, shm1] = connect(1)?;
    let tally = Tally::default();
    for queues in [[local0, local1], [shm0, shm1]] {
        worker.block_on(async {
            for i in 0..100 {
                four_verbs(&worker, &queues, &tally, i).await?;
            }
            let before = ALLOCATIONS.get();
            for i in 100..10_100 {
                four_verbs(&worker, &queues, &tally, i).await?;
            }
            let after = ALLOCATIONS.get();
            assert_eq!(after - before, 0, "allocations in 10,000 rounds of 12 verbs");
            Ok::<_, farside_fabric::FabricError>(())
        })?;
    }
    assert_eq!(tally.total().round_trips, 2 * 10_100);
    Ok(())
}
