//! Bytes that came in and are not understood yet, and bytes that are to go out.

use std::io::{ErrorKind, Read, Write};

use super::wire::{HEADER, Header, Kind, Malformed};

/// The first size of an inbox; it grows for larger frames, and shrinks again behind them.
const SMALL: usize = 16 << 10;

/// Bytes that came in.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
}

/// How a look at the socket went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// Some bytes came in.
    Some,
    /// Nothing is there now.
    Nothing,
    /// The other side is gone.
    Gone,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Inbox { bytes: Vec::new(), taken: 0, filled: 0 }
    }

    /// One read from a socket that does not block.
    #[inline]
    pub(super) fn fill(&mut self, from: &mut impl Read) -> Look {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
            if self.bytes.len() != SMALL {
                self.bytes = vec![0; SMALL];
            }
        } else if self.filled == self.bytes.len() {
            self.bytes.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        if self.filled == self.bytes.len() {
            return Look::Nothing; // full: whoever takes frames makes room
        }
        match from.read(&mut self.bytes[self.filled..]) {
            Ok(0) => Look::Gone,
            Ok(read) => {
                self.filled += read;
                Look::Some
            }
            Err(error) if is_later(error.kind()) => Look::Nothing,
            Err(_) => Look::Gone,
        }
    }

    /// The next whole frame, if it is there. Frames with a body of more than `most` are refused
    /// before any room is made for them.
    #[inline]
    pub(super) fn frame(&mut self, most: usize) -> Result<Option<(Kind, &[u8])>, Malformed> {
        let there = &self.bytes[self.taken..self.filled];
        let Some(header) = Header::read(there, most)? else { return Ok(None) };
        let whole = HEADER + header.body;
        if there.len() < whole {
            if whole > self.bytes.len() {
                self.bytes.resize(whole, 0);
            }
            return Ok(None);
        }
        let start = self.taken + HEADER;
        self.taken += whole;
        Ok(Some((header.kind, &self.bytes[start..start + header.body])))
    }

    /// Whether a part of a frame is waiting for the rest.
    pub(super) fn is_partial(&self) -> bool {
        self.filled > self.taken
    }
}

/// Bytes that are to go out.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// Where the frame that is being written begins.
    begun: usize,
    /// Bytes that have left, and are not above any more.
    gone: u64,
    /// What comes from here on is held back, if anything is.
    held: Option<u64>,
}

impl Outbox {
    /// Whether nothing may go out now.
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.end_of_free()
    }

    fn end_of_free(&self) -> usize {
        self.held.map_or(self.bytes.len(), |held| (held - self.gone) as usize)
    }

    /// Forgets what is held back.
    pub(super) fn cut(&mut self) {
        self.bytes.truncate(self.end_of_free());
        self.held = None;
    }

    /// Where the next frame begins, all in all.
    pub(super) fn end(&self) -> u64 {
        self.gone + self.bytes.len() as u64
    }

    /// Holds back what is from here on, or nothing.
    pub(super) fn hold(&mut self, from: Option<u64>) {
        self.held = from;
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Appends a frame whose body is written by `fill`.
    #[inline]
    pub(super) fn frame(&mut self, kind: Kind, fill: impl FnOnce(&mut Vec<u8>)) {
        self.begin();
        fill(&mut self.bytes);
        self.finish(kind);
    }

    /// Begins a frame, whose body goes to [`Outbox::open`] until [`Outbox::finish`].
    #[inline]
    pub(super) fn begin(&mut self) {
        self.begun = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEADER]);
    }

    #[inline]
    pub(super) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    pub(super) fn finish(&mut self, kind: Kind) {
        let body = self.bytes.len() - self.begun - HEADER;
        self.bytes[self.begun..self.begun + HEADER].copy_from_slice(&Header::write(kind, body));
    }

    /// One write to a socket that does not block.
    #[inline]
    pub(super) fn drain(&mut self, to: &mut impl Write) -> Look {
        let free = self.end_of_free();
        match to.write(&self.bytes[self.sent..free]) {
            Ok(0) => Look::Gone,
            Ok(written) => {
                self.sent += written;
                if self.sent == self.bytes.len() {
                    self.gone += self.sent as u64;
                    self.sent = 0;
                    self.bytes.clear();
                    self.bytes.shrink_to(SMALL);
                } else if self.sent > SMALL.max(self.bytes.len() / 2) {
                    // What is held back may never leave it empty; each byte is moved once at the most, on average.
                    self.gone += self.sent as u64;
                    self.bytes.drain(..self.sent);
                    self.sent = 0;
                }
                Look::Some
            }
            Err(error) if is_later(error.kind()) => Look::Nothing,
            Err(_) => Look::Gone,
        }
    }
}

fn is_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
