//! Redis as the store that a workload sees before and after a run: it loads its own rows, and checks them itself.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, ensure};
use farside_fabric::Worker;
use farside_workloads::engine::{Engine, Failure, Rows, Session, Table, Transaction, Want};

use crate::peer::broken;
use crate::redis::Requests;
use crate::redis::connection::Connection;

/// The store, a session and a transaction of it: nobody else is at work.
pub struct Store<R> {
    connection: Rc<RefCell<Connection>>,
    keeps: PhantomData<R>,
}

/// How many rows are loaded at a time.
const LOAD: usize = 1000;

impl<R: Requests> Store<R> {
    pub fn open(socket: &Path) -> Result<Self> {
        let connection = Rc::new(RefCell::new(Connection::open(socket)?));
        Ok(Store { connection, keeps: PhantomData })
    }

    fn put(&self, table: Table, rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        loop {
            let mut count = 0;
            for (key, row) in (&mut *rows).take(LOAD) {
                connection.ask(3).word("SET").name(table, key).word(R::kept(table, row)?);
                count += 1;
            }
            connection.send()?;
            (0..count).try_for_each(|_| connection.reply().map(drop))?;
            if count < LOAD {
                return Ok(());
            }
        }
    }

    fn get(&self, wants: &[Want], rows: &mut Rows) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        connection.read(wants);
        connection.send()?;
        let reply = connection.reply()?;
        ensure!(reply.all().len() == wants.len(), "redis: so many rows were expected");
        for (want, kept) in wants.iter().zip(reply.all()) {
            let row = kept.row()?.map(|kept| R::row(want.table, kept)).transpose()?;
            rows.push(0, row.as_deref());
        }
        Ok(())
    }
}

impl<R> Clone for Store<R> {
    fn clone(&self) -> Self {
        Store { connection: Rc::clone(&self.connection), keeps: PhantomData }
    }
}

impl<R: Requests> Engine for Store<R> {
    type Session = Self;

    fn session(&self, _worker: &Worker) -> Self {
        self.clone()
    }

    async fn load(
        &self,
        _worker: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        self.put(table, rows).map_err(broken)
    }
}

impl<R: Requests> Session for Store<R> {
    type Txn<'s> = Self;

    async fn begin(&mut self) -> Result<Self, Failure> {
        Ok(self.clone())
    }
}

impl<R: Requests> Transaction for Store<R> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        rows.clear();
        self.get(wants, rows).map_err(broken)
    }

    async fn write(&mut self, _: Table, _: u64, _: Option<&[u8]>) -> Result<(), Failure> {
        Err(broken("redis: transactions that write are requests"))
    }

    async fn commit(self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}
