//! A workload's own transaction, played through without a store: what it reads and writes becomes a request, and what it makes of a reply
//! is what it makes of rows. So a request never asks for something else than the workload does.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farside_workloads::engine::{Failure, Rows, Table, Transaction, Want};
use farside_workloads::history::Recorder;
use farside_workloads::load::{Effect, Tx, Workload};

use crate::peer::broken;

/// What a transaction has read and written, in its order.
pub struct Play {
    pub wants: Vec<Want>,
    pub writes: Vec<Write>,
    rows: Rows,
    log: Recorder,
}

/// A row, and what it becomes; `None`: it is deleted.
pub struct Write {
    pub table: Table,
    pub key: u64,
    pub value: Option<Vec<u8>>,
}

impl Play {
    pub fn new() -> Self {
        let (wants, writes) = (Vec::new(), Vec::new());
        Play { wants, writes, rows: Rows::default(), log: Recorder::deaf() }
    }

    /// Plays a transaction. Each of its reads finds what `answer` gives.
    pub fn play<W: Workload>(
        &mut self,
        workload: &W,
        input: &W::Input,
        answer: impl FnMut(&[Want], &mut Rows) -> Result<(), Failure>,
    ) -> Result<Effect, Failure> {
        self.wants.clear();
        self.writes.clear();
        let player = Player { answer, wants: &mut self.wants, writes: &mut self.writes };
        let mut tx = Tx::new(player, &mut self.log, &mut self.rows);
        match pin!(workload.attempt(&mut tx, input)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(broken("a transaction waits for something other than rows")),
        }
    }
}

struct Player<'a, A> {
    answer: A,
    wants: &'a mut Vec<Want>,
    writes: &'a mut Vec<Write>,
}

impl<A: FnMut(&[Want], &mut Rows) -> Result<(), Failure>> Transaction for Player<'_, A> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        rows.clear();
        self.wants.extend_from_slice(wants);
        (self.answer)(wants, rows)
    }

    async fn write(&mut self, table: Table, key: u64, value: Option<&[u8]>) -> Result<(), Failure> {
        self.writes.push(Write { table, key, value: value.map(<[u8]>::to_vec) });
        Ok(())
    }

    async fn commit(self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}
