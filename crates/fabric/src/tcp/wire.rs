//! Frames: a header of 8 bytes, then a body that the kind of frame determines. All little-endian.
//!
//! | bytes | header |
//! | --- | --- |
//! | 0–3 | bytes of the body |
//! | 4 | kind |
//! | 5–7 | zero |
//!
//! A doorbell's body is its verbs: a word of op (bits 0–7), fenced (bit 8) and number of words (bits
//! 32–63), the address, then the operands. Its answer is the words that were read, and the old value
//! of each atomic, in posted order. `docs/wire.md` has the other bodies.

use super::node::Limits;
use crate::link::Op;
use crate::{MAX_VERB_BYTES, Refusal};

/// Raised with every change that an older peer cannot understand.
pub const PROTOCOL_VERSION: u16 = 2;

pub(super) const HEADER: usize = 8;

/// The largest body of a frame: one verb of the largest size fits, and some small ones with it.
pub(super) const MAX_BODY: usize = MAX_VERB_BYTES as usize + (64 << 10);

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Welcome = 4,
    /// The peer will hear no more: the body says why.
    Goodbye = 5,
    Doorbell = 16,
    Call = 17,
    Fence = 18,
    /// A client asks for a way to the memory through another network, such as RDMA.
    Queue = 19,
    /// A request was executed; the body is its result.
    Done = 32,
    /// A call failed: a code, then text.
    Failed = 33,
}

const KINDS: [Kind; 11] = [
    Kind::Hello,
    Kind::Challenge,
    Kind::Proof,
    Kind::Welcome,
    Kind::Goodbye,
    Kind::Doorbell,
    Kind::Call,
    Kind::Fence,
    Kind::Queue,
    Kind::Done,
    Kind::Failed,
];

/// A header that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) body: usize,
}

/// What is wrong with bytes that came in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a frame of kind {0}, which does not exist")]
    Kind(u8),
    #[error("a frame of {0} bytes, of which {1} are allowed here")]
    TooLong(usize, usize),
    #[error("a header with stray bits")]
    Header,
    #[error("a body that ends in the middle of something")]
    Short,
    #[error("a verb of kind {0}, which does not exist")]
    Op(u8),
    #[error("a verb that no client may send: {0}")]
    Verb(Refusal),
    #[error("a frame that does not belong here")]
    Unexpected,
}

impl Header {
    #[inline]
    pub(super) fn write(kind: Kind, body: usize) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(body as u32).to_le_bytes());
        bytes[4] = kind as u8;
        bytes
    }

    /// Reads a header, if all of it is there.
    #[inline]
    pub(super) fn read(bytes: &[u8], most: usize) -> Result<Option<Header>, Malformed> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let body = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == header[4]);
        let kind = kind.ok_or(Malformed::Kind(header[4]))?;
        if header[5..] != [0; 3] {
            return Err(Malformed::Header);
        }
        if body > most {
            return Err(Malformed::TooLong(body, most));
        }
        Ok(Some(Header { kind, body }))
    }
}

/// A verb as it stands in a doorbell's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WireVerb<'a> {
    pub(super) op: Op,
    pub(super) at: u64,
    /// The words that it moves.
    pub(super) words: usize,
    pub(super) operands: &'a [u8],
}

/// How many words of operands a verb sends, and how many words come back.
pub(super) fn words_sent(op: Op, words: usize) -> usize {
    match op {
        Op::Read | Op::Flush => 0,
        _ => words,
    }
}

pub(super) fn words_returned(op: Op, words: usize) -> usize {
    match op {
        Op::Read => words,
        Op::Write | Op::Flush => 0,
        Op::Cas | Op::Faa | Op::MaskedCas => 1,
    }
}

/// Appends a verb.
#[inline]
pub(super) fn put_verb(out: &mut Vec<u8>, op: Op, fenced: bool, at: u64, words: &[u64]) {
    let heading = op as u64 | u64::from(fenced) << 8 | (words.len() as u64) << 32;
    out.extend_from_slice(&heading.to_le_bytes());
    out.extend_from_slice(&at.to_le_bytes());
    put_words(out, &words[..words_sent(op, words.len())]);
}

#[inline]
pub(super) fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// The words in a slice of bytes whose length is a multiple of 8.
#[inline]
pub(super) fn words_in(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk))
}

/// Takes the next verb off a body, after checking it against the node's limits.
pub(super) fn take_verb<'a>(
    body: &mut &'a [u8],
    limits: &Limits,
) -> Result<Option<WireVerb<'a>>, Malformed> {
    if body.is_empty() {
        return Ok(None);
    }
    let Some((head, rest)) = body.split_first_chunk::<16>() else { return Err(Malformed::Short) };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let (heading, at) = (word(0), word(8));
    let op = op_of(heading as u8)?;
    if heading & 0xffff_fe00 != 0 {
        return Err(Malformed::Header);
    }
    let words = (heading >> 32) as usize;
    limits.check(op, at, words).map_err(Malformed::Verb)?;
    let bytes = words_sent(op, words) * 8;
    if rest.len() < bytes {
        return Err(Malformed::Short);
    }
    let (operands, behind) = rest.split_at(bytes);
    *body = behind;
    Ok(Some(WireVerb { op, at, words, operands }))
}

fn op_of(code: u8) -> Result<Op, Malformed> {
    [Op::Read, Op::Write, Op::Cas, Op::Faa, Op::MaskedCas, Op::Flush]
        .into_iter()
        .find(|op| *op as u8 == code)
        .ok_or(Malformed::Op(code))
}

/// Checks a whole doorbell before any of it is executed; returns how many bytes its answer has.
pub(super) fn check_doorbell(mut body: &[u8], limits: &Limits) -> Result<usize, Malformed> {
    let mut answer = 0;
    while let Some(verb) = take_verb(&mut body, limits)? {
        answer += words_returned(verb.op, verb.words) * 8;
        if answer > MAX_BODY {
            return Err(Malformed::TooLong(answer, MAX_BODY));
        }
    }
    Ok(answer)
}

/// Decodes whatever bytes there are, as a node with 1 MiB of memory would: must never panic.
#[doc(hidden)]
pub fn decode_for_fuzzing(bytes: &[u8]) -> usize {
    let limits = Limits { memory_bytes: 1 << 20 };
    let mut rest = bytes;
    let mut frames = 0;
    while let Ok(Some(header)) = Header::read(rest, MAX_BODY) {
        let Some(body) = rest.get(HEADER..HEADER + header.body) else { break };
        if header.kind == Kind::Doorbell {
            let _ = check_doorbell(body, &limits);
        } else {
            super::handshake::decode_for_fuzzing(body);
        }
        rest = &rest[HEADER + header.body..];
        frames += 1;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory_bytes: 4096 };

    fn doorbell() -> Vec<u8> {
        let mut body = Vec::new();
        put_verb(&mut body, Op::Write, false, 8, &[1, 2, 3]);
        put_verb(&mut body, Op::Read, true, 16, &[0; 5]);
        put_verb(&mut body, Op::Cas, false, 0, &[7, 8]);
        put_verb(&mut body, Op::Flush, false, 0, &[]);
        body
    }

    #[test]
    fn verbs_come_back_as_they_were_put() {
        let body = doorbell();
        let mut rest = body.as_slice();
        let mut verbs = Vec::new();
        while let Some(verb) = take_verb(&mut rest, &LIMITS).unwrap() {
            verbs.push((verb.op, verb.at, verb.words, words_in(verb.operands).collect::<Vec<_>>()));
        }
        let expected = [
            (Op::Write, 8, 3, vec![1, 2, 3]),
            (Op::Read, 16, 5, vec![]),
            (Op::Cas, 0, 2, vec![7, 8]),
            (Op::Flush, 0, 0, vec![]),
        ];
        assert_eq!(verbs, expected);
        assert_eq!(check_doorbell(&body, &LIMITS), Ok((5 + 1) * 8));
    }

    #[test]
    fn whatever_is_cut_off_or_changed_is_noticed_or_harmless() {
        let body = doorbell();
        for end in 0..body.len() {
            let _ = check_doorbell(&body[..end], &LIMITS);
        }
        for at in 0..body.len() {
            for flip in 0..8 {
                let mut changed = body.clone();
                changed[at] ^= 1 << flip;
                let _ = check_doorbell(&changed, &LIMITS);
            }
        }
        let mut outside = Vec::new();
        put_verb(&mut outside, Op::Write, false, 4096, &[1]);
        assert!(matches!(check_doorbell(&outside, &LIMITS), Err(Malformed::Verb(_))));
        let mut wrong_operands = Vec::new();
        put_verb(&mut wrong_operands, Op::Cas, false, 0, &[1, 2, 3]);
        assert!(check_doorbell(&wrong_operands, &LIMITS).is_err());
    }

    #[test]
    fn headers_are_checked() {
        assert_eq!(Header::read(&[1, 2, 3], 10), Ok(None));
        let fine = Header::write(Kind::Fence, 8);
        assert_eq!(Header::read(&fine, 10), Ok(Some(Header { kind: Kind::Fence, body: 8 })));
        assert_eq!(Header::read(&fine, 7), Err(Malformed::TooLong(8, 7)));
        assert_eq!(Header::read(&[0, 0, 0, 0, 99, 0, 0, 0], 10), Err(Malformed::Kind(99)));
        assert_eq!(Header::read(&[0, 0, 0, 0, 18, 0, 1, 0], 10), Err(Malformed::Header));
    }
}
