//! Nodes die under load, in the simulator: for how long nobody knows the time, and how many commit in each millisecond
//! (`farmv2.txt` §5.5, Table 1).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;
use farside_index::{Client, Error};
use farside_sim::{Faults, Profile, Sim};

use crate::engine::{PoolShape, SimTables};

/// Who dies, all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victims {
    /// The node that has the clock and the board; whoever manages the pool dies with it.
    pub home: bool,
    /// Another one.
    pub other: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Loss {
    /// For how long somebody was without a time, at the most.
    pub clock_off: Duration,
    /// How many committed in each millisecond.
    pub commits: Vec<u32>,
    /// The millisecond in which the victims died.
    pub died_at: usize,
}

/// The leases of these pools.
pub const LEASE: Duration = Duration::from_millis(10);

const MACHINES: u64 = 3;
const MILLISECONDS: usize = 160;
/// Commits are counted for so long before anybody dies.
const BEFORE: usize = 40;
/// How often the clocks are looked at.
const LOOK: Duration = Duration::from_micros(10);

/// Five nodes, three copies, three machines that write: victims die at a moment that the seed chooses.
pub fn lose(profile: Profile, victims: Victims, seed: u64) -> Result<Loss, String> {
    let sim = Rc::new(Sim::new(profile, seed, Faults::none()));
    let shape = PoolShape {
        nodes: 5,
        versions: false,
        copies: 3,
        regions: 4,
        region_bytes: 32 << 20,
        lease: LEASE,
    };
    let engine = SimTables::managed(&sim, shape, None);
    let machines: Vec<_> =
        (0..MACHINES).map(|number| engine.add_machine(seed + number).1).collect();
    let clients: Vec<_> = machines.iter().map(|worker| engine.client(worker)).collect();
    let committed = Rc::new(Cell::new(0));
    write(&machines, &clients, &committed).map_err(|error| error.to_string())?;
    let clock = sim.add_thread(sim.add_process());
    clock.block_on(clock.sleep(LEASE + Duration::from_nanos(seed * 104_729 % 10_000_000)));
    let mut watch = Watch {
        clients: &clients,
        latest: [0; MACHINES as usize],
        off: [None; MACHINES as usize],
        longest: Duration::ZERO,
    };
    let mut commits = Vec::new();
    let home = home_of(&clients[0]);
    let number = engine.nodes().iter().position(|node| node.0.to_string() == home);
    let number = number.ok_or("the home is up")? as u64;
    for millisecond in 0..MILLISECONDS {
        if millisecond == BEFORE {
            if victims.home {
                engine.kill_node(number);
            }
            if victims.other {
                // Of those that are left; not the home, if that one is to live.
                engine.kill_node(if victims.home { seed } else { number + 1 });
            }
        }
        let before = committed.get();
        for _ in 0..Duration::from_millis(1).as_nanos() / LOOK.as_nanos() {
            clock.block_on(clock.sleep(LOOK));
            watch.look(&clock)?;
        }
        commits.push(committed.get() - before);
    }
    if watch.off.iter().any(Option::is_some) {
        return Err("there is no clock in the end".into());
    }
    if victims.home && home_of(&clients[0]) == home {
        return Err("the home that died is still the home".into());
    }
    sim.end();
    Ok(Loss { clock_off: watch.longest, commits, died_at: BEFORE })
}

fn home_of(client: &Client) -> String {
    let config = client.agent().config();
    config.node(config.home).map(|node| node.address.clone()).unwrap_or_default()
}

/// Every machine writes rows, one after the other, for as long as the world lasts.
fn write(
    machines: &[Worker],
    clients: &[Rc<Client>],
    committed: &Rc<Cell<u32>>,
) -> Result<(), Error> {
    let rows = machines[0].block_on(async {
        let mut tx = clients[0].begin().await?;
        let rows = tx.create_table("rows", &Default::default()).await?;
        tx.commit().await?;
        Ok::<_, Error>(rows)
    })?;
    for (worker, client) in machines.iter().zip(clients) {
        let (pause, client, committed) = (worker.clone(), Rc::clone(client), Rc::clone(committed));
        let work = async move {
            for number in 0u64.. {
                let done = async {
                    let mut tx = client.begin().await?;
                    tx.put(&rows, &(number % 16).to_be_bytes(), &number.to_be_bytes()).await?;
                    tx.commit().await
                };
                if done.await.is_ok() {
                    committed.set(committed.get() + 1);
                }
                pause.sleep(Duration::from_micros(20)).await;
            }
        };
        worker.spawn(work).detach();
    }
    Ok(())
}

/// What the machines believe of the time.
struct Watch<'a> {
    clients: &'a [Rc<Client>],
    latest: [u64; MACHINES as usize],
    off: [Option<farside_fabric::Time>; MACHINES as usize],
    longest: Duration,
}

impl Watch<'_> {
    fn look(&mut self, clock: &Worker) -> Result<(), String> {
        for (at, client) in self.clients.iter().enumerate() {
            match client.agent().bounds() {
                Some((_, upper)) if upper < self.latest[at] => {
                    return Err(format!("it is {upper} at most, after {}", self.latest[at]));
                }
                Some((lower, _)) => {
                    self.latest[at] = self.latest[at].max(lower);
                    self.off[at] = None;
                }
                None => {
                    let since = *self.off[at].get_or_insert(clock.now());
                    self.longest = self.longest.max(clock.now() - since);
                }
            }
        }
        Ok(())
    }
}

impl Loss {
    /// How many milliseconds after the loss as much is committed again as before.
    pub fn recovery(&self) -> Option<usize> {
        let (before, after) = self.commits.split_at(self.died_at);
        let usual = before.iter().sum::<u32>() as f64 / before.len() as f64;
        // Over a few milliseconds, for single ones differ.
        const OVER: usize = 4;
        after
            .windows(OVER)
            .position(|some| some.iter().sum::<u32>() as f64 / OVER as f64 >= 0.95 * usual)
    }
}
