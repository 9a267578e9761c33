//! The bytes of a READ cannot be used after the round's slot went back to the worker.
use farside_fabric::{Queue, Result, Worker};

async fn too_late(worker: &Worker, queue: &Queue) -> Result<u64> {
    let mut round = worker.round();
    let body = round.to(queue).read(0, 8);
    let done = round.ring().await?;
    let words = &done[body];
    drop(done);
    Ok(words[0])
}

fn main() {}
