//! Scrub: everything is looked at, whether anybody needs it or not.

use farside_txn::{Scrub, Scrubbed};

use crate::{Connection, Result};

impl Connection {
    /// Reads everything on all replicas, and says what is damaged, or not the same everywhere, while transactions go on. `go_on`
    /// hears how far it is, and may end it. Processes that stay do that by themselves, slowly, once an hour (`scrub=` in the
    /// URL).
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:?copies=2")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// connection.transact(async |tx| tx.put(&table, b"key", b"value").await).await?;
    /// let scrub = connection.scrub(|_| true).await?;
    /// assert!(scrub.objects > 0 && scrub.flaws.is_empty());
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn scrub(&self, go_on: impl FnMut(&Scrub) -> bool) -> Result<Scrub> {
        Ok(self.client().scrub(go_on).await?)
    }

    /// What the last scrub of anybody found.
    pub async fn last_scrub(&self) -> Result<Scrubbed> {
        Ok(self.client().agent().last_scrub().await?)
    }
}
