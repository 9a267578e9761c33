//! The interface of the FORD paper (`ford.txt` §5.2), for people who come from there: what a transaction reads and
//! writes is added first, then fetched at once, changed in place, and committed.
//!
//! ```
//! use farside::ford;
//!
//! let db = farside::Database::open("mem:")?.connect()?;
//! db.block_on(async {
//!     let accounts = db.create_table("accounts").await?;
//!     db.transact(async |tx| tx.put(&accounts, b"alice", b"100").await).await?;
//!     let mut txn = ford::begin(&db).await?;
//!     let alice = txn.add_rw(&accounts, b"alice");
//!     let bob = txn.add_rw(&accounts, b"bob");
//!     txn.execute().await?;
//!     let value = txn.value(alice).unwrap_or_default().to_vec();
//!     txn.set(bob, &value);
//!     txn.commit().await?;
//!     Ok::<(), farside::Error>(())
//! })?;
//! # Ok::<(), farside::Error>(())
//! ```

use farside_index::{Intent, Tx, Want};

use crate::{Connection, Error, Result, Table};

/// A transaction in FORD's terms.
#[derive(Debug)]
pub struct FordTransaction {
    tx: Tx,
    items: Vec<Item>,
    /// How many were fetched.
    executed: usize,
}

/// A key that was added to a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(usize);

#[derive(Debug)]
struct Item {
    table: Table,
    key: Vec<u8>,
    writes: bool,
    value: Option<Vec<u8>>,
    /// What will be written; `None` inside deletes.
    new: Option<Option<Vec<u8>>>,
}

/// TxBegin.
pub async fn begin(connection: &Connection) -> Result<FordTransaction> {
    let tx = connection.client().begin().await?;
    Ok(FordTransaction { tx, items: Vec::new(), executed: 0 })
}

impl FordTransaction {
    /// AddRO: a key that is only read.
    pub fn add_ro(&mut self, table: &Table, key: &[u8]) -> Handle {
        self.add(table, key, false)
    }

    /// AddRW: a key that is read and written; also one to be inserted.
    pub fn add_rw(&mut self, table: &Table, key: &[u8]) -> Handle {
        self.add(table, key, true)
    }

    fn add(&mut self, table: &Table, key: &[u8], writes: bool) -> Handle {
        self.items.push(Item { table: *table, key: key.into(), writes, value: None, new: None });
        Handle(self.items.len() - 1)
    }

    /// TxExe: fetches what was added since the last time, and locks what will be written, all at once.
    pub async fn execute(&mut self) -> Result<()> {
        let items = &mut self.items[self.executed..];
        let want = |item: &Item| if item.writes { Intent::Update } else { Intent::Read };
        let intents: Vec<Intent> = items.iter().map(want).collect();
        let wants: Vec<Want<'_>> = items
            .iter()
            .zip(&intents)
            .map(|(item, intent)| Want { table: &item.table, key: &item.key, intent: *intent })
            .collect();
        let mut found = vec![None; wants.len()];
        self.tx.read(&wants, |number, _, value| found[number] = value.map(<[u8]>::to_vec)).await?;
        for (item, value) in items.iter_mut().zip(found) {
            item.value = value;
        }
        self.executed = self.items.len();
        Ok(())
    }

    /// What was fetched, or written since.
    pub fn value(&self, handle: Handle) -> Option<&[u8]> {
        let item = self.items.get(handle.0)?;
        item.new.as_ref().unwrap_or(&item.value).as_deref()
    }

    /// Writes a key that was added with [`FordTransaction::add_rw`].
    pub fn set(&mut self, handle: Handle, value: &[u8]) {
        if let Some(item) = self.items.get_mut(handle.0) {
            item.new = Some(Some(value.into()));
        }
    }

    /// Deletes it.
    pub fn remove(&mut self, handle: Handle) {
        if let Some(item) = self.items.get_mut(handle.0) {
            item.new = Some(None);
        }
    }

    /// TxCommit.
    pub async fn commit(mut self) -> Result<()> {
        for item in std::mem::take(&mut self.items) {
            match item.new {
                None => {}
                Some(_) if !item.writes => {
                    return Err(Error::Invalid("a key that was added to be read only".into()));
                }
                Some(Some(value)) => self.tx.put(&item.table, &item.key, &value).await?,
                Some(None) => _ = self.tx.delete(&item.table, &item.key).await?,
            }
        }
        self.tx.commit().await?;
        Ok(())
    }
}
