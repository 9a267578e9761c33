//! Redis over a unix socket. A transaction is one request, so that nobody has to try again: a command where one is enough; where it is
//! not, a Lua script, or commands in MULTI and EXEC. A connection has several requests under way.
//!
//! What is loaded, which transactions run and what must hold in the end is the workloads' own; here is only how a transaction is asked for.

mod connection;
mod kvs;
mod play;
mod server;
mod smallbank;
mod store;
mod tatp;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use farside_fabric::Worker;
use farside_fabric::runtime::Random;
use farside_workloads::engine::Table;
use farside_workloads::history::Outcome;
use farside_workloads::load::{Effect, Workload};

use crate::redis::connection::{Connection, Reply};
use crate::redis::server::Server;
use crate::redis::store::Store;

/// A workload's transactions as requests, for a thread.
pub trait Requests: Sized + 'static {
    type Workload: Workload + Send + 'static;

    /// Makes the scripts known to the server.
    fn new(workload: &Arc<Self::Workload>, connection: &mut Connection) -> Result<Self>;

    /// How Redis keeps a row.
    fn kept(_: Table, row: Vec<u8>) -> Result<Vec<u8>> {
        Ok(row)
    }

    /// The row that is kept so, as far as the workload's check looks at it.
    fn row(_: Table, kept: &[u8]) -> Result<Vec<u8>> {
        Ok(kept.to_vec())
    }

    /// Asks for a transaction: one request, which nobody comes between.
    fn ask(
        &mut self,
        kind: usize,
        input: &<Self::Workload as Workload>::Input,
        to: &mut Connection,
    ) -> Result<()>;

    /// How many replies there are to it. The last one counts; the others say only that nothing was refused.
    fn replies(_: &<Self::Workload as Workload>::Input) -> usize {
        1
    }

    /// What a transaction has changed, by the reply; an error if it has found what cannot be.
    fn effect(
        &mut self,
        kind: usize,
        input: &<Self::Workload as Workload>::Input,
        reply: &Reply,
    ) -> Result<Effect>;
}

/// How to run a workload.
pub struct Plan {
    /// Where the server's socket is.
    pub dir: PathBuf,
    pub threads: usize,
    /// Requests that a thread has under way.
    pub depth: usize,
    pub span: Duration,
}

impl Plan {
    /// Runs one of the workloads that are known here: transactions in a second.
    pub fn run_any(&self, workload: Box<dyn Any>) -> Result<f64> {
        let workload = match workload.downcast() {
            Ok(bank) => return self.run::<smallbank::Bank>(*bank),
            Err(other) => other,
        };
        let workload = match workload.downcast() {
            Ok(tatp) => return self.run::<tatp::Register>(*tatp),
            Err(other) => other,
        };
        match workload.downcast() {
            Ok(kvs) => self.run::<kvs::Values>(*kvs),
            Err(_) => bail!("redis: expected smallbank, tatp or kvs"),
        }
    }

    fn run<R: Requests>(&self, workload: R::Workload) -> Result<f64> {
        let (server, workload) = (Server::start(&self.dir)?, Arc::new(workload));
        let (mut store, worker) = (Store::<R>::open(&server.socket)?, Worker::new(1));
        worker.block_on(workload.setup(&store, &worker))?;
        let start = Instant::now();
        let done: Vec<Result<u64>> = std::thread::scope(|scope| {
            let (server, workload) = (&server, &workload);
            let start =
                |thread| scope.spawn(move || self.drive::<R>(server, workload, thread, start));
            let running: Vec<_> = (0..self.threads).map(start).collect();
            running.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        let done: u64 = done.into_iter().sum::<Result<u64>>()?;
        worker.block_on(workload.check(&mut store)).map_err(|why| anyhow!(why))?;
        Ok(done as f64 / seconds)
    }

    /// A thread's transactions: how many there were.
    fn drive<R: Requests>(
        &self,
        server: &Server,
        workload: &Arc<R::Workload>,
        thread: usize,
        start: Instant,
    ) -> Result<u64> {
        let mut connection = Connection::open(&server.socket)?;
        let mut requests = R::new(workload, &mut connection)?;
        let mut random = Random::new(thread as u64 + 1);
        let (mut done, mut under_way) = (0, Vec::with_capacity(self.depth));
        while start.elapsed() < self.span {
            for _ in 0..self.depth {
                let (kind, input) = workload.draw(&mut random);
                requests.ask(kind, &input, &mut connection)?;
                under_way.push((kind, input));
            }
            connection.send()?;
            done += self.depth as u64;
            for (kind, input) in under_way.drain(..) {
                let reply = connection.last_of(R::replies(&input))?;
                let effect = requests.effect(kind, &input, &reply)?;
                workload.book(&input, effect, Outcome::Committed);
            }
        }
        Ok(done)
    }
}

/// The first word of a row as text, with which Redis can count and scripts can make keys.
fn decimal(row: &[u8]) -> Result<Vec<u8>> {
    let first = row.first_chunk().context("a row of at least a word")?;
    Ok(i64::from_le_bytes(*first).to_string().into_bytes())
}

/// A word that is kept as text.
fn word(kept: &[u8]) -> Result<Vec<u8>> {
    let number: i64 = std::str::from_utf8(kept)?.parse()?;
    Ok(number.to_le_bytes().to_vec())
}
