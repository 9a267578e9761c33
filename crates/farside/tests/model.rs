//! A table against a `BTreeMap`: the same operations, the same answers; and what is deleted gives its memory back.
//!
//! `FARSIDE_CASES` says how many sequences of up to 2,000 operations are tried.

use std::collections::BTreeMap;
use std::time::Duration;

use farside::{Blocking, BlockingTransaction, Database, Error, Table, TableOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[derive(Clone, Debug)]
enum Op {
    Get(u16),
    GetForUpdate(u16),
    GetMany(Vec<u16>),
    Put(u16, Vec<u8>),
    Insert(u16, Vec<u8>),
    Update(u16, Vec<u8>),
    Delete(u16),
    Add(i64),
}

/// Some operations in one transaction, which commits or not.
#[derive(Clone, Debug)]
struct Step {
    ops: Vec<Op>,
    commits: bool,
}

/// Short and long keys.
fn key(number: u16) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(2 + usize::from(number) * 7 % 40, 7);
    if number.is_multiple_of(97) {
        key.resize(farside::MAX_KEY_BYTES, 9);
    }
    key
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |length| (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length]);
    prop_oneof![20 => bytes(0usize..100), 4 => bytes(100..2000), 1 => bytes(2000..40_000)]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0u16..600;
    prop_oneof![
        3 => key().prop_map(Op::Get),
        1 => key().prop_map(Op::GetForUpdate),
        1 => proptest::collection::vec(key(), 0..20).prop_map(Op::GetMany),
        4 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        3 => (key(), value()).prop_map(|(key, value)| Op::Insert(key, value)),
        2 => (key(), value()).prop_map(|(key, value)| Op::Update(key, value)),
        4 => key().prop_map(Op::Delete),
        1 => (-5i64..9).prop_map(Op::Add),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (proptest::collection::vec(op(), 1..12), proptest::bool::weighted(0.85));
    let step = step.prop_map(|(ops, commits)| Step { ops, commits });
    proptest::collection::vec(step, 1..300)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const COUNTER: &[u8] = b"the counter";

fn apply(
    tx: &mut BlockingTransaction<'_>,
    table: &Table,
    model: &mut Model,
    op: &Op,
) -> Result<(), Error> {
    match op {
        Op::Get(k) => assert_eq!(tx.get(table, &key(*k))?, model.get(&key(*k)).cloned()),
        Op::GetForUpdate(k) => {
            assert_eq!(tx.get_for_update(table, &key(*k))?, model.get(&key(*k)).cloned());
        }
        Op::GetMany(keys) => {
            let keys: Vec<Vec<u8>> = keys.iter().map(|k| key(*k)).collect();
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            assert_eq!(tx.get_many(table, &borrowed)?, expected);
        }
        Op::Put(k, value) => {
            tx.put(table, &key(*k), value)?;
            model.insert(key(*k), value.clone());
        }
        Op::Insert(k, value) => match tx.insert(table, &key(*k), value) {
            Err(Error::KeyExists) => assert!(model.contains_key(&key(*k))),
            done => {
                done?;
                assert_eq!(model.insert(key(*k), value.clone()), None);
            }
        },
        Op::Update(k, value) => match tx.update(table, &key(*k), value) {
            Err(Error::NoKey) => assert!(!model.contains_key(&key(*k))),
            done => {
                done?;
                assert!(model.insert(key(*k), value.clone()).is_some());
            }
        },
        Op::Delete(k) => {
            assert_eq!(tx.delete(table, &key(*k))?, model.remove(&key(*k)).is_some());
        }
        Op::Add(by) => {
            let number = |bytes: &Vec<u8>| i64::from_le_bytes(bytes[..].try_into().unwrap());
            let sum = model.get(COUNTER).map_or(0, number) + by;
            assert_eq!(tx.add(table, COUNTER, *by)?, sum);
            model.insert(COUNTER.into(), sum.to_le_bytes().into());
        }
    }
    Ok(())
}

fn run(db: &Blocking, table: &Table, steps: &[Step]) -> Model {
    let mut model = Model::new();
    for step in steps {
        let mut tx = db.begin().unwrap();
        let mut changed = model.clone();
        for op in &step.ops {
            apply(&mut tx, table, &mut changed, op).unwrap();
        }
        if step.commits {
            tx.commit().unwrap();
            model = changed;
        } else {
            tx.abort();
        }
    }
    let mut there = Model::new();
    let mut moment = db.snapshot().unwrap();
    moment.scan(table, |key, value| _ = there.insert(key.into(), value.into())).unwrap();
    assert_eq!(there, model);
    model
}

/// What is in no slab. Old addresses must be forgotten and old versions be unneeded before all is free.
fn free_bytes(db: &Blocking) -> u64 {
    let connection = db.connection();
    connection.block_on(connection.space()).unwrap().0
}

#[test]
fn a_table_does_what_a_map_does_and_memory_returns() {
    let cases = std::env::var("FARSIDE_CASES").ok().and_then(|cases| cases.parse().ok());
    let config =
        Config { cases: cases.unwrap_or(40), failure_persistence: None, ..Config::default() };
    let db = Database::open("mem:?copies=2&memory=512MiB").unwrap();
    let db = db.blocking().unwrap();
    let counted = std::cell::Cell::new(0u64);
    let mut runner = TestRunner::new(config);
    let mut least = u64::MAX;
    runner
        .run(&steps(), |steps| {
            let value_bytes = steps.len() as u32 % 3 * 50;
            let table = db.create_table_with("t", TableOptions { value_bytes }).unwrap();
            let model = run(&db, &table, &steps);
            counted
                .set(counted.get() + steps.iter().map(|step| step.ops.len() as u64).sum::<u64>());
            if steps.len().is_multiple_of(2) {
                for key in model.keys() {
                    assert!(db.delete(&table, key).unwrap());
                }
            }
            db.drop_table("t").unwrap();
            Ok(())
        })
        .unwrap();
    println!("{} operations", counted.get());
    // A large table, and then nothing.
    let table = db.create_table("large").unwrap();
    for number in 0..20_000u64 {
        db.put(&table, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    least = least.min(free_bytes(&db));
    for number in 0..20_000u64 {
        assert!(db.delete(&table, &number.to_be_bytes()).unwrap());
    }
    let connection = db.connection();
    let mut free = 0;
    for _ in 0..200 {
        connection.block_on(connection.worker().sleep(Duration::from_millis(25)));
        free = free_bytes(&db);
    }
    let all = connection.block_on(connection.space()).unwrap().1;
    println!("free: {least} with 20,000 rows, {free} without, of {all}");
    assert!(free > least + (2 << 20), "rows, buckets and nodes give their memory back");
}
