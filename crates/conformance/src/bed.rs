//! What a case needs of a backend.

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;
use farside_fabric::{ClientId, NodeId, Queue, Worker};

use crate::actor::Job;

/// A boxed future: cases are not a hot path.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Memory nodes of one backend, fresh and zeroed, and a way to start clients of them.
///
/// There are [`Bed::NODES`](NODES) nodes with [`NODE_BYTES`] bytes each. Every node offers the
/// [services](service).
pub trait Bed {
    /// The worker that the case itself runs on.
    fn worker(&self) -> &Worker;

    /// How often to repeat what is usually repeated so often: less on beds where time is dear.
    fn times(&self, usual: u64) -> u64 {
        usual
    }

    /// A queue of the case's own client to a node.
    fn connect(&self, node: NodeId) -> farside_fabric::Result<Queue>;

    /// The id of the case's own client.
    fn client(&self) -> ClientId;

    /// Starts an actor; under an id that was used before if `client` is given.
    fn spawn(&self, job: Job, client: Option<ClientId>) -> Result<Box<dyn Actor>>;

    /// Ends a memory node as if its machine had failed.
    fn kill_node(&self, node: NodeId) -> Result<()>;

    /// Starts a killed node again, with zeroed memory; `false` where the backend cannot.
    fn restart_node(&self, node: NodeId) -> Result<bool>;
}

/// How many memory nodes a bed has.
pub const NODES: u16 = 2;

/// How much memory each of them has.
pub const NODE_BYTES: u64 = 16 << 20;

/// The services that every node of a bed offers.
pub mod service {
    use farside_fabric::Services;

    /// Answers with its request.
    pub const ECHO: u16 = 1;
    /// Fails with its request as the reason.
    pub const FAIL: u16 = 2;
    /// Answers with the caller's client id.
    pub const WHO: u16 = 3;
    /// Nobody offers this one.
    pub const NONE: u16 = 99;

    /// Offers them.
    pub fn offer(services: &Services) {
        services.offer(ECHO, |_, request| Ok(request.to_vec()));
        services.offer(FAIL, |_, request| Err(String::from_utf8_lossy(request).into_owned()));
        services.offer(WHO, |client, _| Ok(client.0.to_le_bytes().to_vec()));
    }
}

/// How often a case looks whether an actor has ended.
pub const JOIN_PAUSE: std::time::Duration = std::time::Duration::from_micros(200);

/// A client that was started by a case.
pub trait Actor {
    /// Its id, by which it can be fenced.
    fn client(&self) -> ClientId;

    /// Its process, where it has one of its own.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Whether it is known to have ended, where that can be told without waiting.
    fn has_ended(&mut self) -> bool {
        false
    }

    /// Ends it without warning, as `kill -9` does, at whatever it is doing.
    fn kill(&mut self);

    /// Waits, as a task of `worker`, until it has ended.
    fn join<'a>(self: Box<Self>, worker: &'a Worker) -> Boxed<'a, Ended>;
}

/// How an actor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Its job is done.
    Finished,
    /// Its job failed, and this is why.
    Failed(String),
    /// It was ended from outside.
    Killed,
}

impl Ended {
    /// Whether it could not go on because it was fenced.
    pub fn by_fence(&self) -> bool {
        match self {
            Ended::Finished => false,
            Ended::Failed(why) => why.contains("fenced"),
            Ended::Killed => true,
        }
    }
}
