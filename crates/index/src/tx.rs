//! A transaction on tables.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use farside_txn::{Blob, Effort, Level, Target, Trap, Txn, TxnError};
use smallvec::SmallVec;

use crate::client::Client;
use crate::find::{Few, Sought};
use crate::tag::{self, MAX_KEY_BYTES, MAX_VALUE_BYTES, Value};
use crate::{Error, Table};

/// What a key is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To be read.
    Read,
    /// To be read, and written if it is there.
    Update,
    /// To be written, and it is probably not there.
    Insert,
    /// To be read, and deleted.
    Delete,
}

/// A key that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// In which table.
    pub table: &'a Table,
    /// Which.
    pub key: &'a [u8],
    /// What for.
    pub intent: Intent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Unknown,
    Present,
    Absent,
}

/// What a transaction knows of a key.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) table: Table,
    pub(crate) hash: u64,
    pub(crate) key: SmallVec<[u8; 24]>,
    pub(crate) state: State,
    pub(crate) row: Option<Target>,
    /// Its bucket, if that was seen.
    pub(crate) bucket: Option<Target>,
    /// What proves that it is not there.
    pub(crate) proof: Option<Target>,
    /// A place that was allocated for its row.
    pub(crate) fresh: Option<Target>,
}

/// Buckets that a transaction has merged when it has committed. What is left is merged another time.
const MOST_THIN: usize = 8;

/// Keys up to which looking at all of them is fastest.
const FEW: usize = 16;

/// A transaction on tables. Dropping it aborts it.
#[derive(Debug)]
pub struct Tx {
    pub(crate) client: Rc<Client>,
    pub(crate) txn: Box<Txn>,
    pub(crate) places: Vec<Place>,
    /// By hash, once there are many.
    by_hash: Option<HashMap<u64, u32>>,
    /// Keys whose buckets have few rows left.
    pub(crate) thin: Vec<(Table, u64)>,
    /// For addresses that it learns.
    pub(crate) began: u64,
}

impl Tx {
    pub(crate) fn new(client: Rc<Client>, txn: Box<Txn>) -> Self {
        let began = txn.agent().learned_at();
        Tx { client, txn, places: Vec::with_capacity(4), by_hash: None, thin: Vec::new(), began }
    }

    /// Counts what this takes from now on.
    pub fn count_effort(&mut self, effort: &Rc<Cell<Effort>>) {
        self.txn.count_effort(effort);
    }

    /// Its age among the transactions of its process, to be kept when it begins again.
    pub fn age(&self) -> u64 {
        self.txn.age()
    }

    /// The thread's way to tables.
    pub fn client(&self) -> &Rc<Client> {
        &self.client
    }

    /// The place of a key, new if there was none.
    pub(crate) fn place(&mut self, table: &Table, key: &[u8]) -> Result<usize, Error> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyTooLong(key.len()));
        }
        let hash = table.hash(key);
        if let Some(known) = self.known(table, hash, key) {
            return Ok(known);
        }
        self.client.addresses.borrow().expect(table.id, hash);
        if self.places.len() == FEW {
            let all = self.places.iter().zip(0..).map(|(place, at)| (place.hash, at));
            self.by_hash = Some(all.collect());
        }
        if let Some(by_hash) = &mut self.by_hash {
            by_hash.insert(hash, self.places.len() as u32);
        }
        self.places.push(Place {
            table: *table,
            hash,
            key: SmallVec::from_slice(key),
            state: State::Unknown,
            row: None,
            bucket: None,
            proof: None,
            fresh: None,
        });
        Ok(self.places.len() - 1)
    }

    fn known(&self, table: &Table, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |place: &Place| {
            place.hash == hash && place.table.id == table.id && place.key[..] == *key
        };
        if self.places.len() > FEW {
            let at = *self.by_hash.as_ref()?.get(&hash)? as usize;
            if is_it(&self.places[at]) {
                return Some(at);
            }
        }
        self.places.iter().position(is_it)
    }

    /// Promises something else than usual, from the first step on.
    pub fn set_level(&mut self, level: Level) {
        self.txn.set_level(level);
    }

    /// It will probably write something.
    pub fn expect_writes(&mut self) {
        self.txn.expect_writes();
    }

    /// The moment that it reads from, if it has read anything.
    pub fn snapshot(&self) -> Option<u64> {
        self.txn.snapshot()
    }

    /// Reads from a moment that may be long past, as long as old versions of that time are kept.
    pub async fn take_snapshot_of(&mut self, time: u64) -> Result<(), Error> {
        Ok(self.txn.take_snapshot_of(time).await?)
    }

    /// Reads from one moment, which is now.
    pub async fn take_snapshot(&mut self) -> Result<(), Error> {
        Ok(self.txn.take_snapshot().await?)
    }

    /// Forgets what was read: for those who only read, and much.
    pub fn forget_reads(&mut self) {
        self.txn.forget_reads();
        self.places.clear();
        self.by_hash = None;
    }

    /// Whether all is known and held that is needed.
    pub(crate) fn is_ready(&self, place: usize, intent: Intent) -> bool {
        let place = &self.places[place];
        let held = |target: Option<Target>| target.is_some_and(|at| self.txn.is_locked(at));
        match (place.state, intent) {
            (State::Unknown, _) => false,
            (_, Intent::Read) | (State::Absent, Intent::Delete) => true,
            (State::Present, Intent::Update) => held(place.row),
            (State::Present, Intent::Insert) => true,
            (State::Absent, Intent::Update) => held(place.proof),
            (State::Absent, Intent::Insert) => self.has_bucket(place) && held(place.fresh),
            (State::Present, Intent::Delete) => self.has_bucket(place),
        }
    }

    /// Its bucket is locked, and is still the right one: it may have been split by this transaction.
    fn has_bucket(&self, place: &Place) -> bool {
        place.bucket.filter(|at| self.txn.is_locked(*at)).is_some_and(|at| {
            let version = self.txn.see(at);
            let matches = version.map(|version| {
                crate::bucket::Bucket::matches(version, place.table.id, place.hash).is_some()
            });
            matches == Some(true)
        })
    }

    /// Looks for some keys, which do not depend on each other: one step. Their places, in order.
    async fn look(&mut self, wants: &[Want<'_>]) -> Result<Few<usize>, Error> {
        let (mut places, mut open) = (Few::new(), Few::<Sought>::new());
        for want in wants {
            let place = self.place(want.table, want.key)?;
            places.push(place);
            if !self.is_ready(place, want.intent) && !open.iter().any(|(known, ..)| *known == place)
            {
                open.push((place, want.intent, 0));
            }
        }
        if !open.is_empty() {
            self.find(open).await?;
        }
        Ok(places)
    }

    /// Reads some keys, which do not depend on each other, and locks those that will be written: one step. Calls
    /// `each` with the number of each want, the version stamp of its row, and its value, if it is there.
    pub async fn read(
        &mut self,
        wants: &[Want<'_>],
        mut each: impl FnMut(usize, u64, Option<&[u8]>),
    ) -> Result<(), Error> {
        let places = self.look(wants).await?;
        for (number, place) in places.into_iter().enumerate() {
            let stamp = self.stamp(place);
            match self.value(place)? {
                None => each(number, stamp, None),
                Some(Value::Here(value)) => each(number, stamp, Some(value)),
                Some(Value::Elsewhere(pointer)) => {
                    let blob = Blob::from_bytes(pointer).ok_or_else(damaged)?;
                    let value = Box::pin(self.txn.get_blob(blob)).await?;
                    each(number, stamp, Some(&value));
                }
            }
        }
        Ok(())
    }

    /// When the row was committed that was read; 0 if there was none.
    fn stamp(&self, place: usize) -> u64 {
        let row = self.places[place].row;
        row.and_then(|row| self.txn.read_version(row)).map_or(0, |version| version.ts)
    }

    pub(crate) fn value(&self, place: usize) -> Result<Option<Value<'_>>, Error> {
        let place = &self.places[place];
        let Some(row) = place.row else { return Ok(None) };
        let version = self.txn.see(row).ok_or_else(damaged)?;
        let value = tag::value_of(version, place.table.id, &place.key);
        let trusting = self.txn.agent().has(Trap::StaleAddress);
        let any = || tag::split_row(version, place.table.id).filter(|_| trusting);
        Ok(Some(value.or_else(|| Some(any()?.1)).ok_or_else(damaged)?))
    }

    /// Reads a key.
    pub async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.get_as(table, key, Intent::Read).await
    }

    /// Reads a key, and locks it for a write that follows.
    pub async fn get_for_update(
        &mut self,
        table: &Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        self.get_as(table, key, Intent::Update).await
    }

    async fn get_as(
        &mut self,
        table: &Table,
        key: &[u8],
        intent: Intent,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        let want = Want { table, key, intent };
        self.read(&[want], |_, _, value| found = value.map(<[u8]>::to_vec)).await?;
        Ok(found)
    }

    /// Writes a key, whether it is there or not.
    pub async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let place = self.ready_to_write(table, key, value).await?;
        self.set(place, value).await
    }

    /// Writes several keys, whether they are there or not, in as many round trips as one.
    pub async fn put_many(&mut self, table: &Table, rows: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let (mut places, mut open) = (Vec::with_capacity(rows.len()), Few::new());
        for (key, value) in rows {
            check_value(value)?;
            let place = self.place(table, key)?;
            if !self.is_ready(place, Intent::Insert) && !places.contains(&place) {
                open.push((place, Intent::Insert, value.len()));
            }
            places.push(place);
        }
        if !open.is_empty() {
            self.find(open).await?;
        }
        for (place, (_, value)) in places.into_iter().zip(rows) {
            self.set(place, value).await?;
        }
        Ok(())
    }

    /// Writes a key that is not there.
    pub async fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let place = self.ready_to_write(table, key, value).await?;
        if self.places[place].state == State::Present {
            return Err(Error::KeyExists);
        }
        self.set(place, value).await
    }

    async fn ready_to_write(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<usize, Error> {
        check_value(value)?;
        let place = self.place(table, key)?;
        if !self.is_ready(place, Intent::Insert) {
            self.find_one((place, Intent::Insert, value.len())).await?;
        }
        Ok(place)
    }

    /// Writes a key that is there.
    pub async fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        check_value(value)?;
        let place = self.place(table, key)?;
        if !self.is_ready(place, Intent::Update) {
            self.find_one((place, Intent::Update, value.len())).await?;
        }
        if self.places[place].state != State::Present {
            return Err(Error::NoKey);
        }
        self.set(place, value).await
    }

    /// Deletes a key; whether it was there.
    pub async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool, Error> {
        let place = self.place(table, key)?;
        if !self.is_ready(place, Intent::Delete) {
            self.find_one((place, Intent::Delete, 0)).await?;
        }
        if self.places[place].state != State::Present {
            return Ok(false);
        }
        self.remove(place).await?;
        Ok(true)
    }

    /// What was done by half must not commit.
    pub(crate) fn whole<T>(&mut self, done: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &done {
            self.txn.fail(match error {
                Error::Txn(error) => error.clone(),
                other => TxnError::Refused(other.to_string()),
            });
        }
        done
    }

    /// The time as of which it reads; `None` if it has read nothing.
    pub fn read_time(&self) -> Option<u64> {
        self.txn.read_time()
    }

    /// Commits; the commit time, if anything was written.
    pub async fn commit(self) -> Result<Option<u64>, Error> {
        let Tx { client, txn, places, began, thin, .. } = self;
        let time = txn.commit().await?;
        if time.is_some() {
            let mut addresses = client.addresses.borrow_mut();
            for place in &places {
                let (table, hash) = (place.table.id, place.hash);
                match place.row {
                    Some(row) if place.fresh.is_none() && place.proof.is_some() => {
                        // It was inserted just now.
                        let bytes = Target::bytes(row.room);
                        if let Some(class) = farside_pool::alloc::SizeClass::of(bytes) {
                            addresses.learn(table, hash, row.addr, class, began);
                        }
                    }
                    None => addresses.forget(table, hash),
                    Some(_) => {}
                }
            }
        }
        for (table, hash) in thin.into_iter().take(usize::from(time.is_some()) * MOST_THIN) {
            let shrink = Rc::clone(&client).shrink(table, hash);
            client.agent().beside(shrink);
        }
        Ok(time)
    }

    /// Ends it without a trace.
    pub async fn abort(self) {
        self.txn.abort().await;
    }
}

fn check_value(value: &[u8]) -> Result<(), Error> {
    if value.len() > MAX_VALUE_BYTES { Err(Error::ValueTooLong(value.len())) } else { Ok(()) }
}

pub(crate) fn damaged() -> Error {
    TxnError::Refused("a row is damaged".into()).into()
}
