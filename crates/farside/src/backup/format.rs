//! What a backup looks like: frames, one after the other, each with a checksum.
//!
//! | bytes of a frame | |
//! | --- | --- |
//! | 0 | how long its body is |
//! | 4 | what it is |
//! | 8 | checksum of all this and the body, seeded with the backup's id and the frame's number |
//! | 16 | the body |
//!
//! The first frame says whose backup it is and of which moment. Then for each table: what it is, its rows, and how many there
//! were. The last one has the totals: what ends before it is no whole backup. So whatever is damaged, missing or of another
//! backup is found.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::Xxh3;

use crate::{Error, MAX_KEY_BYTES, MAX_VALUE_BYTES, Moment, Result};

const MAGIC: &[u8; 8] = b"FarsideB";
const VERSION: u32 = 1;

/// Bytes before the body of a frame.
const HEAD: usize = 16;

/// Rows are gathered until they are so long.
const FULL: usize = 256 << 10;

/// No body is longer.
const MOST: usize = FULL + MAX_KEY_BYTES + MAX_VALUE_BYTES + 64;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Head = 1,
    Table = 2,
    Rows = 3,
    TableEnd = 4,
    End = 5,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        let all = [Kind::Head, Kind::Table, Kind::Rows, Kind::TableEnd, Kind::End];
        all.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// How much there is of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Total {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The same for the same rows, in whichever order.
    pub(super) digest: u64,
}

impl Total {
    /// One more row.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut hash = Xxh3::new();
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key);
        hash.update(value);
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.digest = self.digest.wrapping_add(hash.digest());
    }
}

fn checksum(id: u64, number: u64, head: &[u8], body: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(id.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    hash.update(head);
    hash.update(body);
    hash.digest()
}

/// Writes frames.
pub(super) struct Writer<W> {
    output: W,
    id: u64,
    number: u64,
    rows: Vec<u8>,
    pub(super) written: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(output: W, id: u64, moment: Moment) -> Result<Self> {
        let mut writer = Writer { output, id: 0, number: 0, rows: Vec::new(), written: 0 };
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&u64::from(VERSION).to_le_bytes());
        body.extend_from_slice(&id.to_le_bytes());
        body.extend_from_slice(&u64::from(moment).to_le_bytes());
        writer.frame(Kind::Head, &body)?;
        writer.id = id;
        Ok(writer)
    }

    fn frame(&mut self, kind: Kind, body: &[u8]) -> Result<()> {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        let sum = checksum(self.id, self.number, &head[..8], body);
        head[8..].copy_from_slice(&sum.to_le_bytes());
        self.number += 1;
        self.written += (HEAD + body.len()) as u64;
        let done = self.output.write_all(&head).and_then(|()| self.output.write_all(body));
        done.map_err(|error| failed("writing the backup", &error))
    }

    pub(super) fn table(&mut self, name: &str, value_bytes: u32) -> Result<()> {
        let mut body = value_bytes.to_le_bytes().to_vec();
        body.extend_from_slice(name.as_bytes());
        self.frame(Kind::Table, &body)
    }

    pub(super) fn row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.rows.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.rows.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.rows.extend_from_slice(key);
        self.rows.extend_from_slice(value);
        if self.rows.len() >= FULL { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut rows = std::mem::take(&mut self.rows);
        let done = self.frame(Kind::Rows, &rows);
        rows.clear();
        self.rows = rows;
        done
    }

    pub(super) fn table_end(&mut self, total: Total) -> Result<()> {
        self.flush()?;
        self.frame(Kind::TableEnd, &words([total.rows, total.bytes, total.digest]))
    }

    /// The last frame: what comes before it is whole. How long it is.
    pub(super) fn end(mut self, tables: u64, all: Total) -> Result<u64> {
        self.frame(Kind::End, &words([tables, all.rows, all.bytes]))?;
        self.output.flush().map_err(|error| failed("writing the backup", &error))?;
        Ok(self.written)
    }
}

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(super) fn failed(what: &str, error: &io::Error) -> Error {
    Error::Invalid(format!("{what}: {error}"))
}

/// Reads frames.
pub(super) struct Reader<R> {
    input: R,
    id: u64,
    number: u64,
    /// Bytes that were read.
    pub(super) at: u64,
    pub(super) moment: Moment,
    body: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Result<Self> {
        let (id, moment) = (0, Moment::from(0));
        let mut reader = Reader { input, id, number: 0, at: 0, moment, body: Vec::new() };
        let mut magic = [0; HEAD + 8];
        let start = reader.fill(&mut magic)?;
        if start < magic.len() || magic[HEAD..] != MAGIC[..] {
            let near = start == magic.len() && distance(&magic[HEAD..], MAGIC) <= 2;
            let other =
                if near { "its first bytes are damaged" } else { "it is no backup of farside" };
            return Err(reader.damaged(other));
        }
        let (head, first) = magic.split_at(HEAD);
        if reader.frame(head, first)? != Kind::Head || reader.body.len() != 32 {
            return Err(reader.damaged("it does not begin like a backup"));
        }
        let [_, version, id, moment] = reader.words()?;
        if version != u64::from(VERSION) {
            let why = format!("it is of version {version}, and this program knows {VERSION}");
            return Err(reader.damaged(&why));
        }
        (reader.id, reader.moment) = (id, Moment::from(moment));
        Ok(reader)
    }

    pub(super) fn damaged(&self, what: &str) -> Error {
        Error::Damaged(format!("the backup, byte {}: {what}; nothing of it is used", self.at))
    }

    /// Reads as much as there is.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.input.read(&mut bytes[done..]) {
                Ok(0) => break,
                Ok(some) => done += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("reading the backup", &error)),
            }
        }
        Ok(done)
    }

    /// The next frame.
    pub(super) fn next(&mut self) -> Result<Kind> {
        let mut head = [0; HEAD];
        if self.fill(&mut head)? < HEAD {
            return Err(self.damaged("it ends too early: it was not finished, or cut off"));
        }
        self.frame(&head, &[])
    }

    /// The rest of a frame whose head and first bytes were read.
    fn frame(&mut self, head: &[u8], first: &[u8]) -> Result<Kind> {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let sum = u64::from_le_bytes(head[8..].try_into().expect("8 bytes"));
        let (length, kind) = (word(0) as usize, Kind::from_number(word(4)));
        if length > MOST || length < first.len() {
            return Err(self.damaged("a frame is damaged"));
        }
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.extend_from_slice(first);
        body.resize(length, 0);
        let there = self.fill(&mut body[first.len()..])?;
        self.body = body;
        if there < length - first.len() {
            return Err(self.damaged("it ends too early: it was not finished, or cut off"));
        }
        if checksum(self.id, self.number, &head[..8], &self.body) != sum {
            return Err(self.damaged("a frame is damaged"));
        }
        let kind = kind.ok_or_else(|| self.damaged("there is a frame of an unknown kind"))?;
        self.number += 1;
        self.at += (HEAD + length) as u64;
        Ok(kind)
    }

    /// The frame as words.
    pub(super) fn words<const N: usize>(&self) -> Result<[u64; N]> {
        let (words, rest) = self.body.as_chunks::<8>();
        let words: Option<&[[u8; 8]; N]> = words.try_into().ok();
        let words = words.filter(|_| rest.is_empty());
        let words = words.ok_or_else(|| self.damaged("a frame is too short"))?;
        Ok(words.map(u64::from_le_bytes))
    }

    /// The frame as a table: its name, and how long its values are.
    pub(super) fn table(&self) -> Result<(String, u32)> {
        let (value_bytes, name) =
            self.body.split_first_chunk().ok_or_else(|| self.damaged("a frame is too short"))?;
        let name = std::str::from_utf8(name).map_err(|_| self.damaged("a name is no text"))?;
        Ok((name.into(), u32::from_le_bytes(*value_bytes)))
    }

    /// The frame as rows.
    pub(super) fn rows(&self) -> Result<Vec<(&[u8], &[u8])>> {
        let (mut rest, mut rows) = (&self.body[..], Vec::new());
        while !rest.is_empty() {
            let (row, after) =
                split_row(rest).ok_or_else(|| self.damaged("a row ends too early"))?;
            rows.push(row);
            rest = after;
        }
        Ok(rows)
    }

    /// Nothing comes after the last frame.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.fill(&mut [0])? {
            0 => Ok(()),
            _ => Err(self.damaged("something comes after its end")),
        }
    }
}

type Row<'a> = (&'a [u8], &'a [u8]);

fn split_row(bytes: &[u8]) -> Option<(Row<'_>, &[u8])> {
    let (key, rest) = bytes.split_first_chunk()?;
    let (value, rest) = rest.split_first_chunk()?;
    let (key, value) = (u32::from_le_bytes(*key) as usize, u32::from_le_bytes(*value) as usize);
    let (key, rest) = rest.split_at_checked(key)?;
    let (value, rest) = rest.split_at_checked(value)?;
    Some(((key, value), rest))
}

/// How many bits differ.
fn distance(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}
