//! Keys and values: a transaction that only reads or only writes is a command; any other is two of them in MULTI and EXEC, which take the
//! server a third of the time of a script, since what is written does not depend on what is read.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use farside_workloads::engine::{Intent, Want};
use farside_workloads::load::{Effect, Kvs, Workload};

use crate::redis::Requests;
use crate::redis::connection::{Connection, Reply};
use crate::redis::play::{Play, Write};

type Input = <Kvs as Workload>::Input;

pub struct Values {
    kvs: Arc<Kvs>,
    play: Play,
    reads: Vec<Want>,
}

impl Requests for Values {
    type Workload = Kvs;

    fn new(kvs: &Arc<Kvs>, _: &mut Connection) -> Result<Self> {
        Ok(Values { kvs: Arc::clone(kvs), play: Play::new(), reads: Vec::new() })
    }

    /// What is written is not read before: nobody looks at it.
    fn ask(&mut self, _: usize, input: &Input, to: &mut Connection) -> Result<()> {
        self.play.play(&*self.kvs, input, |_, _| Ok(()))?;
        let (wants, writes) = (&self.play.wants, &self.play.writes);
        self.reads.clear();
        self.reads.extend(wants.iter().filter(|want| want.intent == Intent::Read));
        let both = !self.reads.is_empty() && !writes.is_empty();
        if both {
            to.ask(1).word("MULTI");
        }
        if !self.reads.is_empty() {
            to.read(&self.reads);
        }
        if !writes.is_empty() {
            write(writes, to)?;
        }
        if both {
            to.ask(1).word("EXEC");
        }
        Ok(())
    }

    /// Whoever reads and writes gets one for each of the four commands, and the last one tells all.
    fn replies(input: &Input) -> usize {
        let (reads, objects) = (count_reads(input), input.len());
        if reads == 0 || reads == objects { 1 } else { 4 }
    }

    /// Nothing that anybody counts, but all that was asked for must be there.
    fn effect(&mut self, _: usize, input: &Input, reply: &Reply) -> Result<Effect> {
        let reads = count_reads(input);
        let found = match (Self::replies(input), reply) {
            (1, found) => found,
            (_, Reply::Many(both)) => both.first().context("what was read")?,
            _ => anyhow::bail!("redis: the replies to two commands were expected"),
        };
        if reads > 0 {
            let there = found.all().iter().filter(|row| matches!(row, Reply::Bytes(_))).count();
            ensure!(there == reads, "{reads} rows were to be read, and {there} are there");
        }
        Ok(Effect::default())
    }
}

/// Objects that are only read.
fn count_reads(input: &Input) -> usize {
    input.iter().filter(|(_, written)| written.is_none()).count()
}

/// A request to write rows, by the command that is enough for it.
fn write(writes: &[Write], to: &mut Connection) -> Result<()> {
    to.ask(1 + 2 * writes.len()).word(if writes.len() == 1 { "SET" } else { "MSET" });
    for Write { table, key, value } in writes {
        to.name(*table, *key).word(value.as_deref().context("nothing is deleted")?);
    }
    Ok(())
}
