//! The runtime: tasks, timers, other threads, fairness.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use farside_fabric::runtime::run_threads;
use farside_fabric::{FabricError, NodeId, Result, Worker, local};

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let worker = Worker::new(1);
    let order = Rc::new(Cell::new(Vec::new()));
    worker.block_on(async {
        let tasks: Vec<_> = [30u64, 10, 20]
            .into_iter()
            .map(|span| {
                let (me, order) = (worker.clone(), Rc::clone(&order));
                worker.spawn(async move {
                    me.sleep(Duration::from_millis(span)).await;
                    let mut so_far = order.take();
                    so_far.push(span);
                    order.set(so_far);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(order.take(), [10, 20, 30]);
}

#[test]
fn a_sleeping_thread_uses_no_processor() {
    let worker = Worker::new(1);
    let before = thread_time();
    let start = Instant::now();
    worker.block_on(worker.sleep(Duration::from_millis(300)));
    assert!(start.elapsed() >= Duration::from_millis(300));
    let used = thread_time() - before;
    assert!(used < Duration::from_millis(30), "{used:?} of processor time");
}

fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[test]
fn another_thread_can_wake_a_task() {
    let worker = Worker::new(1);
    let (send, receive) = mpsc::channel();
    let helper = std::thread::spawn(move || {
        let waker: std::task::Waker = receive.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    let woken = worker.block_on(async {
        worker
            .spawn(async move {
                let mut polls = 0;
                std::future::poll_fn(move |cx| {
                    polls += 1;
                    if polls == 1 {
                        send.send(cx.waker().clone()).unwrap();
                        return Poll::Pending;
                    }
                    Poll::Ready(polls)
                })
                .await
            })
            .await
    });
    helper.join().unwrap();
    assert_eq!(woken, 2);
}

/// A task whose rounds complete at once must not keep the thread: here the other task is the only
/// one who can give it what it waits for.
#[test]
fn a_spinning_task_does_not_starve_the_others() -> Result<()> {
    let cluster = local::Cluster::new(1, 4096)?;
    let worker = Worker::new(1);
    let queue = cluster.client().connect(&worker, NodeId(0))?;
    worker.block_on(async {
        let spinner = worker.spawn({
            let (me, queue) = (worker.clone(), queue.clone());
            async move {
                loop {
                    let mut round = me.round();
                    let flag = round.to(&queue).read(0, 8);
                    if round.ring().await?[flag][0] == 1 {
                        return Ok::<_, FabricError>(());
                    }
                }
            }
        });
        worker.yield_now().await;
        let mut round = worker.round();
        round.to(&queue).write(0, &[1]);
        round.ring().await?;
        spinner.await
    })
}

#[test]
fn a_dropped_task_is_cancelled() {
    let worker = Worker::new(1);
    let alive = Rc::new(());
    let held = Rc::clone(&alive);
    let task = worker.spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    worker.block_on(worker.yield_now());
    assert_eq!(Rc::strong_count(&alive), 2);
    drop(task);
    worker.block_on(worker.yield_now());
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn each_thread_has_its_own_worker_and_random_numbers() {
    let numbers = run_threads(3, 7, |number, worker| (number, worker.random()));
    let again = run_threads(3, 7, |number, worker| (number, worker.random()));
    assert_eq!(numbers, again);
    assert_eq!(numbers.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(numbers[0].1 != numbers[1].1 && numbers[1].1 != numbers[2].1);
}
