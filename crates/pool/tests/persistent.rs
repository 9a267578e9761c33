//! Remote persistent memory on simulated nodes that lose their power: what was written to stay is there, whatever else is.

use std::rc::Rc;

use farside_fabric::{NodeId, Queue, Worker};
use farside_pool::RegionId;
use farside_pool::alloc::Place;
use farside_pool::persistent::{MOST_BYTES, PersistentMemory, Pointer};
use farside_sim::{Faults, Profile, Sim};

const BYTES: u64 = 4 << 20;
const NODES: u16 = 2;

/// Journals, which keep the order, and memory that does not.
const PROFILES: [&str; 2] = ["tcp-10g+pm", "connectx-5+pm"];

struct World {
    sim: Rc<Sim>,
    nodes: Vec<NodeId>,
}

impl World {
    fn new(profile: &str, seed: u64) -> Self {
        let profile = Profile::named(profile).expect("a profile of the table");
        let faults: Faults = "reorder,tear".parse().expect("names of faults");
        let sim = Rc::new(Sim::new(profile, seed, faults));
        let nodes = (0..NODES).map(|_| sim.add_node(BYTES)).collect();
        World { sim, nodes }
    }

    /// A process, and its way to the memory.
    fn begin(&self, owner: u64) -> (Worker, PersistentMemory) {
        let process = self.sim.add_process();
        let worker = self.sim.add_thread(process);
        let connect = |node: &NodeId| self.sim.connect(process, &worker, *node).unwrap();
        let replicas: Vec<(Queue, u64)> =
            self.nodes.iter().map(|node| (connect(node), 0)).collect();
        let place = Place { region: RegionId(0), bytes: BYTES, replicas, joining: Vec::new() };
        let memory = PersistentMemory::new(&worker, owner, vec![place]);
        (worker, memory)
    }

    fn lose_power(&self) {
        self.nodes.iter().for_each(|node| self.sim.kill_node(*node));
        self.nodes.iter().for_each(|node| self.sim.restart_node(*node));
    }
}

fn pattern(number: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (number * 31 + at * 7) as u8).collect()
}

#[test]
fn what_was_written_to_stay_is_there_after_a_loss_of_power() {
    let mut lost = 0;
    for (number, profile) in PROFILES.into_iter().enumerate() {
        for seed in 1..=20 {
            let world = World::new(profile, seed * 2 + number as u64);
            let (worker, mut memory) = world.begin(1);
            let sizes = [1, 8, 56, 57, 200, 248, 249, 500, 3000, 70_000];
            let (kept, loose): (Vec<Pointer>, Vec<Pointer>) = worker.block_on(async {
                let (mut kept, mut loose) = (Vec::new(), Vec::new());
                for (number, bytes) in (0..).zip(sizes) {
                    let at = memory.alloc(bytes).await.unwrap().expect("there is room");
                    memory.pwrite(at, &pattern(number, bytes)).await.unwrap();
                    kept.push(at);
                    let at = memory.alloc(bytes).await.unwrap().expect("there is room");
                    loose.push(at);
                }
                for (number, at) in (0..).zip(&loose) {
                    memory.write(*at, &pattern(number, at.bytes())).await.unwrap();
                }
                (kept, loose)
            });
            world.lose_power();
            let (worker, mut memory) = world.begin(2);
            let found: Vec<Pointer> =
                kept.iter().map(|at| Pointer::from_words(at.to_words()).unwrap()).collect();
            assert_eq!(found, kept);
            worker.block_on(async {
                for (number, at) in (0..).zip(found) {
                    let read = memory.read(at).await.unwrap();
                    assert_eq!(read, pattern(number, at.bytes()), "{profile} seed {seed} {at:?}");
                }
                for (number, at) in (0..).zip(loose) {
                    let read = memory.read(at).await.unwrap();
                    lost += u64::from(read != pattern(number, at.bytes()));
                }
                // Nobody else gets what is in use.
                let new = memory.alloc(200).await.unwrap().unwrap();
                assert!(!kept.contains(&new));
            });
        }
    }
    assert!(lost > 20, "what was not flushed is lost now and then: {lost}");
}

#[test]
fn a_persistent_write_is_one_round_trip() {
    for profile in PROFILES {
        let world = World::new(profile, 1);
        let (worker, mut memory) = world.begin(1);
        worker.block_on(async {
            let at = memory.alloc(100).await.unwrap().unwrap();
            memory.pwrite(at, &[7; 100]).await.unwrap();
            let (spent, nodes) = (memory.counts(), u64::from(NODES));
            assert_eq!((spent.round_trips, spent.doorbells), (1, nodes));
            assert_eq!((spent.writes, spent.flushes, spent.verbs()), (nodes, nodes, 2 * nodes));
            assert_eq!(spent.bytes_out, 128 * nodes, "whole lines");
        });
    }
}

#[test]
fn places_are_used_again_and_what_does_not_fit_is_refused() {
    let world = World::new(PROFILES[0], 1);
    let (worker, mut memory) = world.begin(1);
    worker.block_on(async {
        let at = memory.alloc(40).await.unwrap().unwrap();
        memory.pwrite(at, b"something longer than what comes").await.unwrap();
        memory.pwrite(at, b"short").await.unwrap();
        let mut short = b"short".to_vec();
        short.resize(40, 0);
        assert_eq!(memory.read(at).await.unwrap(), short, "nothing of what was there is left");
        assert!(memory.write(at, &[0; 41]).await.is_err());
        memory.free(at).await.unwrap();
        memory.free(at).await.unwrap();
        assert_eq!(memory.alloc(40).await.unwrap(), Some(at));
        memory.pwrite(at, b"for another owner").await.unwrap();
        // Somebody else may free it.
        let (other, mut theirs) = world.begin(2);
        let place = Pointer::from_words(at.to_words()).unwrap();
        other.spawn(async move { theirs.free(place).await.unwrap() }).await;
        assert_eq!(memory.alloc(0).await.unwrap(), None);
        assert_eq!(memory.alloc(MOST_BYTES + 1).await.unwrap(), None);
        let mut large = 0;
        while memory.alloc(MOST_BYTES).await.unwrap().is_some() {
            large += 1;
        }
        assert!(large > 0 && large < 3, "{large}");
        let elsewhere = Pointer::from_words([at.to_words()[0] | 5 << 48, 40]).unwrap();
        assert!(memory.read(elsewhere).await.is_err());
    });
}
