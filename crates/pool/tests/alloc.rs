//! Allocation: mixed sizes, random frees, several threads and processes, owners that are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside_fabric::shm::{Client, Segment};
use farside_fabric::{ClientId, NodeId, Queue, Worker, local};
use farside_pool::alloc::{FREED, Heap, Place, REGION_HEAD_BYTES, SafePoint, SizeClass};
use farside_pool::{Addr, RegionId};

const REGION: RegionId = RegionId(3);
const BYTES: u64 = 32 << 20;

/// Memory of this process, and a worker with a queue to each node.
fn bed(nodes: u16) -> (local::Cluster, Worker, Vec<Queue>) {
    let cluster = local::Cluster::new(nodes, BYTES + 4096).unwrap();
    let worker = Worker::new(7);
    let connect = |node| cluster.client().connect(&worker, NodeId(node)).unwrap();
    let queues = (0..nodes).map(connect).collect();
    (cluster, worker, queues)
}

/// Nobody keeps addresses here.
struct Always;

impl SafePoint for Always {
    fn now(&self) -> u64 {
        0
    }

    fn has_passed(&self, _: u64) -> bool {
        true
    }
}

fn place(queues: &[Queue]) -> Place {
    let replicas = queues.iter().map(|queue| (queue.clone(), 4096)).collect();
    Place { region: REGION, bytes: BYTES, replicas, joining: Vec::new() }
}

async fn header(worker: &Worker, queue: &Queue, addr: Addr) -> u64 {
    let mut round = worker.round();
    let word = round.to(queue).read(4096 + addr.offset(), 8);
    round.ring().await.unwrap()[word][0]
}

/// Sets the first word of an object on all replicas.
async fn set_header(worker: &Worker, queues: &[Queue], addr: Addr, header: u64) {
    let mut round = worker.round();
    for queue in queues {
        round.to(queue).write(4096 + addr.offset(), &[header]);
    }
    round.ring().await.unwrap();
}

async fn allocate(heap: &mut Heap, bytes: u64) -> Option<Addr> {
    let class = SizeClass::of(bytes).unwrap();
    if let Some(addr) = heap.allocate(class) {
        return Some(addr);
    }
    heap.refill(class).await.unwrap().then(|| heap.allocate(class).expect("a fresh slab"))
}

/// Takes over what the dead owned.
async fn inherit(worker: &Worker, heap: &mut Heap, place: &Place, dead: &[u64]) -> usize {
    place.disown(worker, &|owner| dead.contains(&owner)).await.unwrap();
    heap.adopt_abandoned().await.unwrap()
}

fn any_size(worker: &Worker) -> u64 {
    let largest = 1 << worker.random_below(21);
    1 + worker.random_below(largest)
}

#[test]
fn objects_never_overlap_and_space_comes_back() {
    let (_cluster, worker, queues) = bed(2);
    worker.block_on(async {
        let mut heap = Heap::new(&worker, 9, vec![place(&queues)]);
        let mut live: BTreeMap<u64, (u64, Addr)> = BTreeMap::new();
        let mut full = 0;
        for _ in 0..20_000 {
            if worker.random_below(100) < 75 {
                let bytes = any_size(&worker);
                let Some(addr) = allocate(&mut heap, bytes).await else {
                    full += 1;
                    continue;
                };
                let (start, end) = (addr.offset(), addr.offset() + bytes);
                assert!(start >= REGION_HEAD_BYTES && end <= BYTES && start % 8 == 0);
                let before = live.range(..end).next_back().map(|(at, (bytes, _))| at + bytes);
                assert!(before.is_none_or(|before| before <= start), "two objects overlap");
                live.insert(start, (bytes, addr));
            } else if let Some((at, _)) = live.range(worker.random_below(BYTES)..).next() {
                let (_, addr) = live.remove(&at.clone()).unwrap();
                assert!(heap.free(addr));
            }
        }
        assert!(full > 0, "the region was never full");
        let used: usize = heap.space().values().map(|space| space.used).sum();
        assert_eq!(used, live.len());
        live.values().for_each(|(_, addr)| assert!(heap.free(*addr)));
        while heap.tidy(&Always).await.unwrap() > 0 {}
        // What is left is one slab of each class that was used.
        assert!(heap.space().values().all(|space| space.slabs == 1 && space.used == 0));
        // Both replicas know the same.
        let mut round = worker.round();
        let tables: Vec<_> = queues.iter().map(|queue| round.to(queue).read(4096, 4096)).collect();
        let done = round.ring().await.unwrap();
        assert_eq!(done[tables[0]], done[tables[1]]);
    });
}

/// A reader that could have an old address keeps a slab from becoming another class.
#[test]
fn a_slab_waits_for_the_safe_point() {
    struct NotYet;
    impl SafePoint for NotYet {
        fn now(&self) -> u64 {
            5
        }
        fn has_passed(&self, moment: u64) -> bool {
            assert_eq!(moment, 5);
            false
        }
    }
    let (_cluster, worker, queues) = bed(1);
    worker.block_on(async {
        let mut heap = Heap::new(&worker, 9, vec![place(&queues)]);
        let class = SizeClass::of(1 << 15).unwrap();
        let objects: Vec<_> = {
            let mut objects = Vec::new();
            while objects.len() < 8 {
                objects.push(allocate(&mut heap, class.bytes()).await.unwrap());
            }
            objects
        };
        let slabs = |heap: &Heap| heap.space()[&class.bytes()].slabs;
        let before = slabs(&heap);
        assert!(before > 1);
        objects.into_iter().for_each(|addr| assert!(heap.free(addr)));
        assert_eq!(heap.tidy(&NotYet).await, Ok(0));
        assert_eq!(slabs(&heap), before);
        assert_eq!(heap.tidy(&Always).await, Ok(before - 1));
    });
}

/// What others free comes back to its owner, with the hint or without.
#[test]
fn objects_that_others_free_come_back() {
    let (_cluster, worker, queues) = bed(2);
    worker.block_on(async {
        let mut owner = Heap::new(&worker, 1, vec![place(&queues)]);
        let mut other = Heap::new(&worker, 2, vec![place(&queues)]);
        let mut objects = Vec::new();
        for number in 0..500u64 {
            let addr = allocate(&mut owner, any_size(&worker) % 5000 + 1).await.unwrap();
            set_header(&worker, &queues, addr, 100 + number).await;
            objects.push((addr, 100 + number));
        }
        for (addr, header) in &objects {
            assert!(!other.free(*addr), "it is not the other's");
            assert_eq!(other.free_elsewhere(*addr, *header + 1).await, Ok(false), "another header");
            assert_eq!(other.free_elsewhere(*addr, *header).await, Ok(true));
            assert_eq!(other.free_elsewhere(*addr, *header).await, Ok(false), "twice");
        }
        let used = |heap: &Heap| heap.space().values().map(|space| space.used).sum::<usize>();
        assert_eq!((used(&owner), owner.collect().await), (500, Ok(500)));
        assert_eq!((used(&owner), owner.collect().await, owner.scrub().await), (0, Ok(0), Ok(0)));
        // Without the hint.
        let addr = allocate(&mut owner, 64).await.unwrap();
        set_header(&worker, &queues, addr, FREED).await;
        assert_eq!((owner.collect().await, owner.scrub().await), (Ok(0), Ok(1)));
        assert_eq!(header(&worker, &queues[1], addr).await, 0);
    });
}

/// The primary is lost between a free and its collection: the copy knows of it.
#[test]
fn what_was_freed_is_known_after_a_promotion() {
    let (cluster, worker, queues) = bed(2);
    worker.block_on(async {
        let mut owner = Heap::new(&worker, 1, vec![place(&queues)]);
        let other = Heap::new(&worker, 2, vec![place(&queues)]);
        let mut objects = Vec::new();
        for number in 0..300u64 {
            let addr = allocate(&mut owner, 100).await.unwrap();
            set_header(&worker, &queues, addr, 100 + number).await;
            objects.push((addr, 100 + number));
        }
        for (addr, header) in &objects[..200] {
            assert_eq!(other.free_elsewhere(*addr, *header).await, Ok(true));
        }
        cluster.kill(NodeId(0)).unwrap();
        owner.moved(place(&queues[1..]));
        assert_eq!(owner.collect().await, Ok(0), "the hints died with the primary");
        assert_eq!(owner.scrub().await, Ok(200));
        assert_eq!(owner.live().await.unwrap().len(), 100);
        // And somebody else would find the same, were the owner dead.
        let mut heir = Heap::new(&worker, 3, vec![place(&queues[1..])]);
        assert!(inherit(&worker, &mut heir, &place(&queues[1..]), &[1]).await > 0);
        assert_eq!(heir.space().values().map(|space| space.used).sum::<usize>(), 100);
    });
}

/// Its owner died between the words of a slab of several chunks: the head, which is claimed last, is not there.
#[test]
fn chunks_of_an_unfinished_claim_are_free_again() {
    let (_cluster, worker, queues) = bed(1);
    worker.block_on(async {
        let mut heap = Heap::new(&worker, 9, vec![place(&queues)]);
        allocate(&mut heap, 200_000).await.unwrap();
        let taken = |table: &[u64]| table.iter().filter(|word| **word != 0).count();
        let before = self::table(&worker, &queues[0]).await;
        let head = before.iter().position(|word| *word != 0).unwrap();
        assert!(taken(&before) > 2);
        let mut round = worker.round();
        round.to(&queues[0]).write(4096 + head as u64 * 8, &[0]);
        round.ring().await.unwrap();
        let found = place(&queues).disown(&worker, &|owner| owner == 9).await.unwrap();
        assert_eq!(found, (0, taken(&before) - 1));
        assert_eq!(taken(&self::table(&worker, &queues[0]).await), 0);
    });
}

/// A copy was told of a claim, and then the primary was another one, which had not been (transfer with all faults, seed 3919).
#[test]
fn copies_forget_claims_that_their_primary_does_not_know() {
    let (_cluster, worker, queues) = bed(3);
    worker.block_on(async {
        let mut heap = Heap::new(&worker, 9, vec![place(&queues)]);
        allocate(&mut heap, 200_000).await.unwrap();
        let mut other = Heap::new(&worker, 8, vec![place(&queues)]);
        allocate(&mut other, 100).await.unwrap();
        let taken = |table: &[u64]| table.iter().filter(|word| **word != 0).count();
        let all = self::table(&worker, &queues[2]).await;
        // The first dies; the second knows of the one claim, and not of the other.
        let mut round = worker.round();
        let of_nine = (0..all.len() - 1).filter(|chunk| all[*chunk] != 0).take(taken(&all) - 1);
        of_nine.for_each(|chunk| {
            round.to(&queues[1]).write(4096 + chunk as u64 * 8, &[0]);
        });
        round.ring().await.unwrap();
        let left = place(&queues[1..]);
        assert_eq!(left.disown(&worker, &|owner| owner == 9).await.unwrap(), (0, 0));
        let here = self::table(&worker, &queues[1]).await;
        assert_eq!(self::table(&worker, &queues[2]).await, here);
        assert_eq!(taken(&here), 1, "that of the living is still there");
    });
}

#[test]
fn local_allocation_is_quick() {
    let (_cluster, worker, queues) = bed(1);
    worker.block_on(async {
        let mut heap = Heap::new(&worker, 9, vec![place(&queues)]);
        let classes: Vec<_> = [8, 40, 64, 200, 1000].map(|b| SizeClass::of(b).unwrap()).into();
        for class in &classes {
            assert!(heap.refill(*class).await.unwrap());
        }
        const PAIRS: usize = 2_000_000;
        let mut held = Vec::with_capacity(64);
        let start = Instant::now();
        for number in 0..PAIRS {
            held.push(heap.allocate(classes[number % classes.len()]).expect("room"));
            if held.len() == 64 {
                held.drain(..).for_each(|addr| assert!(heap.free(addr)));
            }
        }
        let rate = PAIRS as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{rate:.1} million pairs per second");
        assert!(rate > 1.0, "{rate} million pairs per second");
    });
}

/// What an actor process is told: the segment, its owner number, and who is dead.
const ACTOR: &str = "FARSIDE_ALLOC_ACTOR";

/// Not a test, but a process of the one below.
#[test]
fn actor() {
    let Ok(told) = std::env::var(ACTOR) else { return };
    let parts: Vec<&str> = told.split(';').collect();
    let owner: u64 = parts[1].parse().unwrap();
    let dead: Vec<u64> = parts[2].split(',').filter_map(|owner| owner.parse().ok()).collect();
    let path = parts[0].to_owned();
    // Two threads, with a heap each.
    let run = move |owner: u64, dead: Vec<u64>| {
        let segment = Segment::open(Path::new(&path)).unwrap();
        let client = Client::attach([segment], ClientId(owner)).unwrap();
        let worker = Worker::new(owner);
        let queue = client.connect(&worker, NodeId(0)).unwrap();
        worker.block_on(churn(&worker, &queue, owner, &dead));
    };
    let second = run.clone();
    let thread = std::thread::spawn(move || second(owner + 1, Vec::new()));
    run(owner, dead);
    thread.join().unwrap();
}

/// Where actors hand objects to each other: the words before the region.
const BOARD: u64 = 64;

async fn churn(worker: &Worker, queue: &Queue, owner: u64, dead: &[u64]) {
    let queues = std::slice::from_ref(queue);
    let mut heap = Heap::new(worker, owner, vec![place(queues)]);
    inherit(worker, &mut heap, &place(queues), dead).await;
    let mut mine: Vec<(Addr, u64)> = Vec::new();
    for number in 0.. {
        let mark = owner << 32 | (number + 2);
        match worker.random_below(10) {
            0..5 => {
                let Some(addr) = allocate(&mut heap, any_size(worker)).await else {
                    continue;
                };
                let mut round = worker.round();
                let found = round.to(queue).cas(4096 + addr.offset(), 0, mark);
                let found = round.ring().await.unwrap()[found];
                assert_eq!(found, 0, "an object was handed out twice");
                mine.push((addr, mark));
            }
            5..8 if !mine.is_empty() => {
                let (addr, mark) =
                    mine.swap_remove(worker.random_below(mine.len() as u64) as usize);
                assert_eq!(header(worker, queue, addr).await, mark, "somebody else has it");
                set_header(worker, queues, addr, 0).await;
                assert!(heap.free(addr));
            }
            8 if !mine.is_empty() => {
                // Hand one over, and take what lies there.
                let (addr, mark) = mine.pop().unwrap();
                let at = BOARD + 64 * worker.random_below(8);
                let mut round = worker.round();
                let lies = round.to(queue).read(at, 8);
                let lies = round.ring().await.unwrap()[lies][0];
                let mut round = worker.round();
                let swapped = round.to(queue).cas(at, lies, addr.to_word());
                if round.ring().await.unwrap()[swapped] != lies {
                    mine.push((addr, mark));
                } else if lies != 0 {
                    let other = Addr::from_word(lies);
                    let mark = header(worker, queue, other).await;
                    heap.free_elsewhere(other, mark).await.unwrap();
                }
            }
            _ => _ = heap.collect().await.unwrap(),
        }
    }
}

/// Two processes with two threads each; one is killed at a random moment, a hundred times, and another
/// takes its place. In the end what is in use is exactly what has a header, and all else is free.
#[test]
fn nothing_is_lost_or_doubled_when_owners_are_killed() {
    let segment = Segment::in_memory(NodeId(0), BYTES + 4096).unwrap();
    let worker = Worker::new(5);
    let mut owners = 10;
    let mut dead: Vec<u64> = Vec::new();
    let mut spawn = |dead: &[u64]| {
        owners += 2;
        let list: Vec<String> = dead.iter().map(ToString::to_string).collect();
        let told = format!("{};{owners};{}", segment.path().display(), list.join(","));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "actor", "--nocapture"])
            .env(ACTOR, told)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        (child, owners)
    };
    let mut actors = vec![spawn(&dead), spawn(&dead)];
    for _ in 0..kills() {
        std::thread::sleep(Duration::from_micros(2_000 + worker.random_below(30_000)));
        let (mut child, owner) = actors.swap_remove(worker.random_below(2) as usize);
        assert_eq!(child.try_wait().unwrap(), None, "an actor ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        dead.extend([owner, owner + 1]);
        actors.push(spawn(&dead));
    }
    for (mut child, owner) in actors {
        assert_eq!(child.try_wait().unwrap(), None, "an actor ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        dead.extend([owner, owner + 1]);
    }
    let client = Client::attach([segment.clone()], ClientId(1)).unwrap();
    let queue = client.connect(&worker, NodeId(0)).unwrap();
    worker.block_on(audit(&worker, &queue, &dead));
}

fn kills() -> usize {
    std::env::var("FARSIDE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(25)
}

/// Takes over everything, and counts.
async fn audit(worker: &Worker, queue: &Queue, dead: &[u64]) {
    let queues = std::slice::from_ref(queue);
    let mut heap = Heap::new(worker, 5, vec![place(queues)]);
    inherit(worker, &mut heap, &place(queues), dead).await;
    heap.scrub().await.unwrap();
    // By the headers, of all that the table says is ours.
    let table = table(worker, queue).await;
    let is_inner = |word: &u64| word >> 8 & 1 == 1;
    let others = table.iter().filter(|word| **word != 0 && !is_inner(word) && **word >> 16 != 5);
    assert_eq!(others.count(), 0, "slabs whose owner is dead");
    let space = heap.space();
    let used: usize = space.values().map(|space| space.used).sum();
    let live = heap.live().await.unwrap();
    println!("{used} objects in use, {} with a header, {:?}", live.len(), space);
    assert_eq!(used, live.len());
    assert!(used > 0);
    for addr in live {
        set_header(worker, queues, addr, 0).await;
        assert!(heap.free(addr));
    }
    while heap.tidy(&Always).await.unwrap() > 0 {}
    assert!(heap.space().values().all(|space| space.slabs == 1 && space.used == 0));
    // All other chunks are free again, those of unfinished claims, too.
    let chunks = |bytes: &u64| (bytes + 1024).div_ceil(64 << 10) as usize;
    let kept: usize = heap.space().keys().map(chunks).sum();
    let taken = self::table(worker, queue).await.iter().filter(|word| **word != 0).count();
    assert_eq!(taken, kept);
}

async fn table(worker: &Worker, queue: &Queue) -> Vec<u64> {
    let mut round = worker.round();
    let table = round.to(queue).read(4096, (BYTES / (64 << 10)) as usize * 8);
    round.ring().await.unwrap()[table].to_vec()
}
