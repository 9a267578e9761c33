//! Requests do what the workloads' own transactions do: the same ones, on Redis and on LMDB, change the same and leave the same rows.

use std::path::PathBuf;
use std::sync::Arc;

use farside_fabric::Worker;
use farside_fabric::runtime::Random;
use farside_workloads::engine::{Engine, Failure, Rows, Session, Table, Transaction};
use farside_workloads::history::{Outcome, Recorder};
use farside_workloads::load::{Kvs, SmallBank, Tatp, Tx, Workload};

use crate::lmdb::Lmdb;
use crate::peer::Blocking;
use crate::redis::connection::Connection;
use crate::redis::server::Server;
use crate::redis::store::Store;
use crate::redis::{Requests, kvs, smallbank, tatp};

const TRANSACTIONS: usize = 20_000;

/// A directory that is removed again.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn read<S: Session>(session: &mut S, table: Table, key: u64) -> Option<Vec<u8>> {
    let (mut rows, want) = (Rows::default(), Tx::<S::Txn<'_>>::want(table, key));
    session.begin().await.unwrap().read(&[want], &mut rows).await.unwrap();
    rows.get(0).map(<[u8]>::to_vec)
}

/// How often each kind had an effect.
fn same<R: Requests>(name: &str, workload: R::Workload) -> Vec<(u64, u64)> {
    let dir = format!("farside-peers-{}-{name}", std::process::id());
    let dir = Dir(std::env::temp_dir().join(dir));
    std::fs::create_dir_all(&dir.0).unwrap();
    let (server, workload) = (Server::start(&dir.0).unwrap(), Arc::new(workload));
    let (mut store, worker) = (Store::<R>::open(&server.socket).unwrap(), Worker::new(1));
    let lmdb = Blocking(Lmdb::open(&dir.0, false, false).unwrap());
    worker.block_on(workload.setup(&store, &worker)).unwrap();
    worker.block_on(workload.setup(&lmdb, &worker)).unwrap();

    let mut connection = Connection::open(&server.socket).unwrap();
    let mut requests = R::new(&workload, &mut connection).unwrap();
    let (mut session, mut random) = (lmdb.session(&worker), Random::new(1));
    let (mut log, mut rows) = (Recorder::deaf(), Rows::default());
    let mut counts = vec![(0, 0); workload.kinds().len()];
    for number in 0..TRANSACTIONS {
        let (kind, input) = workload.draw(&mut random);
        requests.ask(kind, &input, &mut connection).unwrap();
        connection.send().unwrap();
        let reply = connection.last_of(R::replies(&input)).unwrap();
        let effect = requests.effect(kind, &input, &reply).unwrap();
        let mut attempt = || {
            worker.block_on(async {
                let mut tx = Tx::new(session.begin().await?, &mut log, &mut rows);
                let effect = workload.attempt(&mut tx, &input).await?;
                tx.commit().await.map(|_| effect)
            })
        };
        // Who finds too late that it writes begins again.
        let first = attempt();
        let expected = if first == Err(Failure::Conflict) { attempt() } else { first };
        assert_eq!(Ok(effect), expected, "transaction {number}, of kind {kind}");
        workload.book(&input, effect, Outcome::Committed);
        counts[kind].0 += 1;
        counts[kind].1 += u64::from(effect.rows != 0 || effect.sum != 0);
    }

    worker.block_on(async {
        for shape in workload.tables() {
            for key in 0..shape.keys {
                let kept = read(&mut store, shape.table, key).await;
                let mut row = read(&mut session, shape.table, key).await;
                // SmallBank's balances are kept, and not what is behind them.
                if let (Some(kept), Some(row)) = (&kept, &mut row) {
                    row.truncate(if name == "smallbank" { 8 } else { kept.len().max(row.len()) });
                }
                assert_eq!(kept, row, "row {key} of {:?}", shape.table);
            }
        }
        workload.check(&mut store).await.unwrap();
    });
    counts
}

#[test]
fn smallbank_is_the_same() {
    println!("{:?}", same::<smallbank::Bank>("smallbank", SmallBank::new(40)));
}

#[test]
fn tatp_is_the_same() {
    println!("{:?}", same::<tatp::Register>("tatp", Tatp::new(200)));
}

#[test]
fn kvs_is_the_same() {
    for (objects, read_share) in [(1, 50), (4, 50), (4, 0), (4, 100), (20, 80)] {
        let kvs = Kvs::new(500, 40, 0.9, read_share, objects).mixing(30);
        println!("{:?}", same::<kvs::Values>("kvs", kvs));
    }
}
