//! A connection to a Redis server: requests are gathered and sent together, replies come in the order of the requests.

use std::fmt::{Display, Write as _};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use farside_workloads::engine::{Table, Want};

pub struct Connection {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    requests: Vec<u8>,
    /// Words of the last request that are still to come.
    missing: usize,
    /// A word that is being made of something else.
    text: String,
    line: Vec<u8>,
}

/// What the server says.
pub enum Reply {
    /// A row that is not there.
    Nothing,
    Number(i64),
    Bytes(Vec<u8>),
    Many(Vec<Reply>),
}

impl Reply {
    /// One by one, if there are many.
    pub fn all(&self) -> &[Reply] {
        match self {
            Reply::Many(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    /// A row, if it is there.
    pub fn row(&self) -> Result<Option<&[u8]>> {
        match self {
            Reply::Bytes(bytes) => Ok(Some(bytes)),
            Reply::Nothing => Ok(None),
            Reply::Number(_) | Reply::Many(_) => bail!("redis: a row was expected"),
        }
    }

    pub fn number(&self) -> Result<i64> {
        match self {
            Reply::Number(number) => Ok(*number),
            _ => bail!("redis: a number was expected"),
        }
    }
}

impl Connection {
    pub fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let replies = BufReader::with_capacity(1 << 16, stream.try_clone()?);
        Ok(Connection {
            stream,
            replies,
            requests: Vec::new(),
            missing: 0,
            text: String::new(),
            line: Vec::new(),
        })
    }

    /// Begins a request of so many words: they must follow, or the server would wait for them.
    pub fn ask(&mut self, words: usize) -> &mut Self {
        assert_eq!(self.missing, 0, "the request before has all its words");
        self.missing = words;
        self.head(b'*', words);
        self
    }

    pub fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        let word = word.as_ref();
        self.missing = self.missing.checked_sub(1).expect("a word that was announced");
        self.head(b'$', word.len());
        self.requests.extend_from_slice(word);
        self.requests.extend_from_slice(b"\r\n");
        self
    }

    /// A word that is something's text.
    pub fn text(&mut self, of: impl Display) -> &mut Self {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let _ = write!(text, "{of}");
        self.word(&text);
        self.text = text;
        self
    }

    /// The name of a row: its table and its key.
    pub fn name(&mut self, table: Table, key: u64) -> &mut Self {
        self.text(format_args!("{}:{key}", table.0))
    }

    /// A request for rows, by the command that is enough for it.
    pub fn read(&mut self, wants: &[Want]) {
        self.ask(1 + wants.len()).word(if wants.len() == 1 { "GET" } else { "MGET" });
        for want in wants {
            self.name(want.table, want.key);
        }
    }

    fn head(&mut self, kind: u8, number: usize) {
        self.requests.push(kind);
        let _ = write!(self.requests, "{number}\r\n");
    }

    /// Sends all that was asked.
    pub fn send(&mut self) -> Result<()> {
        assert_eq!(self.missing, 0, "the last request has all its words");
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    /// The reply to the first request that has none yet.
    pub fn reply(&mut self) -> Result<Reply> {
        self.line.clear();
        self.replies.read_until(b'\n', &mut self.line)?;
        let line = std::str::from_utf8(&self.line)?.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("the connection has ended")?;
        Ok(match (kind, rest) {
            ("$" | "*", "-1") => Reply::Nothing,
            (":", _) => Reply::Number(rest.parse()?),
            ("+", _) => Reply::Bytes(rest.into()),
            ("$", _) => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.replies.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(bytes)
            }
            ("*", _) => {
                let count: usize = rest.parse()?;
                Reply::Many((0..count).map(|_| self.reply()).collect::<Result<_>>()?)
            }
            _ => bail!("redis: {line}"),
        })
    }

    /// The last of so many replies. An error in one before is an error, too.
    pub fn last_of(&mut self, replies: usize) -> Result<Reply> {
        for _ in 1..replies {
            self.reply()?;
        }
        self.reply()
    }

    /// Makes a script known to the server: its name there.
    pub fn script(&mut self, script: &str) -> Result<String> {
        self.ask(3).word("SCRIPT").word("LOAD").word(script);
        self.send()?;
        match self.reply()? {
            Reply::Bytes(name) => Ok(String::from_utf8(name)?),
            _ => bail!("redis: no name for a script"),
        }
    }
}
