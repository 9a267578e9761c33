//! SmallBank: balances are numbers that Redis can count up and down.

use std::sync::Arc;

use anyhow::{Result, ensure};
use farside_workloads::engine::Table;
use farside_workloads::load::{Effect, SmallBank, Workload};

use crate::redis::connection::{Connection, Reply};
use crate::redis::{Requests, decimal, word};

type Input = <SmallBank as Workload>::Input;

const SAVINGS: Table = Table(10);
const CHECKING: Table = Table(11);

const AMALGAMATE: &str = "local all = redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2]) \
    redis.call('SET', KEYS[1], 0) redis.call('SET', KEYS[2], 0) redis.call('INCRBY', KEYS[3], string.format('%d', all)) return 0";
const SEND_PAYMENT: &str = "if tonumber(redis.call('GET', KEYS[1])) >= tonumber(ARGV[1]) then \
    redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], ARGV[1]) end return 0";
const WRITE_CHECK: &str = "local has = redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2]) local cost = tonumber(ARGV[1]) \
    if has < cost then cost = cost + 1 end redis.call('DECRBY', KEYS[2], cost) return -cost";

/// The names under which the server knows the scripts.
pub struct Bank {
    amalgamate: String,
    send_payment: String,
    write_check: String,
}

impl Requests for Bank {
    type Workload = SmallBank;

    fn new(bank: &Arc<SmallBank>, connection: &mut Connection) -> Result<Self> {
        let tables = bank.tables();
        let tables = tables.iter().map(|shape| shape.table);
        ensure!(tables.eq([SAVINGS, CHECKING]), "SmallBank's tables have other numbers than here");
        Ok(Bank {
            amalgamate: connection.script(AMALGAMATE)?,
            send_payment: connection.script(SEND_PAYMENT)?,
            write_check: connection.script(WRITE_CHECK)?,
        })
    }

    /// The balance alone: what is behind it is the same in all rows.
    fn kept(_: Table, row: Vec<u8>) -> Result<Vec<u8>> {
        decimal(&row)
    }

    fn row(_: Table, kept: &[u8]) -> Result<Vec<u8>> {
        word(kept)
    }

    fn ask(&mut self, _: usize, input: &Input, to: &mut Connection) -> Result<()> {
        match *input {
            Input::Amalgamate(from, into) => {
                to.ask(6).word("EVALSHA").word(&self.amalgamate).word("3");
                to.name(SAVINGS, from).name(CHECKING, from).name(CHECKING, into);
            }
            Input::Balance(who) => {
                to.ask(3).word("MGET").name(SAVINGS, who).name(CHECKING, who);
            }
            Input::DepositChecking(who, amount) => {
                to.ask(3).word("INCRBY").name(CHECKING, who).text(amount);
            }
            Input::SendPayment(from, into, amount) => {
                to.ask(6).word("EVALSHA").word(&self.send_payment).word("2");
                to.name(CHECKING, from).name(CHECKING, into).text(amount);
            }
            Input::TransactSavings(who, amount) => {
                to.ask(3).word("INCRBY").name(SAVINGS, who).text(amount);
            }
            Input::WriteCheck(who, amount) => {
                to.ask(6).word("EVALSHA").word(&self.write_check).word("2");
                to.name(SAVINGS, who).name(CHECKING, who).text(amount);
            }
        }
        Ok(())
    }

    /// How much more money there is.
    fn effect(&mut self, _: usize, input: &Input, reply: &Reply) -> Result<Effect> {
        let sum = match input {
            Input::Balance(who) => {
                let [Reply::Bytes(_), Reply::Bytes(_)] = reply.all() else {
                    anyhow::bail!("an account of {who} is gone")
                };
                0
            }
            Input::DepositChecking(_, amount) | Input::TransactSavings(_, amount) => {
                reply.number().map(|_| *amount)?
            }
            Input::Amalgamate(..) | Input::SendPayment(..) | Input::WriteCheck(..) => {
                reply.number()?
            }
        };
        Ok(Effect { sum, rows: 0 })
    }
}
