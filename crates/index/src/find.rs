//! From keys to rows: many at once, as far as they do not depend on each other.
//!
//! A search begins where the row was last seen, or at the bucket where it should be, and walks down from the
//! root where neither is known or right. Whoever reads, reads all of it at the snapshot; whoever writes peeks
//! its way, and believes only what it has locked.

use farside_fabric::probe;
use farside_pool::alloc::SizeClass;
use farside_txn::{Access, Mode, Target, Trap, TxnError, Version, Why};
use smallvec::SmallVec;

use crate::Error;
use crate::bucket::{Bucket, CLASS_BYTES};
use crate::node::{self, Child, Node};
use crate::tag::{self, Kind};
use crate::tx::{Intent, Place, State, Tx};

/// As many as most steps have, in place.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// A key to look for, by its place: what for, and how long its value may be, if it is inserted.
pub(crate) type Sought = (usize, Intent, usize);

/// A key that is looked for.
pub(crate) struct Search {
    /// Its place among those that the transaction knows.
    pub(crate) place: usize,
    pub(crate) intent: Intent,
    /// How long its value may be, if it is inserted.
    pub(crate) value_bytes: usize,
    stage: Stage,
    /// How often it began at the root.
    walks: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A row: remembered (`None`), or one of those that a bucket names.
    Row {
        row: Target,
        named: Option<(Target, usize)>,
    },
    Bucket(Target),
    Walk {
        node: Target,
        level: u32,
    },
    /// The root of an empty table.
    Hole(Target),
}

/// After so many walks something is wrong, or others are always faster.
const MOST_WALKS: u32 = 16;

/// The same for rounds.
const MOST_ROUNDS: u32 = 100;

impl Tx {
    /// Finds some keys, each as it is meant.
    pub(crate) async fn find(&mut self, wants: Few<Sought>) -> Result<(), Error> {
        let begin = |(place, intent, value_bytes): Sought| Search {
            place,
            intent,
            value_bytes,
            stage: self.first_stage(place),
            walks: 0,
        };
        let mut searches: Few<Search> = wants.into_iter().map(begin).collect();
        let mut accesses = Few::new();
        for _ in 0..MOST_ROUNDS {
            accesses.clear();
            for search in &searches {
                self.ask(search, &mut accesses).await?;
            }
            self.txn.access(&accesses).await?;
            let mut at = 0;
            while at < searches.len() {
                if self.advance(&mut searches[at])? {
                    searches.swap_remove(at);
                } else {
                    at += 1;
                }
            }
            if searches.is_empty() {
                return Ok(());
            }
        }
        Err(TxnError::Conflict(Why::Overtaken).into())
    }

    /// Finds a key that should have been asked for before: that is rare.
    pub(crate) async fn find_one(&mut self, want: Sought) -> Result<(), Error> {
        Box::pin(self.find(Few::from_iter([want]))).await
    }

    /// Where a row was last seen, or else its bucket.
    fn first_stage(&self, place: usize) -> Stage {
        let place = &self.places[place];
        let remembered = match self.txn.agent().protocol().address_cache {
            true => self.client.addresses.borrow().get(place.table.id, place.hash),
            false => None,
        };
        match (place.row, remembered) {
            (Some(row), _) => Stage::Row { row, named: None },
            (None, Some((row, learned))) if self.txn.may_use(learned) => {
                Stage::Row { row, named: None }
            }
            _ => self.bucket_stage(&place.table, place.hash),
        }
    }

    fn bucket_stage(&self, table: &crate::Table, hash: u64) -> Stage {
        let known = self.client.directory.borrow().bucket(table, hash);
        known.map_or(Stage::Walk { node: table.root(), level: 0 }, Stage::Bucket)
    }

    /// What a search wants to see next.
    async fn ask(&mut self, search: &Search, accesses: &mut Few<Access>) -> Result<(), Error> {
        let reads = search.intent == Intent::Read;
        let (target, mode) = match search.stage {
            Stage::Row { row, .. } => (row, if reads { Mode::Read } else { Mode::Lock }),
            // A thread remembers the rows that it uses: one that it does not is probably not there, and then
            // the bucket is what must not change.
            Stage::Bucket(bucket) => (bucket, if reads { Mode::Read } else { Mode::Lock }),
            Stage::Walk { node, .. } => (node, if reads { Mode::Read } else { Mode::Peek }),
            Stage::Hole(node) => (node, Mode::Lock),
        };
        accesses.push(Access { target, mode });
        match (search.intent, search.stage) {
            (Intent::Insert, Stage::Bucket(_)) => {
                let fresh = Box::pin(self.fresh_row(search)).await?;
                accesses.push(Access { target: fresh, mode: Mode::Fresh });
            }
            // The bucket will be needed, too.
            (Intent::Delete, Stage::Row { named: None, .. }) => {
                let place = &self.places[search.place];
                if let Stage::Bucket(target) = self.bucket_stage(&place.table, place.hash) {
                    accesses.push(Access { target, mode: Mode::Lock });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A place for the row, if it must be inserted.
    async fn fresh_row(&mut self, search: &Search) -> Result<Target, Error> {
        let place = &self.places[search.place];
        let class = place.table.class_for(place.key.len(), search.value_bytes);
        let room = Target::of_class(place.table.root, class).room;
        if let Some(fresh) = place.fresh.filter(|fresh| fresh.room >= room) {
            return Ok(fresh);
        }
        let addr = self.txn.agent().allocate(class).await?;
        let fresh = Target::of_class(addr, class);
        self.places[search.place].fresh = Some(fresh);
        Ok(fresh)
    }

    /// Takes in what was seen; whether the search is over.
    fn advance(&mut self, search: &mut Search) -> Result<bool, Error> {
        match search.stage {
            Stage::Row { row, named } => self.at_row(search, row, named),
            Stage::Bucket(bucket) => self.at_bucket(search, bucket),
            Stage::Walk { node, level } => self.at_node(search, node, level),
            Stage::Hole(node) => self.at_hole(search, node),
        }
    }

    fn at_row(
        &mut self,
        search: &mut Search,
        row: Target,
        named: Option<(Target, usize)>,
    ) -> Result<bool, Error> {
        let place = &self.places[search.place];
        let (table, hash) = (place.table, place.hash);
        let Some(version) = self.txn.see(row) else { return Ok(false) };
        if self.is_row_of(version, place) {
            return self.found(search, row, named);
        }
        match named {
            None => {
                probe!("a remembered address is stale");
                self.client.addresses.borrow_mut().forget(table.id, hash);
                self.txn.disregard(row);
                search.stage = self.bucket_stage(&table, hash);
                Ok(false)
            }
            Some((bucket, tried)) => self.try_named(search, bucket, tried + 1),
        }
    }

    fn found(
        &mut self,
        search: &mut Search,
        row: Target,
        named: Option<(Target, usize)>,
    ) -> Result<bool, Error> {
        let place = &mut self.places[search.place];
        place.row = Some(row);
        place.state = State::Present;
        let (table, hash) = (place.table, place.hash);
        let class = SizeClass::of(Target::bytes(row.room)).ok_or_else(unseen)?;
        self.client.addresses.borrow_mut().learn(table.id, hash, row.addr, class, self.began);
        self.txn.need(row);
        if let (Intent::Read, Some((bucket, _))) = (search.intent, named) {
            self.txn.disregard(bucket);
        }
        if search.intent != Intent::Delete {
            return Ok(true);
        }
        let bucket = match (named, self.bucket_stage(&table, hash)) {
            (Some((bucket, _)), _) | (None, Stage::Bucket(bucket)) => bucket,
            _ => {
                search.stage = Stage::Walk { node: table.root(), level: 0 };
                return Ok(false);
            }
        };
        let version = self.txn.see(bucket).filter(|_| self.txn.is_locked(bucket));
        let names = version
            .and_then(|version| Bucket::matches(version, table.id, hash))
            .is_some_and(|mut slots| slots.any(|slot| slot.addr == row.addr));
        if names {
            self.places[search.place].bucket = Some(bucket);
            return Ok(true);
        }
        self.walk_again(search)
    }

    fn at_bucket(&mut self, search: &mut Search, bucket: Target) -> Result<bool, Error> {
        let place = &self.places[search.place];
        let Some(version) = self.txn.see(bucket) else { return Ok(false) };
        if Bucket::matches(version, place.table.id, place.hash).is_none() {
            probe!("a bucket is for other hashes");
            self.txn.disregard(bucket);
            return self.walk_again(search);
        }
        self.try_named(search, bucket, 0)
    }

    /// The next row that a bucket names for the hash; or the key is not there.
    fn try_named(
        &mut self,
        search: &mut Search,
        bucket: Target,
        number: usize,
    ) -> Result<bool, Error> {
        let place = &self.places[search.place];
        let Some(version) = self.txn.see(bucket) else {
            // The snapshot has moved on.
            search.stage = Stage::Bucket(bucket);
            return Ok(false);
        };
        let Some(mut slots) = Bucket::matches(version, place.table.id, place.hash) else {
            return self.walk_again(search);
        };
        if let Some(slot) = slots.nth(number) {
            drop(slots);
            let row = slot.target().ok_or_else(unseen)?;
            search.stage = Stage::Row { row, named: Some((bucket, number)) };
            return Ok(false);
        }
        drop(slots);
        self.absent(search, bucket);
        self.places[search.place].bucket = Some(bucket);
        Ok(true)
    }

    /// The key is not there, as an object proves.
    fn absent(&mut self, search: &Search, proof: Target) {
        let place = &mut self.places[search.place];
        place.row = None;
        place.state = State::Absent;
        place.proof = Some(proof);
        match self.txn.agent().has(Trap::AbsenceUnproved) {
            true => self.txn.disregard(proof),
            false => self.txn.need(proof),
        }
    }

    /// Whether a version is the row of a key. Addresses are hints: another key may be there by now.
    fn is_row_of(&self, version: &Version, place: &Place) -> bool {
        let (table, trusting) = (place.table.id, self.txn.agent().has(Trap::StaleAddress));
        tag::value_of(version, table, &place.key).is_some()
            || trusting && tag::split_row(version, table).is_some()
    }

    fn at_node(&mut self, search: &mut Search, at: Target, level: u32) -> Result<bool, Error> {
        let place = &self.places[search.place];
        let (table, hash) = (place.table, place.hash);
        let Some(version) = self.txn.see(at) else { return Ok(false) };
        let node = match Node::parse(version, table.id) {
            Some(node) => node,
            None if level == 0 && table.is_catalog() => Node::EMPTY,
            None if level == 0 => {
                let dropped = tag::is(version, table.id, Kind::Dropped);
                let why = if dropped { "it is being dropped" } else { "it was dropped" };
                return Err(Error::NoTable(format!("#{}: {why}", table.id)));
            }
            None => return self.walk_again(search),
        };
        let since = self.txn.floor();
        self.client.directory.borrow_mut().learn(table.id, at.addr, node, since);
        search.stage = match node.child(hash, level) {
            Child::Nothing if search.intent == Intent::Read => {
                self.absent(search, at);
                return Ok(true);
            }
            Child::Nothing => Stage::Hole(at),
            Child::Bucket(bucket) => Stage::Bucket(bucket),
            Child::Node(node) => Stage::Walk { node, level: level + 1 },
        };
        self.txn.disregard(at);
        Ok(false)
    }

    /// The root is locked.
    fn at_hole(&mut self, search: &mut Search, at: Target) -> Result<bool, Error> {
        let place = &self.places[search.place];
        let (table, hash) = (place.table, place.hash);
        let Some(version) = self.txn.see(at) else { return Ok(false) };
        let is_catalog = table.is_catalog() && !version.is_present();
        let node = Node::parse(version, table.id).or(is_catalog.then_some(Node::EMPTY));
        if node.is_none_or(|node| node.child(hash, 0) != Child::Nothing) {
            search.stage = Stage::Walk { node: at, level: 0 };
            return Ok(false);
        }
        self.absent(search, at);
        Ok(true)
    }

    /// From the root once more, with a fresh look.
    fn walk_again(&mut self, search: &mut Search) -> Result<bool, Error> {
        search.walks += 1;
        if search.walks > MOST_WALKS {
            return Err(TxnError::Conflict(Why::Overtaken).into());
        }
        self.txn.forget_peeks();
        let root = self.places[search.place].table.root();
        search.stage = Stage::Walk { node: root, level: 0 };
        Ok(false)
    }

    /// A new object for the directory.
    pub(crate) async fn fresh_bucket(&mut self) -> Result<Target, Error> {
        let class = SizeClass::of(CLASS_BYTES).expect("a class of its own");
        Ok(node::target(self.txn.agent().allocate(class).await?))
    }
}

/// What cannot be: an object was asked for and not seen.
fn unseen() -> Error {
    TxnError::Refused("an object is damaged".into()).into()
}
