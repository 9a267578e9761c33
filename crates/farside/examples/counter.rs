//! A counter service: many clients count things, each count exactly once.
//!
//! `cargo run --release --package farside --example counter`

use farside::{Database, Error};

fn main() -> Result<(), Error> {
    let db = Database::open("mem:")?;
    let counters = db.blocking()?.create_table("counters")?;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            std::thread::spawn(move || -> Result<(), Error> {
                let db = db.blocking()?;
                for number in 0..1000 {
                    let page = format!("page {}", number % 10);
                    db.add(&counters, page.as_bytes(), 1)?;
                }
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().expect("clients do not panic")?;
    }
    let mut total = 0;
    db.blocking()?.snapshot()?.scan(&counters, |page, count| {
        let count = count.try_into().map_or(0, i64::from_le_bytes);
        println!("{}: {count}", String::from_utf8_lossy(page));
        total += count;
    })?;
    assert_eq!(total, 4000);
    Ok(())
}
