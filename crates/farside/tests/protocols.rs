//! Databases whose transactions are made as the papers do.

use farside::{Database, Error};

const PRESETS: [&str; 5] = ["farside", "ford", "ford-lv", "farm", "drtm-h"];

#[test]
fn every_preset_is_a_database() {
    for preset in PRESETS {
        let db = Database::open(&format!("mem:?protocol={preset}")).unwrap().connect().unwrap();
        let sum = db.block_on(async {
            let table = db.create_table("t").await?;
            for number in 0..100u64 {
                let key = number.to_be_bytes();
                db.transact(async |tx| tx.put(&table, &key, &key).await).await?;
            }
            db.transact(async |tx| tx.delete(&table, &7u64.to_be_bytes()).await).await?;
            let mut sum = 0;
            for number in 0..100u64 {
                let value = db.get(&table, &number.to_be_bytes()).await?;
                sum += value.map_or(0, |value| value[7].into());
            }
            Ok::<u64, Error>(sum)
        });
        assert_eq!(sum.unwrap(), 4950 - 7, "{preset}");
    }
}

/// They would be torn: what is newest is read, and nobody looks again.
#[test]
fn there_are_no_snapshots_without_opacity() {
    for preset in PRESETS {
        let db = Database::open(&format!("mem:?protocol={preset}")).unwrap().connect().unwrap();
        let taken = db.block_on(async { db.snapshot().await.map(|_| ()) });
        match preset {
            "farside" => assert!(taken.is_ok()),
            _ => assert!(taken.unwrap_err().to_string().contains("has no snapshots")),
        }
    }
}

/// Primaries of what was locked and not written kept their locks for ever, when those of what was written were given back early.
#[test]
fn what_is_locked_and_not_written_is_free_again() {
    let url = "mem:?protocol=ford-without-coalescent-commit";
    let db = Database::open(url).unwrap();
    let knows = db.connect().unwrap();
    let key = |number: u64| number.to_be_bytes();
    let table = knows.block_on(async {
        let table = knows.create_table("t").await?;
        for number in 0..8 {
            knows.transact(async |tx| tx.put(&table, &key(number), b"old").await).await?;
        }
        Ok::<_, Error>(table)
    });
    let table = table.unwrap();
    // It does not know where rows are: it locks their bucket, and then them.
    let new = db.connect().unwrap();
    new.block_on(async {
        for number in 0..8 {
            new.transact(async |tx| tx.put(&table, &key(number), b"new").await).await?;
        }
        Ok::<(), Error>(())
    })
    .unwrap();
    knows
        .block_on(async {
            for number in 8..40 {
                knows.transact(async |tx| tx.put(&table, &key(number), b"more").await).await?;
            }
            Ok::<(), Error>(())
        })
        .unwrap();
}
