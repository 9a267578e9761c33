//! TATP: a register of telephone subscribers, seven kinds of transactions, four of five only read.
//!
//! Rows are made from the number of their subscriber alone, so that the final check knows which of them must
//! be there. Where the benchmark's specification lets a transaction fail (a row that is not there, or that
//! is there already), it commits without having written.

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::{Books, Effect, Mix, Tx, Workload, visit};
use crate::engine::{Engine, Failure, Session, Table, TableShape, Transaction};
use crate::history::Outcome;

const SUBSCRIBER: Table = Table(20);
/// From a subscriber's telephone number to its row.
const NUMBER: Table = Table(21);
const ACCESS_INFO: Table = Table(22);
const SPECIAL_FACILITY: Table = Table(23);
const CALL_FORWARDING: Table = Table(24);

const MIX: Mix = Mix(&[35, 35, 10, 2, 14, 2, 2]);

/// The workload.
#[derive(Debug)]
pub struct Tatp {
    subscribers: u64,
    books: Books,
}

/// What to do: a kind, a subscriber, and the rest of the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    kind: usize,
    subscriber: u64,
    /// Of access information, or of a special facility: 0 to 3.
    sort: u64,
    /// Eight hours each: 0 to 2.
    start: u64,
    end: u64,
    data: u64,
}

impl Input {
    /// The subscriber.
    pub fn subscriber(&self) -> u64 {
        self.subscriber
    }
}

impl Tatp {
    /// With so many subscribers.
    pub fn new(subscribers: u64) -> Self {
        Tatp { subscribers: subscribers.max(1), books: Books::default() }
    }

    /// Which of four rows a subscriber has: one to four of them.
    fn has(table: Table, subscriber: u64, sort: u64) -> bool {
        let count = 1 + mixed(subscriber, u64::from(table.0)) % 4;
        // Beginning somewhere, so that none is everybody's.
        let first = mixed(subscriber, u64::from(table.0) + 100) % 4;
        (sort + 4 - first) % 4 < count
    }

    fn forwards_at_first(subscriber: u64, sort: u64, start: u64) -> bool {
        let count = mixed(subscriber * 4 + sort, 7) % 4;
        Self::has(SPECIAL_FACILITY, subscriber, sort) && start < count
    }

    fn forwardings(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        (0..self.subscribers).flat_map(|subscriber| {
            (0..4).flat_map(move |sort| (0..3).map(move |start| (subscriber, sort, start)))
        })
    }
}

fn mixed(number: u64, salt: u64) -> u64 {
    let mut mixed = (number ^ salt << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

fn sub_key(subscriber: u64, sort: u64) -> u64 {
    subscriber * 4 + sort
}

fn forwarding_key(subscriber: u64, sort: u64, start: u64) -> u64 {
    sub_key(subscriber, sort) * 3 + start
}

/// A row of so many words, with some of them given.
fn row<const WORDS: usize>(words: [u64; WORDS]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at * 8..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u64::from_le_bytes(*w))
}

fn missing(what: &str, subscriber: u64) -> Failure {
    Failure::Broken(format!("the {what} of subscriber {subscriber} is gone"))
}

impl Workload for Tatp {
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &[
            "get-subscriber-data",
            "get-access-data",
            "get-new-destination",
            "update-subscriber-data",
            "update-location",
            "insert-call-forwarding",
            "delete-call-forwarding",
        ]
    }

    fn tables(&self) -> Vec<TableShape> {
        let shape = |(table, rows, value_bytes)| {
            let keys = self.subscribers * rows;
            TableShape { table, keys, value_bytes }
        };
        let facilities =
            [(ACCESS_INFO, 4, 16), (SPECIAL_FACILITY, 4, 16), (CALL_FORWARDING, 12, 16)];
        [(SUBSCRIBER, 1, 40), (NUMBER, 1, 8)].into_iter().chain(facilities).map(shape).collect()
    }

    async fn setup<E: Engine>(&self, engine: &E, worker: &Worker) -> Result<(), Failure> {
        let all = 0..self.subscribers;
        // Its number, bits, location of the switch and of the visitor: 40 bytes.
        let mut rows = all.clone().map(|s| (s, row([s, mixed(s, 1), mixed(s, 2), mixed(s, 3), 0])));
        engine.load(worker, SUBSCRIBER, &mut rows).await?;
        let mut rows = all.clone().map(|s| (s, row([s])));
        engine.load(worker, NUMBER, &mut rows).await?;
        for table in [ACCESS_INFO, SPECIAL_FACILITY] {
            let sorts = all.clone().flat_map(|s| (0..4).map(move |sort| (s, sort)));
            let there = sorts.filter(|(s, sort)| Self::has(table, *s, *sort));
            // Whether it is active (85 %), and data: 16 bytes.
            let mut rows = there.map(|(s, sort)| {
                let active = u64::from(mixed(sub_key(s, sort), 4) % 100 < 85);
                (sub_key(s, sort), row([active, mixed(sub_key(s, sort), 5)]))
            });
            engine.load(worker, table, &mut rows).await?;
        }
        let there =
            self.forwardings().filter(|(s, sort, at)| Self::forwards_at_first(*s, *sort, *at));
        // Until when, and where to.
        let mut rows = there.map(|(s, sort, start)| {
            let end = 8 * start + 1 + mixed(s, 6 + start) % 8;
            (forwarding_key(s, sort, start), row([end, mixed(s, 9)]))
        });
        engine.load(worker, CALL_FORWARDING, &mut rows).await
    }

    fn draw(&self, random: &mut Random) -> (usize, Input) {
        let kind = MIX.draw(random);
        // Not even, as the specification wants it.
        let spread = match self.subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        let subscriber =
            (random.below(spread + 1) | random.below(self.subscribers)) % self.subscribers;
        let start = random.below(3);
        let input = Input {
            kind,
            subscriber,
            sort: random.below(4),
            start,
            end: 1 + random.below(24),
            data: random.draw() >> 8,
        };
        (kind, input)
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        input: &Input,
    ) -> Result<Effect, Failure> {
        match input.kind {
            0 => {
                let rows = tx.read(&[Tx::<T>::want(SUBSCRIBER, input.subscriber)]).await?;
                let row = rows.get(0).ok_or_else(|| missing("row", input.subscriber))?;
                if word(row, 0) != input.subscriber {
                    return Err(missing("right row", input.subscriber));
                }
                Ok(Effect::default())
            }
            1 => {
                let key = sub_key(input.subscriber, input.sort);
                let found = tx.read(&[Tx::<T>::want(ACCESS_INFO, key)]).await?.get(0).is_some();
                match found == Self::has(ACCESS_INFO, input.subscriber, input.sort) {
                    true => Ok(Effect::default()),
                    false => Err(missing("access information", input.subscriber)),
                }
            }
            2 => new_destination(tx, input).await,
            3 => update_subscriber(tx, input).await,
            _ => {
                let rows = tx.read(&[Tx::<T>::want(NUMBER, input.subscriber)]).await?;
                let number = rows.get(0).ok_or_else(|| missing("number", input.subscriber))?;
                let subscriber = word(number, 0);
                match input.kind {
                    4 => update_location(tx, subscriber, input.data).await,
                    5 => insert_forwarding(tx, subscriber, input).await,
                    _ => delete_forwarding(tx, subscriber, input).await,
                }
            }
        }
    }

    fn book(&self, _: &Input, effect: Effect, outcome: Outcome) {
        self.books.book(effect.rows, outcome);
    }

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        for (table, name) in [(SUBSCRIBER, "subscriber"), (NUMBER, "number")] {
            visit(session, table, 0..self.subscribers, |key, row| match row {
                Some(row) if word(row, 0) == key => Ok(()),
                _ => Err(format!("the {name} row of {key} is gone, or not its own")),
            })
            .await?;
        }
        for (table, name) in [(ACCESS_INFO, "access"), (SPECIAL_FACILITY, "facility")] {
            visit(session, table, 0..self.subscribers * 4, |key, row| {
                match row.is_some() == Self::has(table, key / 4, key % 4) {
                    true => Ok(()),
                    false => Err(format!("{name} row {key} came or went")),
                }
            })
            .await?;
        }
        let first =
            self.forwardings().filter(|(s, sort, at)| Self::forwards_at_first(*s, *sort, *at));
        let (beginning, mut total) = (first.count() as i64, 0);
        visit(session, CALL_FORWARDING, 0..self.subscribers * 12, |key, row| {
            let has_facility = Self::has(SPECIAL_FACILITY, key / 12, key / 3 % 4);
            total += i64::from(row.is_some());
            match row.is_some() && !has_facility {
                true => Err(format!("forwarding {key} is of a facility that is not there")),
                false => Ok(()),
            }
        })
        .await?;
        self.books.balance("forwardings", beginning, total)
    }
}

/// Where calls go that begin at a time and last until another.
async fn new_destination<T: Transaction>(
    tx: &mut Tx<'_, T>,
    input: &Input,
) -> Result<Effect, Failure> {
    let Input { subscriber, sort, start, .. } = *input;
    // All forwardings that begin by then.
    let earlier =
        (0..=start).map(|at| Tx::<T>::want(CALL_FORWARDING, forwarding_key(subscriber, sort, at)));
    let facility = Tx::<T>::want(SPECIAL_FACILITY, sub_key(subscriber, sort));
    let wants: Vec<_> = [facility].into_iter().chain(earlier).collect();
    let rows = tx.read(&wants).await?;
    if rows.get(0).is_some_and(|facility| word(facility, 0) == 1) {
        let reached = (1..wants.len()).filter_map(|at| rows.get(at));
        let _destinations = reached.filter(|row| word(row, 0) > input.end).count();
    }
    Ok(Effect::default())
}

async fn update_subscriber<T: Transaction>(
    tx: &mut Tx<'_, T>,
    input: &Input,
) -> Result<Effect, Failure> {
    let (subscriber, key) = (input.subscriber, sub_key(input.subscriber, input.sort));
    let wants =
        [Tx::<T>::want_update(SUBSCRIBER, subscriber), Tx::<T>::want_update(SPECIAL_FACILITY, key)];
    let rows = tx.read(&wants).await?;
    let mut person = rows.get(0).ok_or_else(|| missing("row", subscriber))?.to_vec();
    let Some(mut facility) = rows.get(1).map(<[u8]>::to_vec) else {
        return Ok(Effect::default());
    };
    person[8] ^= 1;
    facility[8..16].copy_from_slice(&input.data.to_le_bytes());
    tx.write(SUBSCRIBER, subscriber, Some(&person)).await?;
    tx.write(SPECIAL_FACILITY, key, Some(&facility)).await?;
    Ok(Effect::default())
}

async fn update_location<T: Transaction>(
    tx: &mut Tx<'_, T>,
    subscriber: u64,
    location: u64,
) -> Result<Effect, Failure> {
    let rows = tx.read(&[Tx::<T>::want_update(SUBSCRIBER, subscriber)]).await?;
    let mut person = rows.get(0).ok_or_else(|| missing("row", subscriber))?.to_vec();
    person[32..40].copy_from_slice(&location.to_le_bytes());
    tx.write(SUBSCRIBER, subscriber, Some(&person)).await?;
    Ok(Effect::default())
}

async fn insert_forwarding<T: Transaction>(
    tx: &mut Tx<'_, T>,
    subscriber: u64,
    input: &Input,
) -> Result<Effect, Failure> {
    // The facilities of the subscriber, and the row to be.
    let key = forwarding_key(subscriber, input.sort, input.start);
    let mut wants: Vec<_> =
        (0..4).map(|sort| Tx::<T>::want(SPECIAL_FACILITY, sub_key(subscriber, sort))).collect();
    wants.push(Tx::<T>::want_insert(CALL_FORWARDING, key));
    let rows = tx.read(&wants).await?;
    if rows.get(input.sort as usize).is_none() || rows.get(4).is_some() {
        return Ok(Effect::default());
    }
    let end = 8 * input.start + 1 + input.end % 8;
    tx.write(CALL_FORWARDING, key, Some(&row([end, input.data]))).await?;
    Ok(Effect { sum: 0, rows: 1 })
}

async fn delete_forwarding<T: Transaction>(
    tx: &mut Tx<'_, T>,
    subscriber: u64,
    input: &Input,
) -> Result<Effect, Failure> {
    let key = forwarding_key(subscriber, input.sort, input.start);
    let rows = tx.read(&[Tx::<T>::want_delete(CALL_FORWARDING, key)]).await?;
    if rows.get(0).is_none() {
        return Ok(Effect::default());
    }
    tx.write(CALL_FORWARDING, key, None).await?;
    Ok(Effect { sum: 0, rows: -1 })
}
