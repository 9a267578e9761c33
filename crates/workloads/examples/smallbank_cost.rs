//! SmallBank on one thread and three copies in this process, with nothing beside it: for counting instructions.
//!
//! `cargo xtask txn-cost` runs it under callgrind.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::runtime::Random;
use farside_fabric::{ClientId, NodeId, Worker, local};
use farside_index::Client;
use farside_pool::{Config, Connect, Connecting, Links, Newcomer, Node, View};
use farside_txn::clock::WorkerClock;
use farside_txn::{Agent, Identity, Limits, Parts, Session};
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
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("numbers"));
    let (kind, rounds) = (args.next().unwrap_or(6) as usize, args.next().unwrap_or(1000));
    const NODE_BYTES: u64 = 64 << 20;
    let cluster = local::Cluster::new(3, NODE_BYTES).unwrap();
    let mut config = Config::first(ClientId(1), Duration::from_secs(1));
    for number in 0..3u64 {
        let (address, incarnation) = (number.to_string(), number);
        config.add_node(&Newcomer { address, incarnation, bytes: NODE_BYTES });
    }
    (0..3).for_each(|_| _ = config.add_region(NODE_BYTES / 3 / 65536 * 65536, 3, 0).unwrap());
    let worker = Worker::new(1);
    let connect: Rc<dyn Connect> = Rc::new(Here(cluster.client()));
    let parts = Parts {
        session: Session::new(Identity { slot: 0, client: 1, since: 0 }, Limits::default()),
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
    for _ in 0..rounds {
        one(&worker, &bank, &mut session, &mut random, kind);
    }
}
