//! Buckets that have few rows left are merged, and nodes that lead to one bucket only are taken away: what is
//! deleted gives back its place in the directory, too.

use std::rc::Rc;

use farside_fabric::probe;
use farside_txn::{Access, Mode, Target, TxnError, Why};

use crate::bucket::{Bucket, MOST_ROWS};
use crate::node::{BITS, Child, Node};
use crate::tx::{Tx, damaged};
use crate::{Client, Error, Table};

/// A bucket with so few rows may be merged.
pub(crate) const FEW_ROWS: usize = MOST_ROWS / 5;

/// Two buckets with so few rows together become one: far from where that would be split again.
const MERGED_ROWS: usize = MOST_ROWS / 2;

/// How a hash is led to its bucket: nodes from the root on.
struct Path {
    nodes: Vec<Target>,
    bucket: Target,
}

impl Path {
    fn level(&self) -> u32 {
        self.nodes.len() as u32 - 1
    }

    fn last(&self) -> Target {
        *self.nodes.last().expect("the root is first")
    }
}

impl Client {
    /// Merges the bucket of a hash with its other half, as often as that can be done. Whatever is in the way, it can
    /// be done another time.
    pub(crate) async fn shrink(self: Rc<Self>, table: Table, hash: u64) {
        let mut changed = true;
        while changed {
            let done = self.again(async |tx| {
                changed = tx.shrink_once(&table, hash).await?;
                Ok(())
            });
            if done.await.is_err() {
                return;
            }
        }
    }
}

impl Tx {
    /// One step; whether there was one.
    async fn shrink_once(&mut self, table: &Table, hash: u64) -> Result<bool, Error> {
        let Some(path) = self.path(table, hash).await? else { return Ok(false) };
        let seen = self.txn.see(path.bucket).ok_or_else(damaged)?;
        let Some(bucket) = Bucket::parse(seen, table.id) else { return Ok(false) };
        let level = path.level();
        if bucket.depth > BITS * level {
            return self.merge(table, hash, &path, bucket.depth).await;
        }
        if level > 0 {
            return self.collapse(table, hash, &path).await;
        }
        if bucket.slots.is_empty() {
            return self.empty(table, hash, &path).await;
        }
        Ok(false)
    }

    /// The way to a bucket, peeked at.
    async fn path(&mut self, table: &Table, hash: u64) -> Result<Option<Path>, Error> {
        let mut nodes = vec![table.root()];
        loop {
            let at = *nodes.last().expect("the root is first");
            self.txn.access(&[Access { target: at, mode: Mode::Peek }]).await?;
            match self.child(table, at, hash, nodes.len() as u32 - 1) {
                Some(Child::Node(node)) => nodes.push(node),
                Some(Child::Bucket(bucket)) => {
                    self.txn.access(&[Access { target: bucket, mode: Mode::Peek }]).await?;
                    return Ok(Some(Path { nodes, bucket }));
                }
                Some(Child::Nothing) | None => return Ok(None),
            }
        }
    }

    async fn lock(&mut self, targets: &[Target]) -> Result<(), Error> {
        let locks: Vec<Access> =
            targets.iter().map(|target| Access { target: *target, mode: Mode::Lock }).collect();
        Ok(self.txn.access(&locks).await?)
    }

    fn node(&self, table: &Table, at: Target) -> Result<Node, Error> {
        let node = Node::parse(self.txn.see(at).ok_or_else(damaged)?, table.id);
        node.ok_or_else(|| TxnError::Conflict(Why::Overtaken).into())
    }

    /// Two halves under the same node become one.
    async fn merge(
        &mut self,
        table: &Table,
        hash: u64,
        path: &Path,
        depth: u32,
    ) -> Result<bool, Error> {
        let (level, parent_at) = (path.level(), path.last());
        let other_hash = hash ^ 1 << (64 - depth);
        let Some(Child::Bucket(other_at)) = self.child(table, parent_at, other_hash, level) else {
            return Ok(false);
        };
        if other_at == path.bucket {
            return Ok(false);
        }
        self.txn.access(&[Access { target: other_at, mode: Mode::Peek }]).await?;
        let rows = |tx: &Tx, at| Some(Bucket::parse(tx.txn.see(at)?, table.id)?.slots.len());
        let both = rows(self, path.bucket).zip(rows(self, other_at));
        if both.is_none_or(|(one, other)| one + other > MERGED_ROWS) {
            return Ok(false);
        }
        self.lock(&[parent_at, path.bucket, other_at]).await?;
        let mut parent = self.node(table, parent_at)?;
        let led = [hash, other_hash].map(|hash| parent.child(hash, level));
        let parse = |at| Bucket::parse(self.txn.see(at)?, table.id);
        let (Some(one), Some(other)) = (parse(path.bucket), parse(other_at)) else {
            return Ok(false);
        };
        let same = led == [Child::Bucket(path.bucket), Child::Bucket(other_at)];
        let fit = one.slots.len() + other.slots.len() <= MERGED_ROWS;
        if !same || !fit || one.depth != depth || other.depth != depth {
            return Ok(false);
        }
        probe!("two buckets are merged");
        let mut merged = Bucket::new(depth - 1, hash);
        merged.slots = one.slots.into_iter().chain(other.slots).collect();
        parent.replace(hash, level, depth - 1, Child::Bucket(path.bucket));
        self.write_node(table, parent_at, parent)?;
        self.write_bucket(table, path.bucket, &merged)?;
        self.txn.erase(other_at);
        Ok(true)
    }

    /// A node that leads to one bucket only is not needed.
    async fn collapse(&mut self, table: &Table, hash: u64, path: &Path) -> Result<bool, Error> {
        let level = path.level() - 1;
        let (node_at, parent_at) = (path.last(), path.nodes[level as usize]);
        self.lock(&[parent_at, node_at]).await?;
        let (mut parent, node) = (self.node(table, parent_at)?, self.node(table, node_at)?);
        let only = node.children() == [Child::Bucket(path.bucket)];
        if !only || parent.child(hash, level) != Child::Node(node_at) {
            return Ok(false);
        }
        probe!("the directory grows less deep");
        parent.replace(hash, level, BITS * (level + 1), Child::Bucket(path.bucket));
        self.write_node(table, parent_at, parent)?;
        self.txn.erase(node_at);
        Ok(true)
    }

    /// A table that is empty needs no bucket.
    async fn empty(&mut self, table: &Table, hash: u64, path: &Path) -> Result<bool, Error> {
        let root = path.last();
        self.lock(&[root, path.bucket]).await?;
        let (node, bucket) = (
            self.node(table, root)?,
            Bucket::parse(self.txn.see(path.bucket).ok_or_else(damaged)?, table.id),
        );
        let empty = bucket.is_some_and(|bucket| bucket.slots.is_empty() && bucket.depth == 0);
        if !empty || node.child(hash, 0) != Child::Bucket(path.bucket) {
            return Ok(false);
        }
        probe!("a table has no bucket any more");
        self.write_node(table, root, Node::EMPTY)?;
        self.txn.erase(path.bucket);
        Ok(true)
    }
}
