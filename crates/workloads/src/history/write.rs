//! Writing histories beside a run: attempts are put together by whoever makes them, and written by a thread
//! of its own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::Outcome;

/// Bytes that are handed to the writing thread at once, and how many such pieces may wait.
const PIECE: usize = 256 << 10;
const WAITING: usize = 64;

/// Where a history goes.
#[derive(Debug)]
pub struct Sink {
    pieces: SyncSender<Vec<u8>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Sink {
    /// Into a file.
    pub fn to_file(path: &Path) -> io::Result<Self> {
        Ok(Self::to(BufWriter::new(File::create(path)?)))
    }

    /// To wherever that leads.
    pub fn to(mut output: impl Write + Send + 'static) -> Self {
        let (pieces, arriving) = sync_channel::<Vec<u8>>(WAITING);
        let thread = std::thread::spawn(move || {
            for piece in arriving {
                output.write_all(&piece)?;
            }
            output.flush()
        });
        Sink { pieces, thread }
    }

    /// A recorder for one thread or task.
    pub fn recorder(&self) -> Recorder {
        Recorder { pieces: Some(self.pieces.clone()), text: Vec::new(), ops: Vec::new() }
    }

    /// Waits until all is written. All recorders must be gone.
    pub fn finish(self) -> io::Result<()> {
        drop(self.pieces);
        let written = self.thread.join();
        written.unwrap_or_else(|_| Err(io::Error::other("the thread that writes panicked")))
    }
}

/// Puts attempts together.
#[derive(Debug)]
pub struct Recorder {
    /// `None`: nobody wants to know.
    pieces: Option<SyncSender<Vec<u8>>>,
    text: Vec<u8>,
    /// The steps of the attempt that is under way.
    ops: Vec<u8>,
}

impl Recorder {
    /// One that records nothing.
    pub fn deaf() -> Self {
        Recorder { pieces: None, text: Vec::new(), ops: Vec::new() }
    }

    /// Whether anything is recorded.
    pub fn listens(&self) -> bool {
        self.pieces.is_some()
    }

    fn op(&mut self, f: &str, key: &dyn std::fmt::Display) -> &mut Vec<u8> {
        let first = self.ops.is_empty();
        // Keys are made of digits and letters here.
        let _ = write!(self.ops, r#"{}{{"f":"{f}","k":"{key}","v":"#, if first { "" } else { "," });
        &mut self.ops
    }

    /// A list was read.
    pub fn read_list(&mut self, key: &dyn std::fmt::Display, list: &[u64]) {
        if !self.listens() {
            return;
        }
        let ops = self.op("r", key);
        ops.push(b'[');
        for (number, element) in list.iter().enumerate() {
            if number > 0 {
                ops.push(b',');
            }
            put_number(ops, *element);
        }
        ops.extend_from_slice(b"]}");
    }

    /// An element was appended.
    pub fn append(&mut self, key: &dyn std::fmt::Display, element: u64) {
        if self.listens() {
            let ops = self.op("append", key);
            put_number(ops, element);
            ops.push(b'}');
        }
    }

    /// A register was read: its value, and the version that the store says it is.
    pub fn read(&mut self, key: &dyn std::fmt::Display, value: Option<u64>, version: u64) {
        if self.listens() {
            let ops = self.op("r", key);
            put_value(ops, value);
            ops.extend_from_slice(br#","ver":"#);
            put_number(ops, version);
            ops.push(b'}');
        }
    }

    /// A register was written, or with `None` deleted.
    pub fn write(&mut self, key: &dyn std::fmt::Display, value: Option<u64>) {
        if self.listens() {
            let ops = self.op("w", key);
            put_value(ops, value);
            ops.push(b'}');
        }
    }

    /// The attempt has ended.
    pub fn end(&mut self, attempt: &Ended) {
        let Some(pieces) = &self.pieces else { return };
        let outcome = match attempt.outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "unknown",
        };
        let Ended { id, proc, begin, end, .. } = attempt;
        let _ = write!(
            self.text,
            r#"{{"id":{id},"proc":{proc},"begin":{begin},"end":{end},"outcome":"{outcome}","ops":["#
        );
        self.text.extend_from_slice(&self.ops);
        self.ops.clear();
        self.text.push(b']');
        if let Some(time) = attempt.commit_ts {
            let _ = write!(self.text, r#","commit_ts":{time}"#);
        }
        self.text.extend_from_slice(b"}\n");
        if self.text.len() >= PIECE {
            let next = Vec::with_capacity(PIECE + (PIECE >> 3));
            // Whoever reads the error is the one who finishes the sink.
            let _ = pieces.send(std::mem::replace(&mut self.text, next));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(pieces) = &self.pieces {
            let _ = pieces.send(std::mem::take(&mut self.text));
        }
    }
}

/// What is known of an attempt at its end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its number.
    pub id: u64,
    /// Who made it.
    pub proc: u64,
    /// When it began, in nanoseconds.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// How.
    pub outcome: Outcome,
    /// The time that the store has given it.
    pub commit_ts: Option<u64>,
}

fn put_value(text: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => put_number(text, value),
        None => text.extend_from_slice(b"null"),
    }
}

/// The formatting of the standard library is most of what a history costs.
fn put_number(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}
