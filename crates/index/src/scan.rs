//! All rows of a table, in no order.

use farside_txn::{Access, Blob, Mode, Target, TxnError, Why};

use crate::bucket::Bucket;
use crate::node::{Child, Node};
use crate::tag::{self, Value};
use crate::tx::{Tx, damaged};
use crate::{Error, Table};

impl Tx {
    /// Calls `each` with every key and value, as they are in the snapshot.
    pub async fn scan(
        &mut self,
        table: &Table,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        self.walk(table, each, false).await
    }

    /// The same for those who only read, however much: what was read is forgotten on the way.
    pub async fn sweep(
        &mut self,
        table: &Table,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        // An early one would have to be looked at again, and with it all that was read.
        self.txn.take_snapshot().await?;
        self.walk(table, each, true).await
    }

    async fn walk(
        &mut self,
        table: &Table,
        mut each: impl FnMut(&[u8], &[u8]),
        forget: bool,
    ) -> Result<(), Error> {
        let mut nodes = vec![table.root()];
        while let Some(at) = nodes.pop() {
            self.txn.access(&[Access { target: at, mode: Mode::Read }]).await?;
            // What is not in a table is as much a part of what was read as what is.
            self.txn.need(at);
            let version = self.txn.see(at).ok_or_else(damaged)?;
            let node = match Node::parse(version, table.id) {
                Some(node) => node,
                None if table.is_catalog() => continue,
                None => return Err(Error::NoTable(format!("#{}: it was dropped", table.id))),
            };
            let mut buckets = Vec::new();
            for child in node.children() {
                match child {
                    Child::Node(node) => nodes.push(node),
                    Child::Bucket(target) => buckets.push(Access { target, mode: Mode::Read }),
                    Child::Nothing => {}
                }
            }
            // Before they are read: what counts is kept when the snapshot moves.
            buckets.iter().for_each(|bucket| self.txn.need(bucket.target));
            self.txn.access(&buckets).await?;
            for bucket in buckets {
                self.txn.need(bucket.target);
                self.scan_bucket(table, bucket.target, &mut each).await?;
            }
            if forget {
                self.forget_reads();
            }
        }
        Ok(())
    }

    async fn scan_bucket(
        &mut self,
        table: &Table,
        at: Target,
        each: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        // Without opacity what is read may be younger than what has named it.
        let opaque = self.txn.agent().protocol().opacity;
        let younger = || Error::from(TxnError::Conflict(Why::Changed));
        let lost = || if opaque { damaged() } else { younger() };
        let version = self.txn.see(at).ok_or_else(damaged)?;
        let bucket = Bucket::parse(version, table.id).ok_or_else(lost)?;
        let rows: Vec<Target> = bucket.slots.iter().filter_map(|slot| slot.target()).collect();
        let wants: Vec<Access> =
            rows.iter().map(|row| Access { target: *row, mode: Mode::Read }).collect();
        rows.iter().for_each(|row| self.txn.need(*row));
        self.txn.access(&wants).await?;
        for row in rows {
            self.txn.need(row);
            let version = self.txn.see(row).ok_or_else(damaged)?;
            match tag::split_row(version, table.id).ok_or_else(lost)? {
                (key, Value::Here(value)) => each(key, value),
                (key, Value::Elsewhere(pointer)) => {
                    let blob = Blob::from_bytes(pointer).ok_or_else(damaged)?;
                    each(key, &self.txn.get_blob(blob).await?);
                }
            }
        }
        Ok(())
    }
}
