//! Queues to the nodes of a configuration, made when they are needed and mended when they break.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Queue, Worker, probe};

use crate::config::Node;
use crate::control::{MAGIC, NODE};
use crate::patience::within;

/// A future of a connection.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = farside_fabric::Result<Queue>> + 'a>>;

/// How a process reaches nodes: one of the fabric's backends.
pub trait Connect {
    /// A queue to a node. Other tasks of the thread go on meanwhile.
    fn connect<'a>(&'a self, worker: &'a Worker, node: &'a Node) -> Connecting<'a>;
}

/// The queues of one task or thread.
pub struct Links {
    worker: Worker,
    connect: Rc<dyn Connect>,
    queues: RefCell<BTreeMap<u16, Queue>>,
    /// Nodes that did not answer in time: what was sent there may be stuck.
    stuck: RefCell<BTreeSet<u16>>,
    /// Whether to ask a node which of its lives it is in.
    careful: bool,
}

impl Links {
    /// None yet. A node that has begun another life is not taken for the one that is a member.
    pub fn new(worker: &Worker, connect: &Rc<dyn Connect>) -> Self {
        Links {
            worker: worker.clone(),
            connect: Rc::clone(connect),
            queues: RefCell::default(),
            stuck: RefCell::default(),
            careful: true,
        }
    }

    /// For one who looks himself which life of a node it is.
    pub(crate) fn careless(worker: &Worker, connect: &Rc<dyn Connect>) -> Self {
        Links { careful: false, ..Self::new(worker, connect) }
    }

    /// A queue to a node, connected again if it was broken; `None` if that cannot be now.
    pub async fn to(&self, node: &Node) -> Option<Queue> {
        let known = self.queues.borrow().get(&node.id).cloned();
        let queue = match known {
            Some(queue) if !queue.is_broken() && !self.is_stuck(node) => return Some(queue),
            Some(queue) => queue.reconnect().await.ok().map(|()| queue),
            None => self.connect.connect(&self.worker, node).await.ok(),
        }?;
        self.stuck.borrow_mut().remove(&node.id);
        if self.careful && !self.is_the_same(&queue, node).await {
            return None;
        }
        self.queues.borrow_mut().insert(node.id, queue.clone());
        Some(queue)
    }

    fn is_stuck(&self, node: &Node) -> bool {
        self.stuck.borrow().contains(&node.id)
    }

    /// What `future` yields, which uses the queue to `node`, or `None` after `span`. Then the queue is
    /// connected anew before it is used again: whatever stops it would stop the next one, too.
    pub(crate) async fn within<T>(
        &self,
        span: Duration,
        node: &Node,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let done = within(&self.worker, span, future).await;
        if done.is_none() {
            probe!("a node does not answer in time");
            self.stuck.borrow_mut().insert(node.id);
        }
        done
    }

    async fn is_the_same(&self, queue: &Queue, node: &Node) -> bool {
        let mut round = self.worker.round();
        let line = round.to(queue).read(NODE, 16);
        let done = round.ring().await;
        done.is_ok_and(|done| done[line] == [MAGIC, node.incarnation])
    }

    /// Forgets nodes that are no members any more.
    pub fn keep(&self, nodes: &[Node]) {
        self.queues.borrow_mut().retain(|id, _| nodes.iter().any(|node| node.id == *id));
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("queues", &self.queues).finish_non_exhaustive()
    }
}
