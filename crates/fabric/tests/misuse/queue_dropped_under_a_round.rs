//! A queue outlives the rounds that use it.
use farside_fabric::{Queue, Worker};

fn dangling(worker: &Worker, queue: Queue) {
    let mut round = worker.round();
    round.to(&queue).read(0, 8);
    drop(queue);
    let _ringing = round.ring();
}

fn main() {}
