//! A round that was rung takes no more verbs, and is not rung twice.
use farside_fabric::{Queue, Worker};

fn more(worker: &Worker, queue: &Queue) {
    let mut round = worker.round();
    round.to(queue).read(0, 8);
    let _first = round.ring();
    round.to(queue).read(0, 8);
    let _second = round.ring();
}

fn main() {}
