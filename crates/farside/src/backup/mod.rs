//! Backups: a snapshot of a whole database as a stream of bytes, and back.

mod format;

use std::io::{Read, Write};

use self::format::{Kind, Reader, Total, Writer};
use crate::opening::fresh_id;
use crate::{Connection, Error, Moment, Result, Table, TableOptions};

/// How far a backup is, or what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backup {
    /// What is in it was there at this moment, all of it.
    pub moment: Moment,
    /// Tables.
    pub tables: u64,
    /// Rows of them.
    pub rows: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Rows that are written in one transaction, and bytes of them.
const ROWS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 64 << 10;

impl Connection {
    /// Writes all tables to a stream, as they are at one moment, while transactions go on. `go_on` hears how far it is, and may
    /// end it. Outcomes of transactions that were to be remembered are not part of it.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// connection.transact(async |tx| tx.put(&table, b"key", b"value").await).await?;
    /// let mut stream = Vec::new();
    /// let backup = connection.back_up(&mut stream, |_| true).await?;
    /// assert_eq!(backup.rows, 1);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn back_up(
        &self,
        output: impl Write,
        mut go_on: impl FnMut(&Backup) -> bool,
    ) -> Result<Backup> {
        let mut snapshot = self.snapshot().await?;
        let moment = snapshot.share();
        let mut writer = Writer::new(output, fresh_id()?.0, moment)?;
        let (mut known, mut all) =
            (Backup { moment, tables: 0, rows: 0, bytes: 0 }, Total::default());
        for (name, table) in snapshot.tables().await? {
            writer.table(&name, table.options().value_bytes)?;
            let (mut total, mut done) = (Total::default(), Ok(()));
            let each = |key: &[u8], value: &[u8]| {
                if done.is_err() {
                    return;
                }
                total.add(key, value);
                done = writer.row(key, value);
                (known.rows, known.bytes) = (all.rows + total.rows, writer.written);
                if done.is_ok() && total.rows.is_multiple_of(256) && !go_on(&known) {
                    done = Err(stopped());
                }
            };
            snapshot.scan(&table, each).await?;
            done?;
            writer.table_end(total)?;
            known.tables += 1;
            (all.rows, all.bytes) = (all.rows + total.rows, all.bytes + total.bytes);
        }
        if !go_on(&known) {
            return Err(stopped());
        }
        known.bytes = writer.end(known.tables, all)?;
        Ok(known)
    }

    /// Makes the tables of a backup again. None of them may be there. It is checked as it is read, and what was written is read
    /// again at the end; if anything is wrong, nothing of it stays. `go_on` hears how far it is, and may end it.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// connection.create_table("t").await?;
    /// let mut stream = Vec::new();
    /// connection.back_up(&mut stream, |_| true).await?;
    /// connection.drop_table("t").await?;
    /// connection.restore(&stream[..], |_| true).await?;
    /// assert_eq!(connection.tables().await?, ["t"]);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn restore(
        &self,
        input: impl Read,
        go_on: impl FnMut(&Backup) -> bool,
    ) -> Result<Backup> {
        let mut made = Vec::new();
        let mut restored = self.restore_into(input, go_on, &mut made).await;
        if restored.is_ok() {
            restored = self.compare(&made).await.and(restored);
        }
        if restored.is_err() {
            for (name, ..) in made {
                let _ = self.drop_table(&name).await;
            }
        }
        restored
    }

    async fn restore_into(
        &self,
        input: impl Read,
        go_on: impl FnMut(&Backup) -> bool,
        made: &mut Vec<(String, Table, Total)>,
    ) -> Result<Backup> {
        let mut walk = Walk::new(input, go_on)?;
        loop {
            match walk.next()? {
                Found::Table(name, value_bytes) => {
                    let table = self.create_table_with(&name, TableOptions { value_bytes }).await?;
                    made.push((name, table, Total::default()));
                }
                Found::Rows => {
                    let (_, table, _) = made.last().ok_or_else(stopped)?;
                    let rows = walk.reader.rows()?;
                    for batch in batches(&rows) {
                        self.transact(async |tx| tx.put_many(table, batch).await).await?;
                    }
                }
                Found::TableEnd(total) => {
                    made.last_mut().ok_or_else(stopped)?.2 = total;
                }
                Found::End => return Ok(walk.known),
            }
        }
    }

    /// What is there is what was written.
    async fn compare(&self, made: &[(String, Table, Total)]) -> Result<()> {
        for (name, table, expected) in made {
            let mut total = Total::default();
            self.snapshot().await?.scan(table, |key, value| total.add(key, value)).await?;
            if total != *expected {
                return Err(Error::Damaged(format!(
                    "table '{name}' has {} rows now, and not the {} of the backup: somebody else has written to it, or something is wrong",
                    total.rows, expected.rows
                )));
            }
        }
        Ok(())
    }
}

/// Reads a whole backup, and says what is in it, or what is wrong. `go_on` hears how far it is, and may end it.
///
/// ```
/// # let connection = farside::Database::open("mem:")?.connect()?;
/// let mut stream = Vec::new();
/// connection.block_on(connection.back_up(&mut stream, |_| true))?;
/// assert!(farside::check_backup(&stream[..], |_| true).is_ok());
/// stream[7] ^= 1;
/// assert!(farside::check_backup(&stream[..], |_| true).is_err());
/// # Ok::<(), farside::Error>(())
/// ```
pub fn check_backup(input: impl Read, go_on: impl FnMut(&Backup) -> bool) -> Result<Backup> {
    let mut walk = Walk::new(input, go_on)?;
    loop {
        if let Found::End = walk.next()? {
            return Ok(walk.known);
        }
    }
}

fn stopped() -> Error {
    Error::Invalid("it was stopped before it was finished".into())
}

/// Rows in portions for one transaction each.
fn batches<'r, 'a>(
    mut rows: &'r [(&'a [u8], &'a [u8])],
) -> impl Iterator<Item = &'r [(&'a [u8], &'a [u8])]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |(key, value): &&(&[u8], &[u8])| {
            bytes += key.len() + value.len();
            bytes <= BYTES_AT_ONCE
        };
        let count = rows.iter().take(ROWS_AT_ONCE).take_while(fits).count().max(1);
        let (batch, rest) = rows.split_at_checked(count)?;
        rows = rest;
        Some(batch)
    })
}

/// A way through a backup, which is checked on the way.
struct Walk<R, G> {
    reader: Reader<R>,
    go_on: G,
    known: Backup,
    all: Total,
    /// Of the table at hand.
    total: Option<Total>,
}

/// What comes next.
enum Found {
    Table(String, u32),
    Rows,
    TableEnd(Total),
    End,
}

impl<R: Read, G: FnMut(&Backup) -> bool> Walk<R, G> {
    fn new(input: R, go_on: G) -> Result<Self> {
        let reader = Reader::new(input)?;
        let known = Backup { moment: reader.moment, tables: 0, rows: 0, bytes: reader.at };
        Ok(Walk { reader, go_on, known, all: Total::default(), total: None })
    }

    fn next(&mut self) -> Result<Found> {
        if !(self.go_on)(&self.known) {
            return Err(stopped());
        }
        let kind = self.reader.next()?;
        self.known.bytes = self.reader.at;
        match (kind, self.total) {
            (Kind::Table, None) => {
                self.total = Some(Total::default());
                let (name, value_bytes) = self.reader.table()?;
                Ok(Found::Table(name, value_bytes))
            }
            (Kind::Rows, Some(mut total)) => {
                self.reader.rows()?.iter().for_each(|(key, value)| total.add(key, value));
                self.total = Some(total);
                self.known.rows = self.all.rows + total.rows;
                Ok(Found::Rows)
            }
            (Kind::TableEnd, Some(total)) => {
                if self.reader.words()? != [total.rows, total.bytes, total.digest] {
                    return Err(self.reader.damaged("rows are missing"));
                }
                self.total = None;
                self.known.tables += 1;
                self.all.rows += total.rows;
                self.all.bytes += total.bytes;
                Ok(Found::TableEnd(total))
            }
            (Kind::End, None) => {
                if self.reader.words()? != [self.known.tables, self.all.rows, self.all.bytes] {
                    return Err(self.reader.damaged("tables are missing"));
                }
                self.reader.finish()?;
                Ok(Found::End)
            }
            _ => Err(self.reader.damaged("its frames are in no order that makes sense")),
        }
    }
}
