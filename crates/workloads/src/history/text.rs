//! From the words of a recorder to lines.

use super::write::{UNTOLD, tag};

/// Adds the lines of whole attempts.
pub(super) fn put_words(text: &mut Vec<u8>, mut words: &[u64]) {
    let mut steps = 0;
    while let Some((first, rest)) = words.split_first() {
        let (kind, present) = (first & 0xff, first >> 8 & 1 == 1);
        let table = (first >> 16) as u16;
        if kind == tag::END {
            text.extend_from_slice(if steps == 0 { br#"{"ops":["# } else { b"" });
            put_end(text, *first, rest);
            (steps, words) = (0, &rest[6..]);
            continue;
        }
        text.extend_from_slice(if steps == 0 { br#"{"ops":[{"f":""# } else { br#",{"f":""# });
        steps += 1;
        let used = match kind {
            tag::LIST => {
                put_key(text, b"r", None, rest[0]);
                let length = (first >> 8) as usize;
                put_list(text, &rest[1..=length]);
                1 + length
            }
            tag::APPEND => {
                put_key(text, b"append", None, rest[0]);
                put_number(text, rest[1]);
                2
            }
            tag::READ => {
                put_key(text, b"r", Some(table), rest[0]);
                put_value(text, present.then_some(rest[1]));
                if rest[2] != UNTOLD {
                    text.extend_from_slice(br#","ver":"#);
                    put_number(text, rest[2]);
                }
                3
            }
            _ => {
                put_key(text, b"w", Some(table), rest[0]);
                put_value(text, present.then_some(rest[1]));
                2
            }
        };
        text.push(b'}');
        words = &rest[used..];
    }
}

fn put_end(text: &mut Vec<u8>, first: u64, rest: &[u64]) {
    for (name, number) in [
        (&br#"],"id":"#[..], rest[0]),
        (br#","proc":"#, rest[1]),
        (br#","begin":"#, rest[2]),
        (br#","end":"#, rest[3]),
    ] {
        text.extend_from_slice(name);
        put_number(text, number);
    }
    text.extend_from_slice(match first >> 8 & 0xff {
        0 => br#","outcome":"committed""#,
        1 => br#","outcome":"aborted""#,
        _ => br#","outcome":"unknown""#,
    });
    if first >> 16 & 1 == 1 {
        text.extend_from_slice(br#","commit_ts":"#);
        put_number(text, rest[4]);
    }
    if first >> 17 & 1 == 1 {
        text.extend_from_slice(br#","read_ts":"#);
        put_number(text, rest[5]);
    }
    text.extend_from_slice(b"}\n");
}

fn put_key(text: &mut Vec<u8>, f: &[u8], table: Option<u16>, key: u64) {
    text.extend_from_slice(f);
    text.extend_from_slice(br#"","k":""#);
    if let Some(table) = table {
        put_number(text, u64::from(table));
        text.push(b'.');
    }
    put_number(text, key);
    text.extend_from_slice(br#"","v":"#);
}

fn put_list(text: &mut Vec<u8>, list: &[u64]) {
    text.push(b'[');
    for (number, element) in list.iter().enumerate() {
        if number > 0 {
            text.push(b',');
        }
        put_number(text, *element);
    }
    text.push(b']');
}

fn put_value(text: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => put_number(text, value),
        None => text.extend_from_slice(b"null"),
    }
}

/// Two digits at a time: numbers are most of what a history costs.
fn put_number(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[number as usize]);
    } else {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    text.extend_from_slice(&digits[at..]);
}

const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::super::{Ended, Lines, Name, Op, Outcome, Recorder, Sink, Step, Value};
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are() {
        for number in [0, 1, 9, 10, 11, 99, 100, 101, 12_345, 1_000_000, u64::MAX, u64::MAX - 1] {
            let mut text = Vec::new();
            put_number(&mut text, number);
            assert_eq!(String::from_utf8(text).unwrap(), number.to_string());
        }
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        let path = std::env::temp_dir().join(format!("farside-history-{}", std::process::id()));
        let sink = Sink::to_file(&path).unwrap();
        let mut log = sink.recorder();
        let ended =
            |id, outcome, commit_ts| Ended { id, proc: 3, begin: 5, end: 9, outcome, commit_ts };
        log.read_list(12, &[1, 4]);
        log.append(12, 9);
        log.end(&ended(1, Outcome::Committed, Some(77)));
        log.end(&ended(2, Outcome::Unknown, None));
        log.read(Name { table: 4, key: 8 }, Some(6), 5);
        log.read(Name { table: 4, key: 9 }, None, UNTOLD);
        log.reads_at(55);
        log.write(Name { table: 4, key: 8 }, None);
        log.end(&ended(3, Outcome::Aborted, None));
        log.append(1, 1);
        drop(log);
        Recorder::deaf().end(&ended(4, Outcome::Aborted, None));
        sink.finish().unwrap();
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut seen = Vec::new();
        let count = Lines::new(&file[..]).each(|line, attempt| {
            let ops = attempt.ops.len();
            seen.push((line, attempt.id, attempt.outcome, attempt.commit_ts, ops));
            assert_eq!(attempt.read_ts, (line == 3).then_some(55));
            if line == 3 {
                let read = |k: &'static str, v, ver| Op { f: Step::R, k: k.into(), v, ver };
                assert_eq!(attempt.ops[0], read("4.8", Value::One(6), Some(5)));
                assert_eq!(attempt.ops[1], read("4.9", Value::Nothing, None));
                assert_eq!((attempt.ops[2].f, &attempt.ops[2].v), (Step::W, &Value::Nothing));
            }
            Ok(())
        });
        assert_eq!(count, Ok(3), "what did not end is not there");
        assert_eq!(seen[0], (1, 1, Outcome::Committed, Some(77), 2));
        assert_eq!(seen[1], (2, 2, Outcome::Unknown, None, 0));
        assert_eq!(seen[2], (3, 3, Outcome::Aborted, None, 3));
    }
}
