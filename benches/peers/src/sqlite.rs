//! SQLite: a write-ahead log, readers in parallel, one writer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use farside_workloads::engine::Failure;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use crate::peer::{Handle, Key, Peer, Txn, broken};

#[derive(Clone)]
pub struct Sqlite {
    path: PathBuf,
    sync: bool,
}

impl Sqlite {
    pub fn open(dir: &Path, sync: bool) -> Result<Self> {
        let sqlite = Sqlite { path: dir.join("sqlite"), sync };
        let connection = sqlite.connect()?;
        connection.execute_batch(
            "CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        )?;
        Ok(sqlite)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(Duration::from_secs(20))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", if self.sync { "FULL" } else { "OFF" })?;
        connection.pragma_update(None, "cache_size", -256_000)?;
        Ok(connection)
    }
}

impl Peer for Sqlite {
    type Handle = Connection;

    fn handle(&self) -> Connection {
        self.connect().unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }
}

impl Handle for Connection {
    type Txn<'a> = SqliteTxn<'a>;

    fn begin(&mut self, writes: bool) -> Result<SqliteTxn<'_>, Failure> {
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        run(self, begin)?;
        Ok(SqliteTxn { connection: self, open: true })
    }
}

fn run(connection: &Connection, statement: &str) -> Result<(), Failure> {
    let done = connection.prepare_cached(statement).and_then(|mut known| known.execute([]));
    done.map(drop).map_err(failure)
}

fn failure(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => Failure::Conflict,
        _ => broken(error),
    }
}

pub struct SqliteTxn<'a> {
    connection: &'a Connection,
    open: bool,
}

impl Txn for SqliteTxn<'_> {
    fn get(&mut self, key: &Key, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Failure> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT value FROM rows WHERE key = ?1")
            .map_err(failure)?;
        let row = statement.query_row([&key[..]], |row| {
            found(Some(row.get_ref(0)?.as_blob()?));
            Ok(())
        });
        if row.optional().map_err(failure)?.is_none() {
            found(None);
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Failure> {
        let statement = "INSERT INTO rows VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2";
        let mut statement = self.connection.prepare_cached(statement).map_err(failure)?;
        statement.execute(params![&key[..], value]).map(drop).map_err(failure)
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        let statement = self.connection.prepare_cached("DELETE FROM rows WHERE key = ?1");
        statement.and_then(|mut known| known.execute([&key[..]])).map(drop).map_err(failure)
    }

    fn commit(mut self) -> Result<(), Failure> {
        run(self.connection, "COMMIT")?;
        self.open = false;
        Ok(())
    }
}

impl Drop for SqliteTxn<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = run(self.connection, "ROLLBACK");
        }
    }
}
