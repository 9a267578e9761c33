//! What a node does with the frames that come in.

use super::super::auth::{Side, nonce};
use super::super::client::Farewell;
use super::super::handshake::{Challenge, Hello, Welcome, is_proven, proof};
use super::super::stream::Outbox;
use super::super::wire::{
    Kind, Malformed, PROTOCOL_VERSION, check_doorbell, put_words, take_verb, words_in,
};
use super::NodeEvent;
use super::connection::{Connection, Stage};
use super::journaled::Journaled;
use super::serve::Serving;
use crate::link::Op;
use crate::memory::{WORD, load_words, store_words};
use crate::sync::Ordering;
use crate::{ClientId, FabricError, NodeId, Result};

impl<F: FnMut(NodeEvent)> Serving<'_, F> {
    pub(super) fn execute(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        body: &[u8],
    ) -> Result<(), Malformed> {
        match (&connection.stage, kind) {
            (Stage::Stranger, Kind::Hello) => self.challenge(connection, body),
            (Stage::Challenged { .. }, Kind::Proof) => self.welcome(connection, body),
            (Stage::Client(_), Kind::Doorbell) if self.node.door.is_some() => {
                let why = "this node's memory is reached through RDMA; connect with rdma:HOST:PORT";
                self.turn_away(connection, Farewell::Denied, why);
                Ok(())
            }
            (Stage::Client(_), Kind::Doorbell) => self.doorbell(connection, body),
            (Stage::Client(_), Kind::Queue) => {
                self.queue(connection, body);
                Ok(())
            }
            (Stage::Client(client), Kind::Call) => {
                let client = ClientId(*client);
                self.call(connection, client, body)
            }
            (Stage::Client(_), Kind::Fence) => {
                let victim: [u8; 8] = body.try_into().map_err(|_| Malformed::Short)?;
                self.fence(u64::from_le_bytes(victim));
                connection.outbox.frame(Kind::Done, |_| {});
                Ok(())
            }
            _ => Err(Malformed::Unexpected),
        }
    }

    /// Another way to the memory, if this node has one.
    fn queue(&mut self, connection: &mut Connection, body: &[u8]) {
        let answer = match &mut self.node.door {
            Some(door) => door.open(connection.number, body),
            None => Err("this node has no RDMA; start it with --fabric rdma".into()),
        };
        match answer {
            Ok(answer) => connection.outbox.frame(Kind::Done, |out| out.extend(answer)),
            Err(why) => {
                connection.outbox.frame(Kind::Failed, |out| {
                    out.extend_from_slice(&[0; 8]);
                    out.extend_from_slice(&why.as_bytes()[..why.len().min(300)]);
                });
                let why = format!("no queue for it: {why}");
                (self.tell)(NodeEvent::Refused { peer: connection.peer, why });
            }
        }
    }

    fn challenge(&mut self, connection: &mut Connection, body: &[u8]) -> Result<(), Malformed> {
        let hello = Hello::decode(body).ok_or(Malformed::Short)?;
        let secret = self.node.options.secret.is_some();
        let nonce = nonce().map_err(|_| Malformed::Unexpected)?;
        let challenge = Challenge { version: PROTOCOL_VERSION, secret, nonce };
        if hello.version == PROTOCOL_VERSION {
            connection.outbox.frame(Kind::Challenge, |out| out.extend(challenge.encode()));
            connection.stage = Stage::Challenged { hello, challenge };
        } else {
            let why = format!(
                "the client speaks version {} of the protocol, this node version {PROTOCOL_VERSION}; upgrade the older one",
                hello.version
            );
            self.turn_away(connection, Farewell::Denied, &why);
        }
        Ok(())
    }

    fn turn_away(&mut self, connection: &mut Connection, code: Farewell, why: &str) {
        connection.say_goodbye(code, why);
        (self.tell)(NodeEvent::Refused { peer: connection.peer, why: why.to_owned() });
    }

    fn welcome(&mut self, connection: &mut Connection, body: &[u8]) -> Result<(), Malformed> {
        let Stage::Challenged { hello, challenge } = &connection.stage else {
            return Err(Malformed::Unexpected);
        };
        let (hello, challenge) = (*hello, *challenge);
        let secret = self.node.options.secret.as_ref();
        let proven =
            secret.is_none_or(|secret| is_proven(secret, Side::Client, &hello, &challenge, body));
        if !proven {
            self.turn_away(connection, Farewell::Denied, "it does not know the secret");
            return Ok(());
        }
        if self.fenced.contains(&hello.client) {
            self.turn_away(connection, Farewell::Fenced, "it was fenced");
            return Ok(());
        }
        self.drop_connections(|other| {
            other.number == hello.replaces && other.client() == Some(hello.client)
        });
        let welcome = Welcome {
            connection: connection.number,
            incarnation: self.node.incarnation,
            memory_bytes: self.node.options.memory_bytes,
            durable: self.node.journal.is_some(),
            proof: proof(self.node.options.secret.as_ref(), Side::Node, &hello, &challenge),
        };
        connection.outbox.frame(Kind::Welcome, |out| out.extend(welcome.encode()));
        connection.stage = Stage::Client(hello.client);
        (self.tell)(NodeEvent::Connected { peer: connection.peer, client: hello.client });
        Ok(())
    }

    /// Closes connections, with whatever of theirs was not executed.
    fn drop_connections(&mut self, which: impl Fn(&Connection) -> bool) {
        for number in 0..self.connections.len() {
            if self.connections[number].as_ref().is_some_and(&which) {
                let mut connection = self.connections[number].take().expect("seen above");
                if connection.client().is_some_and(|client| self.fenced.contains(&client)) {
                    connection.say_goodbye(Farewell::Fenced, "it was fenced");
                    let _ = connection.outbox.drain(&mut connection.stream);
                }
                self.close(&connection, None);
            }
        }
    }

    fn fence(&mut self, victim: u64) {
        if self.fenced.insert(victim) {
            self.drop_connections(|other| other.client() == Some(victim));
            (self.tell)(NodeEvent::Fenced { client: victim });
        }
    }

    fn call(
        &mut self,
        connection: &mut Connection,
        client: ClientId,
        body: &[u8],
    ) -> Result<(), Malformed> {
        let (service, request) = body.split_first_chunk::<8>().ok_or(Malformed::Short)?;
        let service = u16::try_from(u64::from_le_bytes(*service)).map_err(|_| Malformed::Header)?;
        let failed = |outbox: &mut Outbox, code: u8, why: &str| {
            outbox.frame(Kind::Failed, |out| {
                out.extend_from_slice(&service.to_le_bytes());
                out.extend_from_slice(&[code, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&why.as_bytes()[..why.len().min(1024)]);
            });
        };
        match self.node.services.run(NodeId(0), client, service, request) {
            Ok(reply) => connection.outbox.frame(Kind::Done, |out| out.extend_from_slice(&reply)),
            Err(FabricError::NoService { .. }) => failed(&mut connection.outbox, 1, ""),
            Err(FabricError::Service { why, .. }) => failed(&mut connection.outbox, 2, &why),
            Err(other) => failed(&mut connection.outbox, 2, &other.to_string()),
        }
        Ok(())
    }

    /// Executes a doorbell, all of which is checked first.
    fn doorbell(&mut self, connection: &mut Connection, mut body: &[u8]) -> Result<(), Malformed> {
        check_doorbell(body, &self.limits)?;
        if !self.may_execute(connection, body) {
            return Ok(());
        }
        let mut journaled = Journaled::new(self.node.journal.as_mut());
        let begin = connection.outbox.end();
        let (memory, limits) = (self.node.memory.words(), &self.limits);
        let mut scratch = [0u64; 64];
        let mut result = Ok(());
        connection.outbox.frame(Kind::Done, |out| {
            loop {
                let verb = match take_verb(&mut body, limits) {
                    Ok(Some(verb)) => verb,
                    Ok(None) => break,
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                };
                let first = (verb.at / WORD) as usize;
                let mut operand = words_in(verb.operands);
                let mut next = || operand.next().expect("checked");
                match verb.op {
                    Op::Read => {
                        for chunk in memory[first..first + verb.words].chunks(scratch.len()) {
                            load_words(chunk, &mut scratch[..chunk.len()]);
                            put_words(out, &scratch[..chunk.len()]);
                        }
                    }
                    Op::Write => {
                        for chunk in memory[first..first + verb.words].chunks(scratch.len()) {
                            scratch[..chunk.len()].fill_with(&mut next);
                            store_words(&scratch[..chunk.len()], chunk);
                        }
                        journaled.note(memory, first, verb.words);
                    }
                    Op::Faa => {
                        let old = memory[first].fetch_add(next(), Ordering::Relaxed);
                        journaled.note(memory, first, 1);
                        put_words(out, &[old]);
                    }
                    Op::Cas | Op::MaskedCas => {
                        let (expected, desired) = (next(), next());
                        let masked = verb.op == Op::MaskedCas;
                        let (compare, swap) = if masked { (next(), next()) } else { (!0, !0) };
                        let old = memory[first].load(Ordering::Relaxed);
                        if (old ^ expected) & compare == 0 {
                            memory[first]
                                .store((old & !swap) | (desired & swap), Ordering::Relaxed);
                            journaled.note(memory, first, 1);
                        }
                        put_words(out, &[old]);
                    }
                    Op::Flush => journaled.flush(),
                }
            }
        });
        if let Some(position) = journaled.waits_for() {
            connection.hold(position, begin);
        }
        result
    }
}
