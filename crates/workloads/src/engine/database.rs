//! A database as workloads see it.

use std::cell::RefCell;

use farside::{Connection, Database, Level};
use farside_fabric::{Counts, Worker};

use super::tables::counts;
use super::{Engine, Failure, Table, TableSession, TableShape, Tables};

/// A database. Threads join before they use it.
#[derive(Clone, Debug)]
pub struct DatabaseEngine {
    db: Database,
    tables: Tables,
    level: Level,
}

thread_local! {
    /// This thread's ways to databases.
    static JOINED: RefCell<Vec<(Worker, Connection)>> = const { RefCell::new(Vec::new()) };
}

impl DatabaseEngine {
    /// A database that is open.
    pub fn new(db: Database) -> Self {
        DatabaseEngine { db, tables: Tables::default(), level: Level::default() }
    }

    /// Whose transactions are promised something else than usual.
    #[must_use]
    pub fn at(self, level: Level) -> Self {
        DatabaseEngine { level, ..self }
    }

    fn connection(worker: &Worker) -> Connection {
        JOINED.with_borrow(|joined| {
            let known = joined.iter().find(|(known, _)| known.is_same(worker));
            known.expect("threads join first").1.clone()
        })
    }
}

impl Engine for DatabaseEngine {
    type Session = TableSession;

    async fn create(&self, worker: &Worker, tables: &[TableShape]) -> Result<(), Failure> {
        self.tables.create(Self::connection(worker).client(), tables).await
    }

    async fn join(&self, worker: &Worker) -> Result<(), Failure> {
        let connection = self.db.attach(worker).await;
        let connection = connection.map_err(|error| Failure::Broken(error.to_string()))?;
        self.tables.warm(connection.client());
        JOINED.with_borrow_mut(|joined| joined.push((worker.clone(), connection)));
        Ok(())
    }

    fn leave(&self, worker: &Worker) {
        let gone = JOINED.with_borrow_mut(|joined| {
            let at = joined.iter().position(|(known, _)| known.is_same(worker));
            at.map(|at| joined.swap_remove(at))
        });
        drop(gone);
    }

    fn counts(&self, worker: &Worker) -> Counts {
        counts(Self::connection(worker).client())
    }

    fn session(&self, worker: &Worker) -> TableSession {
        self.tables.session(Self::connection(worker).client()).at(self.level)
    }

    async fn load(
        &self,
        worker: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        self.tables.load(Self::connection(worker).client(), table, rows).await
    }
}
