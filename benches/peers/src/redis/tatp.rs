//! TATP: rows are strings of the workload's own bytes, of which Redis changes some in place.
//!
//! A transaction that begins with a telephone number is a script that follows it, since nobody else knows whose it is.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use farside_workloads::engine::{Failure, Intent, Rows, Table, Want};
use farside_workloads::load::{Effect, Tatp, Workload};

use crate::redis::connection::{Connection, Reply};
use crate::redis::play::Play;
use crate::redis::{Requests, decimal, word};

type Input = <Tatp as Workload>::Input;

/// Subscribers, numbers, access information, special facilities, call forwardings: the scripts know their numbers.
const TABLES: [Table; 5] = [Table(20), NUMBER, Table(22), Table(23), Table(24)];
/// Whose row is a number that scripts can read.
const NUMBER: Table = Table(21);

/// Turns one of a subscriber's bits, and gives a facility other data, if it is there.
const UPDATE_SUBSCRIBER: &str = "local bits = redis.call('GETRANGE', KEYS[1], 8, 8) \
    if bits == '' then return redis.error_reply('ERR the subscriber is gone') end \
    if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end \
    redis.call('SETRANGE', KEYS[1], 8, string.char(bit.bxor(string.byte(bits), 1))) \
    redis.call('SETRANGE', KEYS[2], 8, ARGV[1]) return 1";
/// Gives the subscriber who has a number another location.
const UPDATE_LOCATION: &str = "local subscriber = '20:' .. redis.call('GET', KEYS[1]) \
    if redis.call('EXISTS', subscriber) == 0 then return redis.error_reply('ERR the subscriber is gone') end \
    redis.call('SETRANGE', subscriber, 32, ARGV[1]) return 1";
/// Adds a forwarding, the so-manieth of the subscriber who has a number, if it has the facility and not the forwarding.
const INSERT_FORWARDING: &str = "local subscriber, at = tonumber(redis.call('GET', KEYS[1])), tonumber(ARGV[1]) \
    local first = subscriber * 4 \
    local has = redis.call('MGET', '23:' .. first, '23:' .. first + 1, '23:' .. first + 2, '23:' .. first + 3) \
    if not has[math.floor(at / 3) + 1] then return 0 end \
    return redis.call('SET', '24:' .. subscriber * 12 + at, ARGV[2], 'NX') and 1 or 0";
/// Removes a forwarding, if it is there.
const DELETE_FORWARDING: &str =
    "return redis.call('DEL', '24:' .. redis.call('GET', KEYS[1]) * 12 + ARGV[1])";

/// The forwardings that a subscriber may have.
const FORWARDINGS: u64 = 12;

pub struct Register {
    tatp: Arc<Tatp>,
    // The names under which the server knows the scripts.
    update_subscriber: String,
    update_location: String,
    insert_forwarding: String,
    delete_forwarding: String,
    play: Play,
}

impl Requests for Register {
    type Workload = Tatp;

    fn new(tatp: &Arc<Tatp>, connection: &mut Connection) -> Result<Self> {
        let tables = tatp.tables();
        let tables = tables.iter().map(|shape| shape.table);
        ensure!(tables.eq(TABLES), "TATP's tables have other numbers than here");
        Ok(Register {
            tatp: Arc::clone(tatp),
            update_subscriber: connection.script(UPDATE_SUBSCRIBER)?,
            update_location: connection.script(UPDATE_LOCATION)?,
            insert_forwarding: connection.script(INSERT_FORWARDING)?,
            delete_forwarding: connection.script(DELETE_FORWARDING)?,
            play: Play::new(),
        })
    }

    fn kept(table: Table, row: Vec<u8>) -> Result<Vec<u8>> {
        if table == NUMBER { decimal(&row) } else { Ok(row) }
    }

    fn row(table: Table, kept: &[u8]) -> Result<Vec<u8>> {
        if table == NUMBER { word(kept) } else { Ok(kept.to_vec()) }
    }

    fn ask(&mut self, kind: usize, input: &Input, to: &mut Connection) -> Result<()> {
        let played = self.play.play(&*self.tatp, input, |wants, rows| suppose(kind, wants, rows));
        let (wants, writes) = (&self.play.wants[..], &self.play.writes[..]);
        if reads_only(kind) {
            to.read(wants);
            return Ok(());
        }
        played?;
        // Which of the row that is written last is new depends on the kind.
        let written = || writes.last().and_then(|write| write.value.as_deref());
        let new = |from| written().and_then(|row| row.get(from..from + 8)).context("new data");
        match (kind, wants) {
            (3, [subscriber, facility]) => {
                to.ask(6).word("EVALSHA").word(&self.update_subscriber).word("2");
                to.name(subscriber.table, subscriber.key).name(facility.table, facility.key);
                to.word(new(8)?);
            }
            (4, [number, _]) => {
                to.ask(5).word("EVALSHA").word(&self.update_location).word("1");
                to.name(number.table, number.key).word(new(32)?);
            }
            (5, [number, .., forwarding]) => {
                to.ask(6).word("EVALSHA").word(&self.insert_forwarding).word("1");
                to.name(number.table, number.key).text(forwarding.key % FORWARDINGS);
                to.word(written().context("a new row")?);
            }
            (6, [number, forwarding]) => {
                to.ask(5).word("EVALSHA").word(&self.delete_forwarding).word("1");
                to.name(number.table, number.key).text(forwarding.key % FORWARDINGS);
            }
            _ => bail!("a transaction of TATP that is not known here"),
        }
        Ok(())
    }

    fn effect(&mut self, kind: usize, input: &Input, reply: &Reply) -> Result<Effect> {
        if reads_only(kind) {
            // TATP says itself whether these are the right rows.
            return Ok(self
                .play
                .play(&*self.tatp, input, |wants, rows| found(wants, reply, rows))?);
        }
        let changed = reply.number()?;
        let rows = [0, 0, changed, -changed][kind - 3];
        Ok(Effect { sum: 0, rows })
    }
}

/// The first three kinds, which read in one step.
fn reads_only(kind: usize) -> bool {
    kind < 3
}

/// Rows with which a transaction does all that it ever does. Who only reads need not go on.
fn suppose(kind: usize, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
    if reads_only(kind) {
        return Err(Failure::Conflict);
    }
    // A subscriber has the number that it is; that is at the beginning of both rows.
    let mut row = [0; 40];
    for want in wants {
        row[..8].copy_from_slice(&want.key.to_le_bytes());
        rows.push(0, (want.intent != Intent::Insert).then_some(&row));
    }
    Ok(())
}

/// The rows of a reply.
fn found(wants: &[Want], reply: &Reply, rows: &mut Rows) -> Result<(), Failure> {
    if reply.all().len() != wants.len() {
        return Err(Failure::Broken(format!("{} rows were expected", wants.len())));
    }
    for row in reply.all() {
        rows.push(0, row.row().map_err(crate::peer::broken)?);
    }
    Ok(())
}
