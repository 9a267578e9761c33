//! A CAS yields one word, a READ yields words.
use farside_fabric::{Queue, Result, Worker};

async fn confused(worker: &Worker, queue: &Queue) -> Result<u64> {
    let mut round = worker.round();
    let lock = round.to(queue).cas(0, 0, 1);
    let done = round.ring().await?;
    Ok(done[lock][0])
}

fn main() {}
