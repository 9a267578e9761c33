//! The catalog: tables by their names. It is a table itself, whose root is always there.
//!
//! | key | value |
//! | --- | --- |
//! | name | id, root, seed and options of the table |
//! | 0, `i`, id | its name: the id is taken |
//! | 0, `n` | the id that was given last |
//! | 0, `d`, id | like that of the name, of a table that is being dropped |

use farside_fabric::probe;
use farside_pool::Addr;
use farside_txn::{Access, Mode, Target};
use std::rc::Rc;
use zerocopy::IntoBytes;

use crate::bucket::Bucket;
use crate::node::{Child, Node};
use crate::tag::{self, Kind, Value};
use crate::tx::{Tx, damaged};
use crate::{Client, Error, Table};

/// What is known of a table's rows beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableOptions {
    /// How long values are, most of them: rows have room for that in place, up to 1 KiB. Longer ones take one more
    /// step to read.
    pub value_bytes: u32,
}

const LAST_ID: &[u8] = b"\0n";

fn id_key(sort: u8, id: u16) -> [u8; 4] {
    let [low, high] = id.to_le_bytes();
    [0, sort, low, high]
}

fn encode(table: &Table) -> Vec<u8> {
    let words = [u64::from(table.id), table.root.to_word(), table.seed, table.value_bytes.into()];
    words.as_bytes().to_vec()
}

fn decode(bytes: &[u8]) -> Option<Table> {
    let words: &[[u8; 8]] = bytes.as_chunks().0;
    let word = |at: usize| words.get(at).copied().map(u64::from_le_bytes);
    Some(Table {
        id: word(0)? as u16,
        root: Addr::from_word(word(1)?),
        seed: word(2)?,
        value_bytes: word(3)? as u32,
    })
}

fn check_name(name: &str) -> Result<(), Error> {
    let fine = !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control);
    if fine { Ok(()) } else { Err(Error::BadName(name.into())) }
}

impl Tx {
    /// A table by its name.
    pub async fn table(&mut self, name: &str) -> Result<Table, Error> {
        check_name(name)?;
        let found = self.get(&Table::catalog(), name.as_bytes()).await?;
        let found = found.ok_or_else(|| Error::NoTable(name.into()))?;
        decode(&found).ok_or_else(damaged)
    }

    /// Creates a table; it is there when this transaction commits.
    pub async fn create_table(
        &mut self,
        name: &str,
        options: &TableOptions,
    ) -> Result<Table, Error> {
        check_name(name)?;
        let catalog = Table::catalog();
        if self.get_for_update(&catalog, name.as_bytes()).await?.is_some() {
            return Err(Error::TableExists(name.into()));
        }
        let done = self.create_by_parts(name, options).await;
        self.whole(done)
    }

    async fn create_by_parts(
        &mut self,
        name: &str,
        options: &TableOptions,
    ) -> Result<Table, Error> {
        let catalog = Table::catalog();
        let id = self.next_id().await?;
        let root = self.fresh_bucket().await?;
        self.txn.access(&[Access { target: root, mode: Mode::Fresh }]).await?;
        let table = Table {
            id,
            root: root.addr,
            seed: self.client.worker().random(),
            value_bytes: options.value_bytes.min(crate::table::MOST_INLINE),
        };
        let (tag, bytes) = Node::EMPTY.to_bytes(id);
        self.txn.write(root, tag, &[&bytes])?;
        self.put(&catalog, name.as_bytes(), &encode(&table)).await?;
        self.put(&catalog, &id_key(b'i', id), name.as_bytes()).await?;
        self.put(&catalog, LAST_ID, &u64::from(id).to_le_bytes()).await?;
        Ok(table)
    }

    /// An id that no table has.
    async fn next_id(&mut self) -> Result<u16, Error> {
        let catalog = Table::catalog();
        let last = self.get_for_update(&catalog, LAST_ID).await?;
        let last = last.and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)));
        let mut id = last.unwrap_or(0) as u16;
        for _ in 0..u16::MAX {
            id = id.checked_add(1).unwrap_or(1);
            if self.get(&catalog, &id_key(b'i', id)).await?.is_none() {
                return Ok(id);
            }
        }
        Err(Error::TooManyTables)
    }

    /// All tables by their names.
    pub async fn tables(&mut self) -> Result<Vec<(String, Table)>, Error> {
        let mut tables = Vec::new();
        self.scan(&Table::catalog(), |key, value| {
            if key.first() != Some(&0)
                && let (Ok(name), Some(table)) = (std::str::from_utf8(key), decode(value))
            {
                tables.push((name.to_owned(), table));
            }
        })
        .await?;
        tables.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(tables)
    }

    /// Tables that somebody began to drop.
    pub async fn dropped_tables(&mut self) -> Result<Vec<Table>, Error> {
        let mut dropped = Vec::new();
        self.scan(&Table::catalog(), |key, value| {
            if key.starts_with(b"\0d") {
                dropped.extend(decode(value));
            }
        })
        .await?;
        Ok(dropped)
    }

    /// Begins to drop a table: its name is free when this commits, and nobody finds a way in any more from the
    /// root. [`Client::purge`] does the rest.
    pub async fn drop_table(&mut self, name: &str) -> Result<Table, Error> {
        let table = self.table(name).await?;
        let done = self.drop_by_parts(name, table).await;
        self.whole(done)
    }

    async fn drop_by_parts(&mut self, name: &str, table: Table) -> Result<Table, Error> {
        let catalog = Table::catalog();
        self.delete(&catalog, name.as_bytes()).await?;
        self.put(&catalog, &id_key(b'd', table.id), &encode(&table)).await?;
        let root = table.root();
        self.txn.access(&[Access { target: root, mode: Mode::Lock }]).await?;
        let version = self.txn.see(root).ok_or_else(damaged)?;
        let node = Node::parse(version, table.id).ok_or_else(|| Error::NoTable(name.into()))?;
        let tag = tag::tag(table.id, Kind::Dropped, 0);
        self.txn.write(root, tag, &[node.0.as_bytes()])?;
        Ok(table)
    }

    /// Erases a bucket with all its rows; whether there was one.
    async fn erase_bucket(&mut self, table: &Table, at: Target) -> Result<bool, Error> {
        self.txn.access(&[Access { target: at, mode: Mode::Lock }]).await?;
        let version = self.txn.see(at).ok_or_else(damaged)?;
        let Some(bucket) = Bucket::parse(version, table.id) else { return Ok(false) };
        let rows: Vec<Target> = bucket.slots.iter().filter_map(|slot| slot.target()).collect();
        let locks: Vec<Access> =
            rows.iter().map(|row| Access { target: *row, mode: Mode::Lock }).collect();
        self.txn.access(&locks).await?;
        for row in rows {
            let version = self.txn.see(row).ok_or_else(damaged)?;
            match tag::split_row(version, table.id) {
                Some((_, Value::Elsewhere(pointer))) => {
                    let blob = farside_txn::Blob::from_bytes(pointer).ok_or_else(damaged)?;
                    self.txn.drop_blob(blob);
                }
                Some((_, Value::Here(_))) => {}
                None => continue,
            }
            self.txn.erase(row);
        }
        self.txn.erase(at);
        Ok(true)
    }

    /// The children of a node, as they are now.
    async fn peek_children(&mut self, table: &Table, at: Target) -> Result<Vec<Child>, Error> {
        self.txn.access(&[Access { target: at, mode: Mode::Peek }]).await?;
        let version = self.txn.see(at).ok_or_else(damaged)?;
        let node =
            tag::is(version, table.id, Kind::Node) || tag::is(version, table.id, Kind::Dropped);
        let words = version.words().first_chunk().filter(|_| node);
        Ok(words.map_or(Vec::new(), |words| Node(*words).children()))
    }
}

/// How often something is tried again that others are in the way of.
const MOST_TRIES: u32 = 1000;

impl Client {
    /// Frees all that a dropped table had. Whoever finds an unfinished one may do it again.
    pub async fn purge(self: &Rc<Self>, table: &Table) -> Result<(), Error> {
        Box::pin(self.purge_node(table, table.root())).await?;
        let catalog = Table::catalog();
        self.again(async |tx| {
            tx.delete(&catalog, &id_key(b'd', table.id)).await?;
            tx.delete(&catalog, &id_key(b'i', table.id)).await.map(drop)
        })
        .await?;
        self.directory.borrow_mut().forget(table.id);
        Ok(())
    }

    /// Everything below a node, and then the node, which may have got new children meanwhile.
    async fn purge_node(self: &Rc<Self>, table: &Table, at: Target) -> Result<(), Error> {
        loop {
            let children = self.begin().await?.peek_children(table, at).await?;
            for child in children {
                match child {
                    Child::Node(node) => Box::pin(self.purge_node(table, node)).await?,
                    Child::Bucket(bucket) => {
                        self.again(async |tx| tx.erase_bucket(table, bucket).await.map(drop))
                            .await?;
                    }
                    Child::Nothing => {}
                }
            }
            let mut over = false;
            self.again(async |tx| {
                over = tx.erase_node(table, at).await?;
                Ok(())
            })
            .await?;
            if over {
                return Ok(());
            }
            probe!("a table grew while it was dropped");
        }
    }

    /// Does something in a transaction, again where others are in the way.
    pub(crate) async fn again(
        self: &Rc<Self>,
        mut act: impl AsyncFnMut(&mut Tx) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut age = None;
        for tries in 0..MOST_TRIES {
            let done = match self.begin_aged(age).await {
                Ok(mut tx) => {
                    age = Some(tx.age());
                    match act(&mut tx).await {
                        Ok(()) => tx.commit().await.map(drop),
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            match done {
                Err(Error::Txn(error)) if error.is_passing() => {}
                done => return done,
            }
            let pause = self.worker().random_below(1000 << tries.min(10));
            self.worker().sleep(std::time::Duration::from_nanos(pause)).await;
        }
        Err(farside_txn::TxnError::TimedOut("a transaction that others were always in the way of")
            .into())
    }
}

impl Tx {
    /// Erases a node if nothing is below it any more.
    async fn erase_node(&mut self, table: &Table, at: Target) -> Result<bool, Error> {
        self.txn.access(&[Access { target: at, mode: Mode::Lock }]).await?;
        let version = self.txn.see(at).ok_or_else(damaged)?;
        if !tag::is(version, table.id, Kind::Node) && !tag::is(version, table.id, Kind::Dropped) {
            // Somebody else has erased it, and something else may be there.
            return Ok(true);
        }
        let children = self.peek_children(table, at).await?;
        let below: Vec<Access> = children
            .iter()
            .filter_map(|child| match child {
                Child::Nothing => None,
                Child::Bucket(target) | Child::Node(target) => {
                    Some(Access { target: *target, mode: Mode::Peek })
                }
            })
            .collect();
        self.txn.access(&below).await?;
        for child in &below {
            let version = self.txn.see(child.target).ok_or_else(damaged)?;
            let (bucket, node) = (Kind::Bucket, Kind::Node);
            if tag::is(version, table.id, bucket) || tag::is(version, table.id, node) {
                return Ok(false);
            }
        }
        self.txn.erase(at);
        Ok(true)
    }
}
