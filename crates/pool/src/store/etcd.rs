//! etcd as the config store, through its JSON gateway.
//!
//! The configuration is one key, replaced by transactions that compare its revision; petitions are keys
//! beside it. All reads are linearizable, which is what etcd does unless told otherwise.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::threaded::{BlockingStore, Threaded};
use super::{ConfigStore, Pending, StoreError, Stored};

/// A pool's configuration in etcd. Clones are the same store.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    /// Reads do not wait behind writes, which wait for disks.
    reads: Threaded<Blocking>,
    writes: Threaded<Blocking>,
}

impl EtcdStore {
    /// `servers` as HOST:PORT, of which any that answers will do; `name` is the pool's. Each request may
    /// take as long as `timeout`.
    pub fn new(servers: Vec<String>, name: &str, timeout: Duration) -> Self {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build()
            .into();
        let prefix = format!("farside/{name}/");
        let blocking = Blocking { agent, servers, current: 0, prefix };
        EtcdStore { reads: Threaded::new(blocking.clone()), writes: Threaded::new(blocking) }
    }
}

#[derive(Clone, Debug)]
struct Blocking {
    agent: ureq::Agent,
    servers: Vec<String>,
    /// The server that answered last.
    current: usize,
    prefix: String,
}

fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

fn decode(value: &Value) -> Option<Vec<u8>> {
    BASE64.decode(value.as_str().unwrap_or_default()).ok()
}

/// etcd writes 64-bit numbers as strings.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).or(value.as_u64()).unwrap_or(0)
}

impl Blocking {
    fn config_key(&self) -> String {
        format!("{}config", self.prefix)
    }

    fn petition_key(&self, key: &str) -> String {
        format!("{}petitions/{key}", self.prefix)
    }

    /// Asks one server after the other, beginning with the one that answered last.
    fn ask(&mut self, what: &str, request: &Value) -> Result<Value, StoreError> {
        let mut reasons = Vec::new();
        for step in 0..self.servers.len() {
            let number = (self.current + step) % self.servers.len();
            let url = format!("http://{}/v3/kv/{what}", self.servers[number]);
            match self.ask_one(&url, request) {
                Ok(answer) => {
                    self.current = number;
                    return Ok(answer);
                }
                Err(StoreError::Unreachable(why)) => reasons.push(why),
                Err(foreign) => return Err(foreign),
            }
        }
        let why = format!("{}; is etcd running there?", reasons.join("; "));
        Err(StoreError::Unreachable(why))
    }

    fn ask_one(&self, url: &str, request: &Value) -> Result<Value, StoreError> {
        let unreachable =
            |why: &dyn std::fmt::Display| StoreError::Unreachable(format!("etcd at {url}: {why}"));
        let mut response = self
            .agent
            .post(url)
            .content_type("application/json")
            .send(request.to_string())
            .map_err(|e| unreachable(&e))?;
        let body = response.body_mut().read_to_string().map_err(|e| unreachable(&e))?;
        let status = response.status().as_u16();
        match status {
            200 => serde_json::from_str(&body).map_err(|_| {
                StoreError::Foreign(format!("{url} does not speak as etcd does; is this etcd?"))
            }),
            // No leader, or too slow: it may be done.
            500.. => Err(unreachable(&format!("status {status}: {body}"))),
            404 => Err(StoreError::Foreign(format!(
                "{url} does not exist; is this etcd 3.4 or later?"
            ))),
            _ => Err(StoreError::Foreign(format!("{url} answers {status}: {body}"))),
        }
    }
}

/// That a key has that revision; 0 if it does not exist.
fn compare_revision(key: &str, revision: u64) -> Value {
    let (key, revision) = (encode(key.as_bytes()), revision.to_string());
    json!({"target": "MOD", "result": "EQUAL", "key": key, "mod_revision": revision})
}

/// The first key behind all that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

impl BlockingStore for Blocking {
    fn read(&mut self, known: u64) -> Result<Stored, StoreError> {
        let (config, petitions) = (self.config_key(), self.petition_key(""));
        let range = |prefix: &str| {
            json!([{"request_range": {
                "key": encode(prefix.as_bytes()),
                "range_end": encode(&end_of(prefix)),
            }}])
        };
        // The configuration is sent only to who does not have it.
        let transaction = json!({
            "compare": [compare_revision(&config, known)],
            "success": range(&petitions),
            "failure": range(&self.prefix),
        });
        let answer = self.ask("txn", &transaction)?;
        let unchanged = answer["succeeded"].as_bool().unwrap_or(false);
        let mut stored = Stored::default();
        if unchanged {
            stored.revision = known;
        }
        let found = &answer["responses"][0]["response_range"]["kvs"];
        for kv in found.as_array().into_iter().flatten() {
            let key = decode(&kv["key"]).and_then(|key| String::from_utf8(key).ok());
            let (Some(key), Some(value)) = (key, decode(&kv["value"])) else { continue };
            if key == config {
                stored.revision = number(&kv["mod_revision"]);
                stored.config = Some(value);
            } else if let Some(name) = key.strip_prefix(&petitions) {
                stored.petitions.push((name.to_owned(), value));
            }
        }
        Ok(stored)
    }

    fn swap(&mut self, revision: u64, config: &[u8]) -> Result<bool, StoreError> {
        let key = encode(self.config_key().as_bytes());
        let transaction = json!({
            "compare": [compare_revision(&self.config_key(), revision)],
            "success": [{"request_put": {"key": key, "value": encode(config)}}],
        });
        let answer = self.ask("txn", &transaction)?;
        Ok(answer["succeeded"].as_bool().unwrap_or(false))
    }

    fn petition(&mut self, key: &str, what: &[u8]) -> Result<(), StoreError> {
        let key = encode(self.petition_key(key).as_bytes());
        self.ask("put", &json!({"key": key, "value": encode(what)})).map(drop)
    }

    fn dismiss(&mut self, key: &str) -> Result<(), StoreError> {
        let key = encode(self.petition_key(key).as_bytes());
        self.ask("deleterange", &json!({"key": key})).map(drop)
    }
}

impl ConfigStore for EtcdStore {
    fn read(&self, known: u64) -> Pending<'_, Stored> {
        self.reads.read(known)
    }

    fn swap<'a>(&'a self, revision: u64, config: &'a [u8]) -> Pending<'a, bool> {
        self.writes.swap(revision, config)
    }

    fn petition<'a>(&'a self, key: &'a str, what: &'a [u8]) -> Pending<'a, ()> {
        self.writes.petition(key, what)
    }

    fn dismiss<'a>(&'a self, key: &'a str) -> Pending<'a, ()> {
        self.writes.dismiss(key)
    }
}
