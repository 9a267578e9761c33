//! Column groups: who writes one group of a record is not in the way of who writes another.

use std::cell::Cell;
use std::rc::Rc;

use farside::{Connection, Database, Error, Grouped, Result, Transaction, Typed};
use farside_fabric::runtime::Random;

const RECORDS: u64 = 100;

/// Clients that count up in one group each, in turn the first and the second: how many tries did not commit, of how many.
fn mix(
    db: &Connection,
    clients: u64,
    count: impl AsyncFn(&Connection, &mut Transaction, u64, bool) -> Result<()> + Copy + 'static,
) -> (u64, u64) {
    let (tries, commits): (Rc<Cell<u64>>, Rc<Cell<u64>>) = Default::default();
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let (db, tries, commits) = (db.clone(), tries.clone(), commits.clone());
            db.clone().spawn(async move {
                let mut random = Random::new(client);
                for _ in 0..1000 {
                    let record = random.below(RECORDS);
                    let done = db.transact(async |tx| {
                        tries.set(tries.get() + 1);
                        count(&db, tx, record, client % 2 == 0).await
                    });
                    done.await.unwrap();
                    commits.set(commits.get() + 1);
                }
            })
        })
        .collect();
    db.block_on(async {
        for client in clients {
            client.await;
        }
    });
    (tries.get() - commits.get(), tries.get())
}

/// All groups of all records, added up.
async fn sums(db: &Connection, whole: Whole, grouped: Halves) -> [(u64, u64); 2] {
    let mut moment = db.snapshot().await.unwrap();
    let mut sums = [(0, 0); 2];
    for record in 0..RECORDS {
        let one = whole.get_at(&mut moment, &record).await.unwrap().unwrap();
        let two = grouped.get_at(&mut moment, &record).await.unwrap().unwrap();
        for (sum, (a, b)) in sums.iter_mut().zip([one, two]) {
            *sum = (sum.0 + a, sum.1 + b);
        }
    }
    sums
}

type Whole = Typed<u64, (u64, u64)>;
type Halves = Grouped<u64, (u64, u64)>;

/// Two clients, each of which has a group for itself, and more of them, which meet in their groups, too: there the others'
/// group is in nobody's way, and their own is.
#[test]
fn groups_of_a_record_are_not_in_each_others_way() {
    let db = Database::open("mem:?memory=64MiB").unwrap().connect().unwrap();
    let (whole, grouped): (Whole, Halves) = db.block_on(async {
        let tables = ["whole", "grouped"].map(|name| db.create_table(name));
        let [whole, grouped] = tables;
        let (whole, grouped) =
            (Typed::new(whole.await.unwrap()), Grouped::new(grouped.await.unwrap()));
        for record in 0..RECORDS {
            let made = db.transact(async |tx| {
                whole.put(tx, &record, &(0, 0)).await?;
                grouped.insert(tx, &record, &(0, 0)).await
            });
            made.await.unwrap();
        }
        (whole, grouped)
    });
    let one_piece = async move |db: &Connection, tx: &mut Transaction, record, first| {
        let (a, b) = whole.get(tx, &record).await?.unwrap_or_default();
        db.worker().yield_now().await;
        let new = if first { (a + 1, b) } else { (a, b + 1) };
        whole.update(tx, &record, &new).await
    };
    let in_groups = async move |db: &Connection, tx: &mut Transaction, record, first| {
        if first {
            let a = grouped.get_group::<0>(tx, &record).await?.unwrap_or_default();
            db.worker().yield_now().await;
            grouped.update_group::<0>(tx, &record, &(a + 1)).await
        } else {
            let b = grouped.get_group::<1>(tx, &record).await?.unwrap_or_default();
            db.worker().yield_now().await;
            grouped.update_group::<1>(tx, &record, &(b + 1)).await
        }
    };
    let mut expected = 0;
    for clients in [2, 8] {
        let (without, of) = mix(&db, clients, one_piece);
        let (with, of_grouped) = mix(&db, clients, in_groups);
        println!(
            "{clients} clients: {without} of {of} tries aborted, in groups {with} of {of_grouped}"
        );
        assert!(without > 0 && with * if clients == 2 { 10 } else { 1 } <= without);
        expected += clients * 500;
    }
    // Nothing was lost, in either.
    assert_eq!(db.block_on(sums(&db, whole, grouped)), [(expected, expected); 2]);
}

#[test]
fn a_record_comes_and_goes_with_all_its_groups() {
    let db = Database::open("mem:?memory=64MiB").unwrap().connect().unwrap();
    db.block_on(async {
        type Record = (u8, String, Vec<u8>);
        let records: Grouped<str, Record> = Grouped::new(db.create_table("records").await?);
        let record = (1, "two".to_string(), vec![3; 3000]);
        db.transact(async |tx| records.insert(tx, "key", &record).await).await?;
        let again = db.transact(async |tx| records.insert(tx, "key", &record).await).await;
        assert_eq!(again, Err(Error::KeyExists));
        db.transact(async |tx| records.update_group::<2>(tx, "key", &vec![4]).await).await?;
        let before = db.counts().round_trips;
        let found = db.transact(async |tx| records.get(tx, "key").await).await?;
        assert_eq!(found, Some((1, "two".to_string(), vec![4])));
        assert_eq!(db.counts().round_trips - before, 1, "all groups in one");
        assert!(db.transact(async |tx| records.delete(tx, "key").await).await?);
        assert_eq!(db.transact(async |tx| records.get(tx, "key").await).await?, None);
        let update = db.transact(async |tx| records.update_group::<0>(tx, "key", &9).await).await;
        assert_eq!(update, Err(Error::NoKey));
        Ok::<(), Error>(())
    })
    .unwrap();
}
