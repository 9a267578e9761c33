//! How many addresses a thread remembers, and how often it does not know one (`ford.txt` Fig. 21), in the simulator.

use std::rc::Rc;

use farside_fabric::Worker;
use farside_fabric::runtime::Random;
use farside_index::{Client, Error};
use farside_sim::{Faults, Profile, Sim};

use crate::engine::{Engine, Failure, SimTables, Table, TableShape, table_name};
use crate::load::Zipf;

/// What a thread has learned that knew nothing in the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    /// Of a hundred lookups, those of addresses that it did not know.
    pub missed_percent: f64,
    /// Bytes of the addresses that it knows now.
    pub bytes: usize,
}

const ROW_BYTES: usize = 40;

/// A table of so many rows, and for each skew a thread that looks so many of them up, one at a time.
pub fn look_up(
    profile: Profile,
    rows: u64,
    skews: &[f64],
    lookups: u64,
    seed: u64,
) -> Result<Vec<Learned>, Failure> {
    let sim = Rc::new(Sim::new(profile, seed, Faults::none()));
    let table = TableShape { table: Table(0), value_bytes: ROW_BYTES, keys: rows };
    let engine = SimTables::with_room(&sim, 2, 2, TableShape::room(&[table], 1));
    // They join before anybody knows anything that could be told to them.
    let threads: Vec<Worker> = skews.iter().map(|_| engine.add_thread(0)).collect();
    let loader = engine.add_thread(1);
    loader.block_on(async {
        engine.create(&loader, &[table]).await?;
        engine.load(&loader, Table(0), &mut (0..rows).map(|key| (key, vec![1; ROW_BYTES]))).await
    })?;
    let mut found = Vec::new();
    for (skew, worker) in skews.iter().zip(&threads) {
        let keys = Zipf::new(rows, *skew);
        let learned = worker.block_on(learn(&engine.client(worker), &keys, lookups, seed));
        found.push(learned.map_err(|error| Failure::Broken(error.to_string()))?);
    }
    sim.end();
    Ok(found)
}

async fn learn(
    client: &Rc<Client>,
    keys: &Zipf,
    lookups: u64,
    seed: u64,
) -> Result<Learned, Error> {
    let table = client.begin().await?.table(&table_name(Table(0))).await?;
    let (mut random, mut missed) = (Random::new(seed), 0);
    for _ in 0..lookups {
        let key = keys.key(&mut random).to_be_bytes();
        missed += u64::from(!client.knows(&table, &key));
        let mut tx = client.begin().await?;
        let row = tx.get(&table, &key).await?;
        row.expect("all rows are there");
        tx.commit().await?;
    }
    let bytes = client.known_addresses() * Client::ADDRESS_BYTES;
    Ok(Learned { missed_percent: 100.0 * missed as f64 / lookups as f64, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_up_is_known() {
        let profile = Profile::named("connectx-5").unwrap();
        let [few, many] = [300, 3000].map(|rows| look_up(profile, rows, &[0.0], 1000, 1).unwrap());
        // A thousand draws of 300 find 289 of them, of 3,000 850.
        assert!((27.0..=30.1).contains(&few[0].missed_percent), "{few:?}");
        assert!((82.0..=88.0).contains(&many[0].missed_percent), "{many:?}");
        // Besides, it knows where the catalog has the table.
        let rows = (few[0].missed_percent * 10.0).round() as usize;
        assert_eq!(few[0].bytes, (rows + 1) * Client::ADDRESS_BYTES);
    }
}
