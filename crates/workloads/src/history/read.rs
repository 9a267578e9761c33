//! Reading histories, and saying what is wrong with those that are none.

use std::collections::HashSet;
use std::fmt;
use std::io::{BufRead, Read};

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::{Attempt, Step, Value};

/// What is wrong with a history, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Flaw {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

/// A history, read line by line.
pub struct Lines<R> {
    input: R,
    line: u64,
    text: Vec<u8>,
    ids: HashSet<u64>,
}

/// No line of a history is longer.
const MAX_LINE: u64 = 256 << 20;

impl<R: BufRead> Lines<R> {
    /// Reads from there.
    pub fn new(input: R) -> Self {
        Lines { input, line: 0, text: Vec::new(), ids: HashSet::new() }
    }

    fn flaw(&self, why: impl Into<String>) -> Flaw {
        Flaw { line: self.line, why: why.into() }
    }

    /// Hands every attempt to `visit`, with its line.
    pub fn each(
        mut self,
        mut visit: impl FnMut(u64, Attempt<'_>) -> Result<(), String>,
    ) -> Result<u64, Flaw> {
        loop {
            self.line += 1;
            self.text.clear();
            let mut bounded = (&mut self.input).take(MAX_LINE + 1);
            let read = bounded.read_until(b'\n', &mut self.text);
            let bytes = read.map_err(|e| self.flaw(format!("could not be read: {e}")))?;
            if bytes == 0 {
                break;
            }
            if bytes as u64 > MAX_LINE {
                return Err(self.flaw("is longer than any attempt"));
            }
            if self.text[0] != b'{' {
                return Err(self.flaw("is not an attempt of a history: expected an object"));
            }
            let attempt: Attempt<'_> = serde_json::from_slice(&self.text).map_err(|error| {
                let whole = self.text.ends_with(b"\n");
                self.flaw(if error.is_eof() && !whole {
                    "ends in the middle: the file was cut off".to_owned()
                } else {
                    format!("is not an attempt of a history: {error}")
                })
            })?;
            if let Err(why) = sound(&attempt) {
                return Err(self.flaw(why));
            }
            let id = attempt.id;
            visit(self.line, attempt).map_err(|why| self.flaw(why))?;
            if !self.ids.insert(id) {
                return Err(self.flaw(format!("another attempt has the id {id}, too")));
            }
        }
        match self.ids.len() {
            0 => Err(Flaw { line: 1, why: "there is no attempt in this history".into() }),
            attempts => Ok(attempts as u64),
        }
    }
}

/// What a schema cannot say.
fn sound(attempt: &Attempt<'_>) -> Result<(), String> {
    if attempt.end < attempt.begin {
        return Err(format!("attempt {} ends before it begins", attempt.id));
    }
    for op in &attempt.ops {
        let fits = match op.f {
            Step::R => true,
            Step::Append => matches!(op.v, Value::One(_)),
            Step::W => !matches!(op.v, Value::Many(_)),
        };
        if !fits {
            return Err(format!("key {:?}: one value is written at a time", op.k));
        }
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, a list of them, or null")
            }

            fn visit_unit<E: Error>(self) -> Result<Value, E> {
                Ok(Value::Nothing)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
                Ok(Value::One(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
                let number = i64::try_from(number);
                number.map(Value::One).map_err(|_| E::custom("a number that is too large"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = seq.next_element()? {
                    list.push(element);
                }
                Ok(Value::Many(list))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<u64, Flaw> {
        Lines::new(text.as_bytes()).each(|_, _| Ok(()))
    }

    const GOOD: &str = r#"{"id":1,"proc":3,"begin":1,"end":4,"outcome":"committed","ops":[{"f":"r","k":"12","v":[1,4]},{"f":"append","k":"12","v":9}]}"#;

    #[test]
    fn what_is_no_history_is_told_with_its_line() {
        let two = format!("{GOOD}\n{}\n", GOOD.replace("\"id\":1", "\"id\":2"));
        assert_eq!(read(&two), Ok(2));
        let why = |text: &str| {
            let flaw = read(text).unwrap_err();
            format!("{flaw}")
        };
        assert_eq!(why(""), "line 1: there is no attempt in this history");
        assert_eq!(why(&two[..two.len() - 9]), "line 2: ends in the middle: the file was cut off");
        assert!(
            why(&format!("{GOOD}\n{GOOD}\n")).starts_with("line 2: another attempt has the id")
        );
        assert!(why("hello\n").starts_with("line 1: is not an attempt"));
        assert!(why(&format!("{GOOD}\n{{\"a\":1}}\n")).contains("line 2: is not an attempt"));
        assert!(why(&GOOD.replace("\"end\":4", "\"end\":0")).contains("ends before it begins"));
        assert!(why(&GOOD.replace("committed", "perhaps")).contains("is not an attempt"));
        assert!(why(&GOOD.replace("\"v\":9", "\"v\":[9]")).contains("one value is written"));
        assert!(why(&GOOD.replace(",\"v\":9", "")).contains("missing field `v`"));
        assert!(why("[1,1,1,2,\"committed\",[]]\n").contains("expected an object"));
        assert!(why(&GOOD.replace("[1,4]", "[1,4.5]")).contains("is not an attempt"));
        assert!(why(&GOOD.replace("[1,4]", "18446744073709551615")).contains("too large"));
    }
}
