//! Outcomes that can be asked for: a transaction is remembered under an id, in a row that it writes itself. Whoever asks and
//! finds no row writes that it was aborted: then it cannot commit any more.
//!
//! The rows of an hour are in a table of their own, which is dropped when it is old enough; how far that has got is in
//! a table, too, so that nobody takes what was forgotten for what never was.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farside_index::{Client, TableOptions, Tx};

use crate::{Connection, Error, Result, Table, Transaction};

/// How long outcomes can be asked for, at least.
pub const OUTCOMES_KEPT: Duration = Duration::from_secs(3600);

/// Where the names of tables with outcomes begin.
const TABLES: &str = "farside.outcomes";

/// The key under which the last span of time is that was forgotten.
const FORGOTTEN: &[u8] = b"forgotten";

const COMMITTED: &[u8] = b"committed";
const ABORTED: &[u8] = b"aborted";

/// The name of a transaction, for whoever wants to know later whether it has committed: [`Transaction::remember`] and
/// [`Connection::outcome`]. As text it is 32 hexadecimal digits.
///
/// ```
/// let id = farside::TransactionId::fresh()?;
/// assert_eq!(id.to_string().parse::<farside::TransactionId>()?, id);
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransactionId([u8; 16]);

/// How a transaction has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It has taken effect.
    Committed,
    /// It has not, and never will.
    Aborted,
}

impl TransactionId {
    /// One that nobody else has.
    pub fn fresh() -> Result<Self> {
        let mut bytes = [0; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::Invalid(format!("asking for randomness: {error}")))?;
        bytes[..6].copy_from_slice(&(wall_clock().as_millis() as u64).to_be_bytes()[2..]);
        Ok(TransactionId(bytes))
    }

    /// Which span of time it is of.
    fn span(self) -> u64 {
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&self.0[..6]);
        u64::from_be_bytes(millis) / OUTCOMES_KEPT.as_millis() as u64
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TransactionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Invalid(format!("'{text}' is no id: expected 32 hexadecimal digits"));
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(TransactionId(number.to_be_bytes()))
    }
}

fn name_of(span: u64) -> String {
    format!("{TABLES}.{span}")
}

/// The rows of the time of an id; an error if they were forgotten.
async fn rows_of(tx: &mut Transaction, id: TransactionId) -> Result<Table> {
    if let Some(known) = existing(tx, TABLES).await? {
        let forgotten = tx.get(&known, FORGOTTEN).await?;
        let forgotten =
            forgotten.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        if forgotten.is_some_and(|span| id.span() <= span) {
            return Err(Error::OutcomeExpired);
        }
    }
    let name = name_of(id.span());
    match existing(tx, &name).await? {
        Some(rows) => Ok(rows),
        None => tx.create_table(&name, TableOptions { value_bytes: 16 }).await,
    }
}

async fn existing(tx: &mut Transaction, name: &str) -> Result<Option<Table>> {
    match tx.table(name).await {
        Ok(table) => Ok(Some(table)),
        Err(Error::NoTable(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

fn read(row: &[u8]) -> Result<Outcome> {
    match row {
        COMMITTED => Ok(Outcome::Committed),
        ABORTED => Ok(Outcome::Aborted),
        _ => Err(Error::Damaged("an outcome that is none".into())),
    }
}

impl Transaction {
    /// Makes the outcome of this transaction something that can be asked for, by anybody, for an hour at least
    /// ([`OUTCOMES_KEPT`]). An id is good for one commit: [`Error::Decided`] if it was used before, or somebody has asked
    /// for it, so a program that is not sure whether it has done something can simply do it again.
    ///
    /// ```
    /// use farside::{Error, Outcome, TransactionId};
    ///
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// let id = TransactionId::fresh()?;
    /// for _ in 0..2 {
    ///     let paid = connection
    ///         .transact(async |tx| {
    ///             tx.remember(id).await?;
    ///             tx.add(&table, b"alice", 10).await
    ///         })
    ///         .await;
    ///     assert!(matches!(paid, Ok(10) | Err(Error::Decided(Outcome::Committed))));
    /// }
    /// assert_eq!(connection.outcome(id).await?, Outcome::Committed);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn remember(&mut self, id: TransactionId) -> Result<()> {
        let rows = rows_of(self, id).await?;
        match self.get_for_update(&rows, &id.0).await? {
            Some(row) => Err(Error::Decided(read(&row)?)),
            None => self.put(&rows, &id.0, COMMITTED).await,
        }
    }
}

impl Connection {
    /// How a transaction has ended that was [remembered](Transaction::remember) under an id, by whatever process. One that
    /// is not known has not committed, and after this never will. [`Error::OutcomeExpired`] if it is too long ago.
    ///
    /// ```
    /// use farside::{Outcome, TransactionId};
    ///
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// assert_eq!(connection.outcome(TransactionId::fresh()?).await?, Outcome::Aborted);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        self.transact(async |tx| {
            let rows = rows_of(tx, id).await?;
            match tx.get_for_update(&rows, &id.0).await? {
                Some(row) => read(&row),
                None => tx.put(&rows, &id.0, ABORTED).await.map(|()| Outcome::Aborted),
            }
        })
        .await
    }
}

/// The time of day, which machines and restarts share about: only for how long outcomes are kept.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Forgets outcomes that are old enough, as of a time of day.
pub(crate) async fn forget(client: &Rc<Client>, now: Duration) -> Result<()> {
    let span = (now.as_millis() / OUTCOMES_KEPT.as_millis()) as u64;
    // Those of the span before are asked for until this one is over.
    let Some(last) = span.checked_sub(2) else { return Ok(()) };
    let mut tx = client.begin().await?;
    let old: Vec<String> = tx.tables().await?.into_iter().map(|(name, _)| name).collect();
    drop(tx);
    for name in old {
        let prefix = |name: &str| name.strip_prefix(TABLES)?.strip_prefix('.')?.parse().ok();
        if prefix(&name).is_some_and(|span: u64| span <= last) {
            let mut tx = client.begin().await?;
            note(&mut tx, last).await?;
            let table = tx.drop_table(&name).await?;
            tx.commit().await?;
            client.purge(&table).await?;
        }
    }
    Ok(())
}

/// Nobody takes an id of until then for one that was never used.
async fn note(tx: &mut Tx, last: u64) -> Result<()> {
    let known = match tx.table(TABLES).await {
        Err(farside_index::Error::NoTable(_)) => {
            tx.create_table(TABLES, &TableOptions { value_bytes: 16 }).await?
        }
        known => known?,
    };
    Ok(tx.put(&known, FORGOTTEN, &last.to_le_bytes()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;

    #[test]
    fn what_is_forgotten_is_not_taken_for_aborted() {
        let connection = Database::open("mem:?memory=64MiB").unwrap().connect().unwrap();
        connection.block_on(async {
            let id = TransactionId::fresh().unwrap();
            connection.transact(async |tx| tx.remember(id).await).await.unwrap();
            let client = connection.client();
            forget(client, wall_clock() + OUTCOMES_KEPT).await.unwrap();
            assert_eq!(connection.outcome(id).await, Ok(Outcome::Committed), "an hour later");
            forget(client, wall_clock() + 3 * OUTCOMES_KEPT).await.unwrap();
            assert_eq!(connection.outcome(id).await, Err(Error::OutcomeExpired));
            let again = connection.transact(async |tx| tx.remember(id).await).await;
            assert_eq!(again, Err(Error::OutcomeExpired));
            assert_eq!(connection.tables().await.unwrap(), [TABLES]);
        });
    }

    #[test]
    fn who_is_asked_for_does_not_commit_any_more() {
        let connection = Database::open("mem:?memory=64MiB").unwrap().connect().unwrap();
        connection.block_on(async {
            let table = connection.create_table("t").await.unwrap();
            let id = TransactionId::fresh().unwrap();
            let mut tx = connection.begin().await.unwrap();
            tx.put(&table, b"key", b"value").await.unwrap();
            assert_eq!(connection.outcome(id).await, Ok(Outcome::Aborted));
            assert_eq!(tx.remember(id).await, Err(Error::Decided(Outcome::Aborted)));
        });
        assert!("x".repeat(32).parse::<TransactionId>().is_err());
        assert!("0".repeat(31).parse::<TransactionId>().is_err());
    }
}
