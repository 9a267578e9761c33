//! What the simulator's memory goes to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use farside_fabric::{NodeId, Queue};
use farside_sim::{Faults, Profile, Sim};

struct Counting;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test only: the allocations of another thread would be counted too.
#[test]
fn memory_is_bounded() {
    an_idle_coordinator_takes_less_than_4_kib();
    a_world_that_ends_leaves_nothing_behind();
}

fn connectx_5() -> Profile {
    Profile::named("connectx-5").unwrap()
}

/// Thousands of coordinators on tens of machines: what one of them costs while it waits.
fn an_idle_coordinator_takes_less_than_4_kib() {
    const MACHINES: usize = 20;
    const COORDINATORS: usize = 500;
    let sim = Sim::new(connectx_5(), 1, Faults::none());
    let nodes: Vec<_> = (0..10).map(|_| sim.add_node(1 << 16)).collect();
    let ready = Rc::new(Cell::new(0));
    let mut tasks = Vec::new();
    let threads: Vec<_> = (0..MACHINES)
        .map(|_| {
            let process = sim.add_process();
            let worker = sim.add_thread(process);
            let connect = |node: &NodeId| sim.connect(process, &worker, *node).unwrap();
            let queues: Rc<[Queue]> = nodes.iter().map(connect).collect();
            (worker, queues)
        })
        .collect();
    let before = ALLOCATED.load(Ordering::Relaxed);
    for (worker, queues) in &threads {
        for _ in 0..COORDINATORS {
            let (me, queues, ready) = (worker.clone(), Rc::clone(queues), Rc::clone(&ready));
            tasks.push(worker.spawn(async move {
                let mut round = me.round();
                queues.iter().for_each(|queue| _ = round.to(queue).read(0, 64));
                round.ring().await.unwrap();
                ready.set(ready.get() + 1);
                me.sleep(Duration::from_secs(3600)).await;
            }));
        }
    }
    let observer = sim.add_thread(sim.add_process());
    observer.block_on(observer.sleep(Duration::from_millis(1)));
    assert_eq!(ready.get(), MACHINES * COORDINATORS, "all have done something and are idle now");
    let each = (ALLOCATED.load(Ordering::Relaxed) - before) / (MACHINES * COORDINATORS) as i64;
    println!("{each} bytes each");
    assert!(each < 4096, "{each} bytes for each of {} coordinators", MACHINES * COORDINATORS);
}

fn a_world_that_ends_leaves_nothing_behind() {
    let run = || {
        let sim = Sim::new(connectx_5(), 1, Faults::order());
        let node = sim.add_node(1 << 16);
        let mut doomed = Vec::new();
        for number in 0..10 {
            let process = sim.add_process();
            let worker = sim.add_thread(process);
            let queue = sim.connect(process, &worker, node).unwrap();
            let me = worker.clone();
            let endless = worker.spawn(async move {
                loop {
                    let mut round = me.round();
                    round.to(&queue).write(8, &[1; 20]);
                    round.ring().await.unwrap();
                }
            });
            endless.detach();
            if number % 2 == 0 {
                doomed.push(process);
            }
        }
        let observer = sim.add_thread(sim.add_process());
        observer.block_on(async {
            observer.sleep(Duration::from_micros(100)).await;
            doomed.into_iter().for_each(|process| sim.kill(process));
            observer.sleep(Duration::from_micros(100)).await;
        });
    };
    run();
    let before = ALLOCATED.load(Ordering::Relaxed);
    (0..20).for_each(|_| run());
    let left = ALLOCATED.load(Ordering::Relaxed) - before;
    assert!(left < 10_000, "{left} bytes are left of 20 worlds");
}
