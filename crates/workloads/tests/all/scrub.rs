//! Scrubs in the simulator: while verbs are torn and late and machines die, nothing is taken for a flaw that is none.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{FabricError, Worker};
use farside_index::Error as IndexError;
use farside_sim::{Faults, Profile, Sim};
use farside_txn::TxnError;
use farside_workloads::engine::{
    Engine, Failure, Intent, Rows, Session, SimTables, Table, TableShape, Transaction, Want,
};

const LEASE: Duration = Duration::from_millis(10);
const SHAPE: TableShape = TableShape { table: Table(1), keys: 24, value_bytes: 100 };
const WRITERS: u64 = 3;

/// Writes and deletes some rows, again and again.
async fn write(engine: SimTables, worker: Worker) {
    let mut session = engine.session(&worker);
    for _ in 0..60 {
        let keys: Vec<u64> = (0..3).map(|_| worker.random_below(SHAPE.keys)).collect();
        let want = |key: &u64| Want { table: SHAPE.table, key: *key, intent: Intent::Update };
        let wants: Vec<Want> = keys.iter().map(want).collect();
        let wrote = async {
            let mut tx = session.begin().await?;
            tx.read(&wants, &mut Rows::default()).await?;
            for key in &keys {
                let value = vec![worker.random() as u8; worker.random_below(100) as usize];
                let value = (worker.random_below(4) > 0).then_some(&value[..]);
                tx.write(SHAPE.table, *key, value).await?;
            }
            tx.commit().await
        };
        match wrote.await {
            Ok(_) | Err(Failure::Conflict) => worker.sleep(LEASE / 50).await,
            // Taken for dead, as may be when verbs are late.
            Err(_) => return,
        }
    }
}

#[test]
fn what_is_under_way_is_no_flaw() {
    let (mut scrubs, mut objects) = (0, 0);
    for seed in 1..=20 {
        let faults: Faults = "reorder,tear,delay=2000".parse().expect("names of faults");
        let profile = Profile::named("connectx-5").expect("a profile of the table");
        let sim = Rc::new(Sim::new(profile, seed, faults));
        let engine = SimTables::new(&sim, 3, None).with_lease(LEASE);
        let (_, loader) = engine.add_machine(0);
        loader.block_on(async {
            engine.create(&loader, &[SHAPE]).await.unwrap();
            let row = |key| (key, vec![1; SHAPE.value_bytes]);
            engine.load(&loader, SHAPE.table, &mut (0..SHAPE.keys).map(row)).await.unwrap();
        });
        for number in 1..=WRITERS {
            let (process, worker) = engine.add_machine(number);
            // One of them dies.
            if number == 1 {
                sim.kill_writing(process, 1 + worker.random_below(40));
            }
            worker.spawn(write(engine.clone(), worker.clone())).detach();
        }
        for _ in 0..5 {
            let client = engine.client(&loader);
            let found = match loader.block_on(client.scrub(|_| true)) {
                Ok(found) => found,
                // Taken for dead itself: messages may be late by three leases.
                Err(IndexError::Txn(TxnError::Fabric(FabricError::Fenced(_)))) => break,
                Err(error) => panic!("seed {seed}: {error}"),
            };
            assert_eq!(found.flaws, [], "seed {seed}");
            (scrubs, objects) = (scrubs + 1, objects + found.objects);
        }
        sim.end();
    }
    println!("{scrubs} scrubs, {objects} objects");
    assert!(scrubs > 80, "{scrubs} of 100");
    assert!(objects > scrubs * 10);
    if farside_fabric::probe::enabled() {
        let reached = farside_fabric::probe::reached();
        assert!(reached.contains_key("what looked wrong was under way"), "{reached:?}");
    }
}
