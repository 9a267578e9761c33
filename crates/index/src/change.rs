//! Rows that are written, inserted and deleted, as a part of a transaction; and buckets that split when they are
//! full.

use farside_fabric::probe;
use farside_pool::alloc::SizeClass;
use farside_txn::{Access, Blob, Mode, Target, TxnError, Why};

use crate::bucket::{Bucket, Slot};
use crate::node::{BITS, Child, Node};
use crate::shrink::FEW_ROWS;
use crate::tag::{Kind, Value, tag};
use crate::tx::{Intent, State, Tx, damaged};
use crate::{Error, Table};

impl Tx {
    /// Writes the row of a key that was looked for.
    pub(crate) async fn set(&mut self, place: usize, value: &[u8]) -> Result<(), Error> {
        let done = self.set_by_parts(place, value).await;
        self.whole(done)
    }

    async fn set_by_parts(&mut self, place: usize, value: &[u8]) -> Result<(), Error> {
        if let Some(row) = self.places[place].row {
            self.drop_value(place)?;
            return self.write_row(place, row, value).await;
        }
        self.insert_slot(place, value.len()).await?;
        let place_ref = &mut self.places[place];
        let row = place_ref.fresh.take().ok_or_else(damaged)?;
        place_ref.row = Some(row);
        place_ref.state = State::Present;
        self.write_row(place, row, value).await
    }

    async fn write_row(&mut self, place: usize, row: Target, value: &[u8]) -> Result<(), Error> {
        let (table, key) = (self.places[place].table.id, &self.places[place].key);
        let key_bytes = key.len();
        if key_bytes + value.len() <= row.room as usize * 8 {
            return Ok(self.txn.write(row, tag(table, Kind::Row, key_bytes), &[key, value])?);
        }
        probe!("a value has a place of its own");
        let blob = self.txn.put_blob(value).await?;
        let key = &self.places[place].key;
        let tag = tag(table, Kind::LongRow, key_bytes);
        Ok(self.txn.write(row, tag, &[key, &blob.to_bytes()])?)
    }

    /// A value that has a place of its own will be replaced, or deleted.
    fn drop_value(&mut self, place: usize) -> Result<(), Error> {
        if let Some(Value::Elsewhere(pointer)) = self.value(place)? {
            let blob = Blob::from_bytes(pointer).ok_or_else(damaged)?;
            self.txn.drop_blob(blob);
        }
        Ok(())
    }

    /// The bucket of a key that is not there gets a slot for it.
    async fn insert_slot(&mut self, place: usize, value_bytes: usize) -> Result<(), Error> {
        self.need_bucket(place, value_bytes).await?;
        let (table, hash) = (self.places[place].table, self.places[place].hash);
        loop {
            if !self.is_ready(place, Intent::Insert) {
                // It was split.
                self.find_one((place, Intent::Insert, value_bytes)).await?;
            }
            let bucket_at = self.places[place].bucket.ok_or_else(damaged)?;
            let mut bucket = self.bucket(&table, bucket_at)?;
            if bucket.is_full() {
                self.split(&table, bucket_at, &bucket, hash).await?;
                continue;
            }
            let row = self.places[place].fresh.ok_or_else(damaged)?;
            let class = SizeClass::of(Target::bytes(row.room)).ok_or_else(damaged)?;
            bucket.slots.push(Slot::new(row.addr, class, hash));
            return self.write_bucket(&table, bucket_at, &bucket);
        }
    }

    fn bucket(&self, table: &Table, at: Target) -> Result<Bucket, Error> {
        let version = self.txn.see(at).ok_or_else(damaged)?;
        Bucket::parse(version, table.id).ok_or_else(damaged)
    }

    pub(crate) fn write_bucket(
        &mut self,
        table: &Table,
        at: Target,
        bucket: &Bucket,
    ) -> Result<(), Error> {
        let (tag, bytes) = bucket.to_bytes(table.id);
        Ok(self.txn.write(at, tag, &[&bytes])?)
    }

    pub(crate) fn write_node(
        &mut self,
        table: &Table,
        at: Target,
        node: Node,
    ) -> Result<(), Error> {
        // If this does not commit, it is a wrong hint, which is noticed.
        let since = self.txn.floor();
        self.client.directory.borrow_mut().learn(table.id, at.addr, node, since);
        let (tag, bytes) = node.to_bytes(table.id);
        Ok(self.txn.write(at, tag, &[&bytes])?)
    }

    /// The first row of a table makes its first bucket.
    async fn need_bucket(&mut self, place: usize, value_bytes: usize) -> Result<(), Error> {
        let table = self.places[place].table;
        let root = table.root();
        if self.places[place].proof != Some(root) {
            return Ok(());
        }
        let hash = self.places[place].hash;
        let version = self.txn.see(root).ok_or_else(damaged)?;
        let node = Node::parse(version, table.id).unwrap_or(Node::EMPTY);
        if node.child(hash, 0) == Child::Nothing {
            probe!("a table gets its first bucket");
            let bucket_at = self.fresh_bucket().await?;
            let fresh = Access { target: bucket_at, mode: Mode::Fresh };
            self.txn.access(&[Access { target: root, mode: Mode::Lock }, fresh]).await?;
            let mut node = node;
            node.replace(hash, 0, 0, Child::Bucket(bucket_at));
            self.write_node(&table, root, node)?;
            self.write_bucket(&table, bucket_at, &Bucket::new(0, hash))?;
        }
        self.find_one((place, Intent::Insert, value_bytes)).await
    }

    /// A full bucket becomes two.
    async fn split(
        &mut self,
        table: &Table,
        at: Target,
        bucket: &Bucket,
        hash: u64,
    ) -> Result<(), Error> {
        probe!("a bucket is split");
        let (zero, one) = bucket.split().ok_or(Error::Crowded)?;
        let (parent_at, level) = self.lock_parent(table, hash, at).await?;
        let other_at = self.fresh_bucket().await?;
        let mut fresh = vec![Access { target: other_at, mode: Mode::Fresh }];
        let deeper = bucket.depth == BITS * (level + 1);
        let child_at = match deeper {
            true => Some(self.fresh_bucket().await?),
            false => None,
        };
        fresh.extend(child_at.map(|target| Access { target, mode: Mode::Fresh }));
        self.txn.access(&fresh).await?;
        let version = self.txn.see(parent_at).ok_or_else(damaged)?;
        let mut parent = Node::parse(version, table.id).ok_or_else(damaged)?;
        let other = Child::Bucket(other_at);
        match child_at {
            None => parent.replace(one.some_hash(), level, one.depth, other),
            Some(child_at) => {
                probe!("the directory grows deeper");
                let mut child = Node::EMPTY;
                child.replace(hash, level + 1, bucket.depth, Child::Bucket(at));
                child.replace(one.some_hash(), level + 1, one.depth, other);
                self.write_node(table, child_at, child)?;
                parent.replace(hash, level, bucket.depth, Child::Node(child_at));
            }
        }
        self.write_node(table, parent_at, parent)?;
        self.write_bucket(table, at, &zero)?;
        self.write_bucket(table, other_at, &one)?;
        Ok(())
    }

    /// Locks the node that leads to a bucket; the node, and its level.
    async fn lock_parent(
        &mut self,
        table: &Table,
        hash: u64,
        bucket: Target,
    ) -> Result<(Target, u32), Error> {
        self.txn.forget_peeks();
        let (mut at, mut level) = (table.root(), 0);
        loop {
            self.txn.access(&[Access { target: at, mode: Mode::Peek }]).await?;
            match self.child(table, at, hash, level) {
                Some(Child::Node(node)) => (at, level) = (node, level + 1),
                Some(Child::Bucket(found)) if found == bucket => break,
                _ => return Err(TxnError::Conflict(Why::Overtaken).into()),
            }
        }
        self.txn.access(&[Access { target: at, mode: Mode::Lock }]).await?;
        if self.child(table, at, hash, level) != Some(Child::Bucket(bucket)) {
            return Err(TxnError::Conflict(Why::Overtaken).into());
        }
        Ok((at, level))
    }

    pub(crate) fn child(&self, table: &Table, at: Target, hash: u64, level: u32) -> Option<Child> {
        let node = Node::parse(self.txn.see(at)?, table.id)?;
        Some(node.child(hash, level))
    }

    /// Deletes the row of a key that was looked for.
    pub(crate) async fn remove(&mut self, place: usize) -> Result<(), Error> {
        let done = self.remove_by_parts(place);
        self.whole(done)
    }

    fn remove_by_parts(&mut self, place: usize) -> Result<(), Error> {
        self.drop_value(place)?;
        let row = self.places[place].row.ok_or_else(damaged)?;
        let (table, bucket_at) = (self.places[place].table, self.places[place].bucket);
        let bucket_at = bucket_at.ok_or_else(damaged)?;
        let mut bucket = self.bucket(&table, bucket_at)?;
        bucket.slots.retain(|slot| slot.addr != row.addr);
        self.write_bucket(&table, bucket_at, &bucket)?;
        if bucket.slots.len() <= FEW_ROWS {
            self.thin.push((table, self.places[place].hash));
        }
        self.txn.erase(row);
        let place = &mut self.places[place];
        place.row = None;
        place.state = State::Absent;
        place.proof = Some(bucket_at);
        Ok(())
    }
}
