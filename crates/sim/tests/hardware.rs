//! The hardware model beside the raw figures that it is fitted to.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;
use farside_sim::{Busy, Faults, Profile, Sim};

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Read,
    Write,
    Cas,
}

/// Client machines that keep one memory node busy.
#[derive(Clone, Copy)]
struct Load {
    profile: &'static str,
    machines: usize,
    threads: usize,
    /// Queue pairs of each thread, used in turn.
    queues: usize,
    outstanding: usize,
    verb: Verb,
    bytes: usize,
}

impl Load {
    /// Million verbs a second at the node.
    fn rate(self) -> f64 {
        rates(&[self])[0]
    }

    async fn client(self, worker: &Worker, queues: &[farside_fabric::Queue], done: &Cell<u64>) {
        let words = vec![1; self.bytes / 8];
        loop {
            for queue in queues {
                let at = worker.random_below((1 << 22) / 8 - 1024) * 8;
                let mut round = worker.round();
                let mut bell = round.to(queue);
                match self.verb {
                    Verb::Read => _ = bell.read(at, self.bytes),
                    Verb::Write => bell.write(at, &words),
                    Verb::Cas => _ = bell.cas(at, 0, 1),
                }
                round.ring().await.unwrap();
                done.set(done.get() + 1);
            }
        }
    }
}

/// The rates of several loads on one node, at the same time; of the same hardware.
fn rates(loads: &[Load]) -> Vec<f64> {
    observed(loads).0
}

/// The same, and what was busy.
fn observed(loads: &[Load]) -> (Vec<f64>, Busy) {
    const SPAN: Duration = Duration::from_micros(100);
    let sim = Sim::new(Profile::named(loads[0].profile).unwrap(), 1, Faults::none());
    let node = sim.add_node(1 << 22);
    let mut clients = Vec::new();
    let mut counters = Vec::new();
    for load in loads.iter().copied() {
        let done = Rc::new(Cell::new(0u64));
        for _ in 0..load.machines {
            let process = sim.add_process();
            for _ in 0..load.threads {
                let worker = sim.add_thread(process);
                let connect = |_| sim.connect(process, &worker, node).unwrap();
                let queues: Vec<_> = (0..load.queues).map(connect).collect();
                for _ in 0..load.outstanding {
                    let (me, queues, done) = (worker.clone(), queues.clone(), Rc::clone(&done));
                    clients
                        .push(worker.spawn(async move { load.client(&me, &queues, &done).await }));
                }
            }
        }
        counters.push(done);
    }
    let process = sim.add_process();
    let observer = sim.add_thread(process);
    observer.block_on(async {
        observer.sleep(SPAN / 2).await;
        sim.watch();
        let before: Vec<_> = counters.iter().map(|done| done.get()).collect();
        observer.sleep(SPAN).await;
        let counted = counters.iter().zip(before);
        let rate = |(done, before): (&Rc<Cell<u64>>, u64)| {
            (done.get() - before) as f64 / SPAN.as_secs_f64() / 1e6
        };
        (counted.map(rate).collect(), sim.busy())
    })
}

#[track_caller]
fn within(share: f64, measured: f64, expected: f64) {
    let off = (measured / expected - 1.0).abs();
    assert!(off <= share, "{measured:.1} measured, {expected:.1} expected");
}

const VAL: Load = Load {
    profile: "connectx-4",
    machines: 8,
    threads: 24,
    queues: 1,
    outstanding: 4,
    verb: Verb::Read,
    bytes: 64,
};

/// `drtmx` Fig. 2-4: 130 M/s of WRITEs, 86.9 of READs, 48 of atomics per machine with two NICs.
#[test]
fn connectx_4_reaches_the_rates_of_r2() {
    within(0.15, Load { verb: Verb::Write, bytes: 8, ..VAL }.rate(), 130.0);
    within(0.15, Load { verb: Verb::Write, ..VAL }.rate(), 130.0);
    within(0.15, VAL.rate(), 86.9);
    within(0.15, Load { verb: Verb::Cas, bytes: 8, ..VAL }.rate(), 48.0);
    // Large payloads are bound by 2 × 100 Gbps.
    let large = Load { bytes: 4096, ..VAL }.rate() * 4096.0 * 8.0 / 1000.0;
    within(0.15, large, 200.0);
}

/// `drtmx` Fig. 2-4 (b): with 80 queue pairs a thread, the READ rate stops growing below 128 bytes.
#[test]
fn many_queue_pairs_slow_small_verbs_down() {
    let emulated = |bytes| Load { queues: 10, machines: 8, bytes, ..VAL }.rate();
    let (small, medium, large) = (emulated(16), emulated(128), emulated(1024));
    assert!(small / medium < 1.1, "{small} at 16 bytes, {medium} at 128");
    assert!(small < 0.8 * VAL.rate(), "{small} with many queue pairs");
    within(0.15, large, Load { bytes: 1024, ..VAL }.rate());
}

/// `farmv2` §3.2: from 28 to 3,200 queue pairs, 64-byte READs fall to 15 / 35.
#[test]
fn connection_state_falls_out_of_the_cache() {
    let two_machines = Load { machines: 1, threads: 28, outstanding: 8, ..VAL };
    let few = two_machines.rate();
    let many = Load { queues: 230, outstanding: 16, ..two_machines }.rate();
    within(0.15, many / few, 15.0 / 35.0);
}

/// `sherman` Fig. 3 and `drtmx` Fig. 2-10: WRITEs of up to 128 bytes above 50 M/s, 37 M/s at 256.
#[test]
fn connectx_5_reaches_the_rates_of_sherman() {
    let load = Load { profile: "connectx-5", verb: Verb::Write, ..VAL };
    for bytes in [8, 16, 32, 64, 128] {
        let rate = Load { bytes, ..load }.rate();
        assert!(rate > 50.0, "{rate} at {bytes} bytes");
    }
    within(0.15, Load { bytes: 256, ..load }.rate(), 37.0);
    let gbps = Load { bytes: 1024, ..load }.rate() * 1024.0 * 8.0 / 1000.0;
    within(0.15, gbps, 100.0);
}

#[test]
fn a_small_round_trip_takes_about_two_microseconds() {
    for profile in ["connectx-4", "connectx-5"] {
        let alone = Load { profile, machines: 1, threads: 1, outstanding: 1, ..VAL };
        let read = 1.0 / alone.rate();
        within(0.15, read, 2.0);
        let write = 1.0 / Load { verb: Verb::Write, ..alone }.rate();
        assert!(write <= 2.0, "{write} µs for a WRITE");
    }
}

/// What is short is what is busy all the time.
#[test]
fn what_is_short_is_told() {
    let (_, busy) = observed(&[VAL]);
    assert!(busy.serving > 0.95, "{busy:?}");
    assert!(busy.memory == 0.0 && busy.core < 0.5, "{busy:?}");
    let writers =
        Load { profile: "connectx-5+pm", verb: Verb::Write, machines: 1, bytes: 64, ..VAL };
    let readers = Load { verb: Verb::Read, threads: 32, outstanding: 1, ..writers };
    let (_, busy) = observed(&[writers, readers]);
    assert!(busy.memory > 0.95 && busy.serving < 0.9, "{busy:?}");
    let (_, busy) = observed(&[Load { machines: 1, threads: 1, outstanding: 64, ..VAL }]);
    assert!(busy.core > 0.95 && busy.sending < 0.5, "{busy:?}");
}

/// `ford` Fig. 3: reads beside it slow writing to persistent memory down, by up to 87.5 %.
#[test]
fn reads_slow_down_writing_to_persistent_memory() {
    let writers =
        Load { profile: "connectx-5+pm", verb: Verb::Write, machines: 1, bytes: 256, ..VAL };
    let alone = writers.rate();
    // 32 reader threads, as in the paper.
    let readers = Load { verb: Verb::Read, threads: 32, outstanding: 1, ..writers };
    let beside = rates(&[writers, readers])[0];
    println!("{alone} alone, {beside} beside readers");
    within(0.15, 100.0 * (1.0 - beside / alone), 87.5);
    let dram = Load { profile: "connectx-5", ..writers };
    let dram_beside = rates(&[dram, Load { profile: "connectx-5", ..readers }])[0];
    assert!(dram_beside > 0.5 * dram.rate(), "{dram_beside} beside readers on DRAM");
}
