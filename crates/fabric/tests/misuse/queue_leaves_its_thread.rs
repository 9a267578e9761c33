//! A queue belongs to the thread that posts on it.
use farside_fabric::Queue;

fn away(queue: Queue) {
    std::thread::spawn(move || queue.node());
}

fn main() {}
