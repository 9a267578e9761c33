//! A bank: transfers that are made by several threads, and an audit that is always right.
//!
//! `cargo run --release --package farside --example bank`

use farside::{Database, Error, Plain, Typed};

const ACCOUNTS: u64 = 100;

type Accounts = Typed<u64, i64, Plain>;

/// What can go wrong in a bank.
#[derive(Debug)]
enum Refusal {
    TooLittleMoney,
    Store(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Store(error)
    }
}

fn main() -> Result<(), Error> {
    // In this process. "tcp:host:port,host:port" would be in memory nodes.
    let db = Database::open("mem:?copies=3")?;
    let main = db.connect()?;
    let accounts: Accounts = Typed::new(main.block_on(main.create_table("accounts"))?);
    main.block_on(main.transact(async |tx| {
        for account in 0..ACCOUNTS {
            accounts.put(tx, &account, &1000).await?;
        }
        Ok::<(), Error>(())
    }))?;

    let tellers: Vec<_> = (0..2u64)
        .map(|teller| {
            let db = db.clone();
            std::thread::spawn(move || -> Result<u32, Error> {
                let connection = db.connect()?;
                let mut refused = 0;
                for number in 0..5000u64 {
                    let from = (number * 31 + teller * 7) % ACCOUNTS;
                    let to = (from + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS;
                    let amount = 1 + (number % 90) as i64;
                    let transfer = connection.transact(async |tx| {
                        let there = accounts.get_for_update(tx, &from).await?.unwrap_or(0);
                        if there < amount {
                            return Err(Refusal::TooLittleMoney);
                        }
                        let here = accounts.get_for_update(tx, &to).await?.unwrap_or(0);
                        accounts.put(tx, &from, &(there - amount)).await?;
                        accounts.put(tx, &to, &(here + amount)).await?;
                        Ok(())
                    });
                    match connection.block_on(transfer) {
                        Ok(()) => {}
                        Err(Refusal::TooLittleMoney) => refused += 1,
                        Err(Refusal::Store(error)) => return Err(error),
                    }
                }
                Ok(refused)
            })
        })
        .collect();

    // The audit reads one moment, and is in nobody's way.
    for _ in 0..5 {
        assert_eq!(main.block_on(audit(&main, &accounts))?, 1000 * ACCOUNTS as i64);
    }
    let mut refused = 0;
    for teller in tellers {
        refused += teller.join().expect("tellers do not panic")?;
    }
    let total = main.block_on(audit(&main, &accounts))?;
    println!("10000 transfers, {refused} refused; all accounts together: {total}");
    assert_eq!(total, 1000 * ACCOUNTS as i64);
    Ok(())
}

async fn audit(connection: &farside::Connection, accounts: &Accounts) -> Result<i64, Error> {
    let mut total = 0;
    let mut moment = connection.snapshot().await?;
    let add = |_: &[u8], value: &[u8]| total += value.try_into().map_or(0, i64::from_le_bytes);
    moment.scan(accounts.table(), add).await?;
    Ok(total)
}
