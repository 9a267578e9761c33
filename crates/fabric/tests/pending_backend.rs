//! Rounds over a backend that completes later, in any order, or with errors: what `tcp`, `rdma` and
//! the simulator do. The backend here executes doorbells on a plain vector, when it is told to.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use farside_fabric::link::{Bell, Completer, Control, Link, Op, Posted, Token};
use farside_fabric::{
    Capabilities, ClientId, FabricError, NodeId, Persistence, Queue, Result, Worker, local,
};

#[derive(Default)]
struct Wire {
    posted: RefCell<Vec<Token>>,
    memory: RefCell<Vec<u64>>,
    /// Completions are delivered in reverse order.
    reversed: Cell<bool>,
    failing: Cell<bool>,
    /// Completions are delivered only when this is set.
    open: Cell<bool>,
}

struct LaterLink {
    node: NodeId,
    wire: Rc<Wire>,
}

/// What a local link can do; the struct cannot be made outside of the fabric.
fn capabilities() -> Capabilities {
    let cluster = local::Cluster::new(1, 8).unwrap();
    let queue = cluster.client().connect(&Worker::new(0), NodeId(0)).unwrap();
    assert_eq!(queue.capabilities().persistence, Persistence::Volatile);
    queue.capabilities()
}

// SAFETY: nothing of the worker is used while a doorbell is lent.
unsafe impl Link for LaterLink {
    fn node(&self) -> NodeId {
        self.node
    }

    fn memory_bytes(&self) -> u64 {
        self.wire.memory.borrow().len() as u64 * 8
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn post(&self, bell: Bell<'_>) -> Posted {
        self.wire.posted.borrow_mut().push(bell.token());
        Posted::Pending
    }

    fn busy(&self) -> bool {
        !self.wire.posted.borrow().is_empty()
    }

    fn poll(&self, completer: &Completer<'_>) -> bool {
        if !self.wire.open.get() {
            return false;
        }
        let mut tokens = self.wire.posted.take();
        if self.wire.reversed.get() {
            tokens.reverse();
        }
        for token in &tokens {
            if self.wire.failing.get() {
                completer.complete(*token, Err(FabricError::NodeGone(self.node)));
                continue;
            }
            completer.with_bell(*token, |mut bell| {
                let mut memory = self.wire.memory.borrow_mut();
                let done: Result<()> = bell.try_each(|verb, words| {
                    let at = verb.at as usize / 8;
                    match verb.op {
                        Op::Read => words.copy_from_slice(&memory[at..at + words.len()]),
                        Op::Write => memory[at..at + words.len()].copy_from_slice(words),
                        _ => unreachable!("this test has no other verbs"),
                    }
                    Ok(())
                });
                done.unwrap();
            });
            completer.complete(*token, Ok(()));
        }
        !tokens.is_empty()
    }

    fn call<'a>(&'a self, _: u16, _: &'a [u8]) -> Control<'a, Vec<u8>> {
        unreachable!("this test makes no calls")
    }

    fn fence(&self, _: ClientId) -> Control<'_, ()> {
        unreachable!("this test fences nobody")
    }

    fn reconnect(&self) -> Control<'_, ()> {
        self.wire.failing.set(false);
        Box::pin(async { Ok(()) })
    }
}

fn later(worker: &Worker, node: u16) -> (Queue, Rc<Wire>) {
    let wire = Rc::new(Wire::default());
    wire.memory.replace(vec![0; 4096]);
    wire.open.set(true);
    let link = LaterLink { node: NodeId(node), wire: Rc::clone(&wire) };
    (worker.queue(Box::new(link)), wire)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn completions_wake_the_tasks_that_wait_for_them() -> Result<()> {
    let worker = Worker::new(1);
    let (queue, wire) = later(&worker, 0);
    wire.reversed.set(true);
    worker.block_on(async {
        let tasks: Vec<_> = (0..100u64)
            .map(|number| {
                let (me, queue) = (worker.clone(), queue.clone());
                worker.spawn(async move {
                    for i in 0..10 {
                        let mut round = me.round();
                        round.to(&queue).write(number * 8, &[i]);
                        let back = round.to(&queue).read(number * 8, 8);
                        assert_eq!(round.ring().await?[back], [i]);
                    }
                    Ok::<_, FabricError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok(())
    })
}

#[test]
fn a_round_waits_for_all_its_nodes() -> Result<()> {
    let worker = Worker::new(1);
    let (first, _) = later(&worker, 0);
    let (second, slow) = later(&worker, 1);
    slow.open.set(false);
    let mut round = worker.round();
    let a = round.to(&first).read(0, 8);
    let b = round.to(&second).read(0, 8);
    let mut ringing = round.ring();
    worker.poll_links();
    assert!(poll_once(&mut ringing).is_pending(), "one node has not answered yet");
    slow.open.set(true);
    worker.poll_links();
    let Poll::Ready(done) = poll_once(&mut ringing) else { panic!("both have answered") };
    let done = done?;
    assert_eq!((&done[a], &done[b]), (&[0][..], &[0][..]));
    Ok(())
}

#[test]
fn a_round_dropped_in_flight_keeps_its_slot_and_queue_until_it_lands() {
    let worker = Worker::new(1);
    let (queue, wire) = later(&worker, 0);
    let (other, other_wire) = later(&worker, 1);
    wire.open.set(false);
    let mut round = worker.round();
    round.to(&queue).write(0, &[7; 100]);
    drop(round.ring());
    // The next round must not get the buffer that the backend still reads from.
    let mut round = worker.round();
    round.to(&other).write(1024, &[9; 100]);
    other_wire.open.set(false);
    let mut passive = round.post();
    assert_eq!(passive.acknowledged(), None);
    drop(queue);
    wire.open.set(true);
    other_wire.open.set(true);
    worker.poll_links();
    assert_eq!(wire.memory.borrow()[..100], [7; 100]);
    assert_eq!(other_wire.memory.borrow()[128..228], [9; 100]);
    assert_eq!(passive.acknowledged(), Some(Ok(())));
    drop(passive);
    assert_eq!(Rc::strong_count(&wire), 1, "the dropped queue lived on until its round had landed");
}

#[test]
fn an_error_breaks_the_queue_until_it_is_reconnected() -> Result<()> {
    let worker = Worker::new(1);
    let (queue, wire) = later(&worker, 3);
    let (healthy, _) = later(&worker, 4);
    wire.failing.set(true);
    worker.block_on(async {
        let mut round = worker.round();
        let lost = round.to(&queue).read(0, 8);
        let found = round.to(&healthy).read(0, 8);
        let outcomes = round.ring().outcomes().await;
        assert_eq!(outcomes.words(lost), Err(FabricError::NodeGone(NodeId(3))));
        assert_eq!(outcomes.words(found), Ok(&[0][..]));
        drop(outcomes);

        let mut round = worker.round();
        round.to(&queue).read(0, 8);
        let error = round.ring().await.err();
        assert_eq!(error, Some(FabricError::Broken(NodeId(3))));
        assert!(wire.posted.borrow().is_empty(), "a broken queue posts nothing");

        queue.reconnect().await?;
        let mut round = worker.round();
        round.to(&queue).read(0, 8);
        round.ring().await?;
        Ok(())
    })
}

#[test]
#[should_panic(expected = "a ticket of another round")]
fn a_ticket_of_another_round_is_caught() {
    let worker = Worker::new(1);
    let (queue, _) = later(&worker, 0);
    worker.block_on(async {
        let mut first = worker.round();
        let ticket = first.to(&queue).read(0, 8);
        let mut second = worker.round();
        second.to(&queue).read(0, 8);
        let done = second.ring().await.unwrap();
        let _ = done[ticket];
    });
}
