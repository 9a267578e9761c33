//! The bytes of a READ cannot be used before its completion.
use farside_fabric::{Queue, Worker};

async fn too_early(worker: &Worker, queue: &Queue) -> u64 {
    let mut round = worker.round();
    let body = round.to(queue).read(0, 8);
    let ringing = round.ring();
    ringing[body][0]
}

fn main() {}
