//! A transaction of a workload: what it does is recorded on the way.

use std::fmt;

use crate::engine::{Failure, Intent, Rows, Table, Transaction, Want};
use crate::history::{Name, Recorder, UNTOLD};

/// A transaction, and who listens.
pub struct Tx<'a, T> {
    inner: T,
    log: &'a mut Recorder,
    rows: &'a mut Rows,
}

/// A row's name in a history.
fn name(table: Table, key: u64) -> Name {
    Name { table: table.0, key }
}

impl<'a, T: Transaction> Tx<'a, T> {
    /// Around one that has begun.
    pub fn new(inner: T, log: &'a mut Recorder, rows: &'a mut Rows) -> Self {
        Tx { inner, log, rows }
    }

    /// A row to read.
    pub fn want(table: Table, key: u64) -> Want {
        Want { table, key, intent: Intent::Read }
    }

    /// A row to read and then write.
    pub fn want_update(table: Table, key: u64) -> Want {
        Want { table, key, intent: Intent::Update }
    }

    /// A row to insert, unless it is there.
    pub fn want_insert(table: Table, key: u64) -> Want {
        Want { table, key, intent: Intent::Insert }
    }

    /// A row to delete, if it is there.
    pub fn want_delete(table: Table, key: u64) -> Want {
        Want { table, key, intent: Intent::Delete }
    }

    /// Reads rows in one step.
    pub async fn read(&mut self, wants: &[Want]) -> Result<&Rows, Failure> {
        self.inner.read(wants, self.rows).await?;
        if self.log.listens() {
            for (number, want) in wants.iter().enumerate() {
                let value = self.rows.get(number).map(digest);
                let version = self.rows.version(number);
                self.log.read(name(want.table, want.key), value, version);
                if version == UNTOLD
                    && let Some(time) = self.inner.read_time()
                {
                    self.log.reads_at(time);
                }
            }
        }
        Ok(self.rows)
    }

    /// Reads a list, which is recorded as one.
    pub async fn read_list(&mut self, table: Table, key: u64) -> Result<Vec<u64>, Failure> {
        let list = self.list(table, key, Intent::Read).await?;
        self.log.read_list(key, &list);
        Ok(list)
    }

    /// Appends to a list.
    pub async fn append(&mut self, table: Table, key: u64, element: u64) -> Result<(), Failure> {
        let mut list = self.list(table, key, Intent::Update).await?;
        list.push(element);
        self.log.append(key, element);
        let bytes: Vec<u8> = list.iter().flat_map(|element| element.to_le_bytes()).collect();
        self.inner.write(table, key, Some(&bytes)).await
    }

    async fn list(&mut self, table: Table, key: u64, intent: Intent) -> Result<Vec<u64>, Failure> {
        self.inner.read(&[Want { table, key, intent }], self.rows).await?;
        Ok(elements(self.rows.get(0).unwrap_or_default()))
    }

    /// Writes a row, or with `None` deletes it.
    pub async fn write(
        &mut self,
        table: Table,
        key: u64,
        value: Option<&[u8]>,
    ) -> Result<(), Failure> {
        if self.log.listens() {
            self.log.write(name(table, key), value.map(digest));
        }
        self.inner.write(table, key, value).await
    }

    /// Commits.
    pub async fn commit(self) -> Result<Option<u64>, Failure> {
        self.inner.commit().await
    }
}

/// The elements of a list in a row.
pub(super) fn elements(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|element| u64::from_le_bytes(*element)).collect()
}

/// A value in a history: a number that other programs can hold, too.
fn digest(value: &[u8]) -> u64 {
    let mut digest = value.len() as u64;
    for chunk in value.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        digest = (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        digest ^= digest >> 29;
    }
    digest >> 11
}

impl<T> fmt::Debug for Tx<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}
