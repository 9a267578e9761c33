//! Redis over a unix socket. A SmallBank transaction is one request, so that nobody has to try again: a command where one is enough, a Lua
//! script where it is not. A connection has several requests under way.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farside_fabric::runtime::Random;
use farside_workloads::load::{SmallBank, Workload};

type Input = <SmallBank as Workload>::Input;

/// What each account has in the beginning.
const BEGINNING: i64 = 1_000_000;

const AMALGAMATE: &str = "local all = redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2]) \
    redis.call('SET', KEYS[1], 0) redis.call('SET', KEYS[2], 0) redis.call('INCRBY', KEYS[3], string.format('%d', all)) return 0";
const SEND_PAYMENT: &str = "if tonumber(redis.call('GET', KEYS[1])) >= tonumber(ARGV[1]) then \
    redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], ARGV[1]) end return 0";
const WRITE_CHECK: &str = "local has = redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2]) local cost = tonumber(ARGV[1]) \
    if has < cost then cost = cost + 1 end redis.call('DECRBY', KEYS[2], cost) return -cost";

/// A server of our own, without anything on disk.
struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    fn start(dir: &Path) -> Result<Self> {
        let socket = std::path::absolute(dir.join("redis.sock"))?;
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).stdout(Stdio::null());
        let process = command.spawn().context("redis-server (Debian package redis-server)")?;
        let mut server = Server { process, socket };
        let start = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            ensure!(server.process.try_wait()?.is_none(), "redis-server has ended");
            ensure!(start.elapsed() < Duration::from_secs(10), "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Connection {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    requests: String,
    line: String,
}

enum Reply {
    Number(i64),
    Text(String),
    Many(Vec<Reply>),
}

impl Connection {
    fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let replies = BufReader::with_capacity(1 << 16, stream.try_clone()?);
        Ok(Connection { stream, replies, requests: String::new(), line: String::new() })
    }

    fn ask(&mut self, words: &[&str]) {
        let _ = write!(self.requests, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.requests, "${}\r\n{word}\r\n", word.len());
        }
    }

    fn send(&mut self) -> Result<()> {
        self.stream.write_all(self.requests.as_bytes())?;
        self.requests.clear();
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply> {
        self.line.clear();
        self.replies.read_line(&mut self.line)?;
        let line = self.line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("the connection has ended")?;
        Ok(match kind {
            ":" => Reply::Number(rest.parse()?),
            "+" => Reply::Text(rest.into()),
            "$" => {
                let mut bytes =
                    vec![0; rest.parse::<usize>().context("a value that is there")? + 2];
                self.replies.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8(bytes)?)
            }
            "*" => {
                let count: usize = rest.parse()?;
                Reply::Many((0..count).map(|_| self.reply()).collect::<Result<_>>()?)
            }
            _ => bail!("redis: {line}"),
        })
    }

    fn call(&mut self, words: &[&str]) -> Result<Reply> {
        self.ask(words);
        self.send()?;
        self.reply()
    }
}

/// The names under which a server knows the scripts.
#[derive(Clone)]
struct Scripts {
    amalgamate: String,
    send_payment: String,
    write_check: String,
}

impl Scripts {
    fn load(connection: &mut Connection) -> Result<Self> {
        let mut load = |script| match connection.call(&["SCRIPT", "LOAD", script])? {
            Reply::Text(name) => Ok(name),
            _ => bail!("redis: no name for a script"),
        };
        Ok(Scripts {
            amalgamate: load(AMALGAMATE)?,
            send_payment: load(SEND_PAYMENT)?,
            write_check: load(WRITE_CHECK)?,
        })
    }

    /// Asks for a transaction.
    fn ask(&self, to: &mut Connection, input: &Input) {
        let (savings, checking) = (|n: u64| format!("s{n}"), |n: u64| format!("c{n}"));
        match *input {
            Input::Amalgamate(from, into) => {
                let keys = [savings(from), checking(from), checking(into)];
                to.ask(&["EVALSHA", &self.amalgamate, "3", &keys[0], &keys[1], &keys[2]]);
            }
            Input::Balance(who) => to.ask(&["MGET", &savings(who), &checking(who)]),
            Input::DepositChecking(who, amount) => {
                to.ask(&["INCRBY", &checking(who), &amount.to_string()]);
            }
            Input::SendPayment(from, into, amount) => {
                let (from, into, amount) = (checking(from), checking(into), amount.to_string());
                to.ask(&["EVALSHA", &self.send_payment, "2", &from, &into, &amount]);
            }
            Input::TransactSavings(who, amount) => {
                to.ask(&["INCRBY", &savings(who), &amount.to_string()]);
            }
            Input::WriteCheck(who, amount) => {
                let (saved, has, amount) = (savings(who), checking(who), amount.to_string());
                to.ask(&["EVALSHA", &self.write_check, "2", &saved, &has, &amount]);
            }
        }
    }
}

/// How much more money there is after a transaction.
fn comes_in(input: &Input, reply: &Reply) -> i64 {
    match (input, reply) {
        (Input::DepositChecking(_, amount) | Input::TransactSavings(_, amount), _) => *amount,
        (Input::WriteCheck(..), Reply::Number(cost)) => *cost,
        _ => 0,
    }
}

/// SmallBank, by so many threads with so many requests under way each: transactions in a second.
pub fn smallbank(
    dir: &Path,
    accounts: u64,
    threads: usize,
    depth: usize,
    span: Duration,
) -> Result<f64> {
    let server = Server::start(dir)?;
    let mut connection = Connection::open(&server.socket)?;
    let scripts = Scripts::load(&mut connection)?;
    for who in 0..accounts {
        let beginning = BEGINNING.to_string();
        connection.ask(&["MSET", &format!("s{who}"), &beginning, &format!("c{who}"), &beginning]);
        if who % 1000 == 999 || who + 1 == accounts {
            connection.send()?;
            (0..who % 1000 + 1).try_for_each(|_| connection.reply().map(drop))?;
        }
    }
    let (bank, start) = (SmallBank::new(accounts), Instant::now());
    let run = |number: usize| -> Result<(u64, i64)> {
        let mut connection = Connection::open(&server.socket)?;
        let mut random = Random::new(number as u64 + 1);
        let (mut done, mut sum) = (0, 0);
        while start.elapsed() < span {
            let inputs: Vec<Input> = (0..depth).map(|_| bank.draw(&mut random).1).collect();
            inputs.iter().for_each(|input| scripts.ask(&mut connection, input));
            connection.send()?;
            for input in &inputs {
                sum += comes_in(input, &connection.reply()?);
            }
            done += depth as u64;
        }
        Ok((done, sum))
    };
    let found: Vec<Result<(u64, i64)>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let (seconds, mut done, mut expected) = (start.elapsed().as_secs_f64(), 0, 0);
    for found in found {
        let (count, sum) = found?;
        (done, expected) = (done + count, expected + sum);
    }
    expected += 2 * accounts as i64 * BEGINNING;
    let mut total = 0;
    for who in 0..accounts {
        let balances = connection.call(&["MGET", &format!("s{who}"), &format!("c{who}")])?;
        let Reply::Many(balances) = balances else { bail!("redis: two balances were expected") };
        for balance in balances {
            let Reply::Text(balance) = balance else { bail!("redis: a balance was expected") };
            total += balance.parse::<i64>()?;
        }
    }
    ensure!(total == expected, "the books do not balance: {total}, and {expected} was expected");
    Ok(done as f64 / seconds)
}
