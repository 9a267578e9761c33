//! SmallBank on one thread and some copies in this process, with nothing beside it: for counting instructions.
//!
//! `cargo xtask txn-cost` runs it under callgrind: `smallbank_cost KIND ROUNDS PROTOCOL COPIES`. Prints rounds, doorbells and verbs.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::runtime::Random;
use farside_fabric::{ClientId, NodeId, Worker, local};
use farside_index::Client;
use farside_pool::{Config, Connect, Connecting, Links, Newcomer, Node, View};
use farside_txn::clock::WorkerClock;
use farside_txn::{Agent, Identity, Limits, Parts, Protocol, Session};
use farside_workloads::engine::{
    Engine, Failure, Rows, Session as _, Table, TableSession, TableShape, Tables,
};
use farside_workloads::history::Recorder;
use farside_workloads::load::{SmallBank, Tx, Workload};

struct Here(local::Client);

impl Connect for Here {
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a> {
        let connected = self.0.connect(worker, NodeId(node.id));
        Box::pin(async { connected })
    }
}

/// One thread's tables.
#[derive(Clone)]
struct Alone {
    client: Rc<Client>,
    tables: Tables,
}

impl Engine for Alone {
    type Session = TableSession;

    async fn create(&self, _: &Worker, tables: &[TableShape]) -> Result<(), Failure> {
        self.tables.create(&self.client, tables).await
    }

    fn session(&self, _: &Worker) -> TableSession {
        self.tables.session(&self.client)
    }

    async fn load(
        &self,
        _: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        self.tables.load(&self.client, table, rows).await
    }
}

/// The phases are kept apart by their names in the profile.
#[inline(never)]
fn one(
    worker: &Worker,
    bank: &SmallBank,
    session: &mut TableSession,
    random: &mut Random,
    kind: usize,
) {
    let (mut log, mut rows) = (Recorder::deaf(), Rows::default());
    let input = loop {
        let (drawn, input) = bank.draw(random);
        if drawn == kind || kind == 6 {
            break input;
        }
    };
    worker.block_on(async {
        let mut tx = Tx::new(session.begin().await.unwrap(), &mut log, &mut rows);
        bank.attempt(&mut tx, &input).await.unwrap();
        tx.commit().await.unwrap();
    });
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, usual: u64| args.get(at).map_or(usual, |arg| arg.parse().expect("a number"));
    let (kind, rounds, copies) = (number(0, 6) as usize, number(1, 1000), number(3, 3));
    let protocol = args.get(2).map_or(Protocol::FARSIDE, |it| Protocol::spelled(it).expect("one"));
    const NODE_BYTES: u64 = 64 << 20;
    let cluster = local::Cluster::new(copies as u16, NODE_BYTES).unwrap();
    let mut config = Config::first(ClientId(1), Duration::from_secs(1));
    for number in 0..copies {
        let (address, incarnation) = (number.to_string(), number);
        let bytes = NODE_BYTES;
        config.add_node(&Newcomer { address, incarnation, bytes, versions: false });
    }
    let bytes = NODE_BYTES / copies / 65536 * 65536;
    (0..copies).for_each(|_| _ = config.add_region(bytes, copies as usize, 0).unwrap());
    let worker = Worker::new(1);
    let connect: Rc<dyn Connect> = Rc::new(Here(cluster.client()));
    let parts = Parts {
        session: Session::new(
            Identity { slot: 0, client: 1, since: 0 },
            Limits::default().following(protocol),
        ),
        seat: View::alone(config).seat(),
        links: Links::careless(&worker, &connect),
        clock: Box::new(WorkerClock::of_host(&worker)),
    };
    let agent = worker.block_on(Agent::join(&worker, parts)).unwrap();
    let engine = Alone { client: Client::new(agent), tables: Tables::default() };
    let bank = SmallBank::new(2000);
    worker.block_on(async {
        engine.create(&worker, &bank.tables()).await.unwrap();
        bank.setup(&engine, &worker).await.unwrap();
    });
    let (mut session, mut random) = (engine.session(&worker), Random::new(7));
    let tally = engine.client.agent().tally();
    tally.reset();
    for _ in 0..rounds {
        one(&worker, &bank, &mut session, &mut random, kind);
    }
    let counts = tally.total();
    let per = |count: u64| count as f64 / rounds as f64;
    let (trips, bells, verbs) = (counts.round_trips, counts.doorbells, counts.verbs());
    println!("{:.3} {:.3} {:.3}", per(trips), per(bells), per(verbs));
}
