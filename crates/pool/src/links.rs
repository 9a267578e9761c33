//! Queues to the nodes of a configuration, made when they are needed and mended when they break.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::runtime::{Asked, question};
use farside_fabric::{FabricError, Queue, Time, Worker, probe};

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

/// How much longer to wait after each attempt that failed.
const RETRY: Duration = Duration::from_micros(100);

/// How many times an answer is waited for, before what was sent counts as stuck: connecting anew takes a node's time, too, of which
/// one that is late has little.
const STUCK: u32 = 4;

/// The queues of one task or thread.
pub struct Links {
    worker: Worker,
    connect: Rc<dyn Connect>,
    links: RefCell<BTreeMap<u16, Rc<Link>>>,
    care: Care,
    /// A node has said that this process is fenced, or is not what it was.
    fenced: Rc<Cell<bool>>,
}

/// What is looked at when a node was connected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    Nothing,
    /// Which life of the node became a member.
    Membership,
    /// That it is the life that was found at first.
    Life,
}

/// The queue to one node.
#[derive(Default)]
struct Link {
    queue: RefCell<Option<Queue>>,
    /// Since when no answer came in time.
    late_since: Cell<Option<Time>>,
    /// What was sent may be stuck: to be connected anew.
    stuck: Cell<bool>,
    /// How often in a row it could not be connected.
    failures: Cell<u32>,
    /// Those who wait while a task connects; `None` while no task does.
    waiting: RefCell<Option<Vec<Asked<()>>>>,
}

impl Link {
    fn usable(&self) -> Option<Queue> {
        let queue = self.queue.borrow();
        queue.as_ref().filter(|queue| !queue.is_broken() && !self.stuck.get()).cloned()
    }
}

impl Links {
    /// None yet. A node that has begun another life is not taken for the one that is a member.
    pub fn new(worker: &Worker, connect: &Rc<dyn Connect>) -> Self {
        let (worker, connect) = (worker.clone(), Rc::clone(connect));
        let care = Care::Membership;
        Links { worker, connect, links: RefCell::default(), care, fenced: Rc::default() }
    }

    /// For one who looks himself which life of a node it is, or where nodes have one life only.
    pub fn careless(worker: &Worker, connect: &Rc<dyn Connect>) -> Self {
        Links { care: Care::Nothing, ..Self::new(worker, connect) }
    }

    /// For nodes that nobody puts out. One that begins again may have lost what it was not asked to keep, such as locks, and with
    /// it what this process relies on: that counts as a fence.
    pub fn wary(worker: &Worker, connect: &Rc<dyn Connect>) -> Self {
        Links { care: Care::Life, ..Self::new(worker, connect) }
    }

    /// A queue to a node, connected again if it was broken; `None` if that cannot be now. Who does not
    /// wait for it finds it made when he comes back.
    pub async fn to(&self, node: &Node) -> Option<Queue> {
        let link = Rc::clone(self.links.borrow_mut().entry(node.id).or_default());
        if let Some(queue) = link.usable() {
            return Some(queue);
        }
        let (asked, answer) = question();
        let begun = link.waiting.borrow().is_some();
        link.waiting.borrow_mut().get_or_insert_default().push(asked);
        if !begun {
            let mending = mend(
                self.worker.clone(),
                Rc::clone(&self.connect),
                Rc::clone(&link),
                node.clone(),
                (self.care, Rc::clone(&self.fenced)),
            );
            self.worker.spawn(mending).detach();
        }
        answer.await;
        link.usable()
    }

    /// What `future` yields, which uses the queue to `node`, or `None` after `span`. A queue that was late all the time for some such
    /// spans is connected anew before it is used again: whatever stops it would stop the next one, too.
    pub(crate) async fn within<T>(
        &self,
        span: Duration,
        node: &Node,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let start = self.worker.now();
        let late =
            self.links.borrow().get(&node.id).is_some_and(|link| link.late_since.get().is_some());
        // Others need to be looked at, too.
        let patience = if late { span / 4 } else { span };
        let done = within(&self.worker, patience, future).await;
        if let Some(link) = self.links.borrow().get(&node.id)
            && link.waiting.borrow().is_none()
        {
            let late_since = link.late_since.replace(None).unwrap_or(start);
            if done.is_none() {
                probe!("a node does not answer in time");
                link.late_since.set(Some(late_since));
                link.stuck.set(self.worker.now() - late_since >= STUCK * span);
            }
        }
        done
    }

    /// Whether a node could not be connected, the last time that this was tried.
    pub(crate) fn cannot_reach(&self, node: u16) -> bool {
        self.links.borrow().get(&node).is_some_and(|link| link.failures.get() > 0)
    }

    /// Whether a node has refused this process because it is fenced.
    pub fn is_fenced(&self) -> bool {
        self.fenced.get()
    }

    /// Forgets nodes that are no members any more, and does not wait for them: what is under way there fails at once.
    pub fn keep(&self, nodes: &[Node]) {
        let is_gone = |id: &u16| nodes.iter().all(|node| node.id != *id);
        let gone = self.links.borrow_mut().extract_if(.., |id, _| is_gone(id)).collect::<Vec<_>>();
        for (_, link) in gone {
            let Some(queue) = link.queue.borrow().clone() else { continue };
            probe!("a node that was put out is not waited for");
            let worker = self.worker.clone();
            // A connection comes to nothing.
            self.worker.spawn(async move { _ = queue.renewed(&worker).await }).detach();
        }
    }
}

/// Connects, or connects again, and tells those who wait.
async fn mend(
    worker: Worker,
    connect: Rc<dyn Connect>,
    link: Rc<Link>,
    node: Node,
    (care, fenced): (Care, Rc<Cell<bool>>),
) {
    let known = link.queue.borrow().clone();
    let queue = match known {
        // Another one, which nobody has before it is known into which life it leads.
        Some(queue) => queue.renewed(&worker).await,
        None => connect.connect(&worker, &node).await,
    };
    if let Err(FabricError::Fenced(_)) = queue {
        fenced.set(true);
    }
    let queue = queue.ok();
    if queue.is_none() {
        // Trying costs something on both sides: less and less often.
        link.failures.set((link.failures.get() + 1).min(50));
        worker.sleep(link.failures.get() * RETRY).await;
    }
    if let Some(queue) = queue {
        link.failures.set(0);
        let good = match care {
            Care::Nothing => true,
            Care::Membership => is_the_same(&worker, &queue, &node).await,
            Care::Life => {
                let same = queue.capabilities().life == node.incarnation;
                fenced.set(fenced.get() || !same);
                same
            }
        };
        link.stuck.set(false);
        link.late_since.set(None);
        // One that leads into another life of the node is good for nothing.
        *link.queue.borrow_mut() = good.then_some(queue);
    }
    let waiting = link.waiting.borrow_mut().take();
    waiting.into_iter().flatten().for_each(|asked| asked.answer(()));
}

/// Whether a node is in the life that is a member.
async fn is_the_same(worker: &Worker, queue: &Queue, node: &Node) -> bool {
    let mut round = worker.round();
    let line = round.to(queue).read(NODE, 16);
    let done = round.ring().await;
    done.is_ok_and(|done| done[line] == [MAGIC, node.incarnation])
}

/// Whether a node was formatted as a member of a pool.
pub async fn is_member(worker: &Worker, queue: &Queue) -> farside_fabric::Result<bool> {
    let mut round = worker.round();
    let line = round.to(queue).read(NODE, 8);
    Ok(round.ring().await?[line][0] == MAGIC)
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}
