//! How well many machines know the time, in the simulator (`farmv2.txt` Figs. 16 and 17).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ClientId;
use farside_pool::time::{self, Master};
use farside_pool::{Config, Connect, Newcomer, View};
use farside_sim::{ClockModel, Faults, Profile, Sim};

use crate::sim_connect::SimConnect;

/// Until clocks have proven to be good.
const PROBATION: Duration = Duration::from_millis(300);

const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_micros(97);

/// How uncertain so many machines are of the time, on the average, when they have asked for a while. Their clocks drift by up to 90
/// parts in a million; true time is always within their bounds.
pub fn mean_uncertainty(profile: Profile, machines: u64, seed: u64) -> Duration {
    let sim = Rc::new(Sim::new(profile, seed, Faults::none()));
    let node = sim.add_node(4096);
    let mut config = Config::first(ClientId(1), Duration::from_secs(1));
    let address = node.0.to_string();
    config.add_node(&Newcomer { address, incarnation: 0, bytes: 4096, versions: false });
    config.sessions = (0..machines)
        .map(|number| farside_pool::Session { client: number, slot: 0, serial: number })
        .collect();
    config.master = Some(Master { node: 0, ahead: 1 << 40, since: 1 });
    let all: Vec<_> = (0..machines)
        .map(|number| {
            let process = sim.add_process();
            let drift_ppb = (number * 61_333 % 180_001) as i64 - 90_000;
            sim.set_clock(process, ClockModel { offset_ns: number << 20, drift_ppb });
            let worker = sim.add_thread(process);
            let view = View::alone(config.clone());
            let connect: Rc<dyn Connect> =
                Rc::new(SimConnect { sim: Rc::downgrade(&sim), process });
            worker.spawn(time::follow(worker.clone(), connect, Arc::downgrade(&view))).detach();
            (process, view)
        })
        .collect();
    let clock = sim.add_thread(sim.add_process());
    clock.block_on(clock.sleep(PROBATION));
    let (mut sum, mut looks) = (0, 0);
    for _ in 0..LOOKS {
        clock.block_on(clock.sleep(BETWEEN_LOOKS));
        let time = sim.node_time(node).0 + (1 << 40);
        for (process, view) in &all {
            let local = sim.time_of(*process);
            let (lower, upper) = view.time().bounds_by(|| local).expect("all have proven good");
            assert!(lower <= time && time <= upper, "{lower} to {upper}, and it is {time}");
            sum += upper - lower;
            looks += 1;
        }
    }
    Duration::from_nanos(sum / looks)
}
