//! How fast a journal is on a disk, beside a bare program that writes the same bytes:
//! `cargo run --release -p farside-journal --example rates -- DIR`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_journal::{Directory, Journal, Options, open};

/// Words of a change: about those of a small transaction.
const CHANGE: usize = 30;

const SPAN: Duration = Duration::from_secs(2);

fn memory(words: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..words).map(|_| AtomicU64::new(0)).collect())
}

fn start(path: &Path, words: &Arc<Vec<AtomicU64>>, options: &Options) -> Journal {
    let disk = Arc::new(Directory::open(path).expect("a directory"));
    open(disk, words.clone(), options, || 0, || {}).expect("a journal").0
}

/// Changes per second, with so many that wait for their sync at any time.
fn rate(journal: &mut Journal, words: &[AtomicU64], outstanding: usize, span: Duration) -> f64 {
    let (begin, mut done, mut waiting) = (Instant::now(), 0u64, std::collections::VecDeque::new());
    while begin.elapsed() < span {
        while waiting.len() < outstanding {
            let at = (done + waiting.len() as u64) * 7919 % (words.len() - CHANGE) as u64;
            let change = [done | 1; CHANGE];
            words[at as usize..]
                .iter()
                .zip(&change)
                .for_each(|(w, v)| w.store(*v, Ordering::Relaxed));
            journal.append(at, &change);
            waiting.push_back(journal.position());
        }
        journal.sync();
        while waiting.front().is_some_and(|first| *first > journal.durable()) {
            std::hint::spin_loop();
            std::thread::yield_now();
            journal.tick();
        }
        while waiting.front().is_some_and(|first| *first <= journal.durable()) {
            waiting.pop_front();
            done += 1;
        }
    }
    done as f64 / begin.elapsed().as_secs_f64()
}

/// The same bytes, so many changes at a time, by a program that does nothing else.
fn bare(path: &Path, at_once: usize) -> f64 {
    let file = File::create(path).expect("a file");
    let bytes = vec![7; at_once * (CHANGE + 1) * 8];
    let (begin, mut done, mut at) = (Instant::now(), 0, 0);
    while begin.elapsed() < SPAN {
        file.write_all_at(&bytes, at).expect("room");
        file.sync_data().expect("a disk that works");
        at += bytes.len() as u64;
        done += at_once;
    }
    done as f64 / begin.elapsed().as_secs_f64()
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory on the disk");
    let dir = Path::new(&dir).join(format!("journal-rates-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let words = memory(8 << 20);
    let mut journal = start(&dir.join("rates"), &words, &Options::default());
    let one = rate(&mut journal, &words, 1, SPAN);
    let many = rate(&mut journal, &words, 64, SPAN);
    let most = bare(&dir.join("bare"), 64);
    println!(
        "flushes per second, measured: {one:.0} one at a time, {many:.0} with 64 outstanding ({:.1} times)",
        many / one
    );
    println!(
        "a bare program that writes 64 at a time: {most:.0}; ours is {:.2} of that",
        many / most
    );
    drop(journal);

    // Checkpoints of 512 MiB, again and again, beside none.
    let words = memory(64 << 20);
    words.iter().enumerate().for_each(|(at, word)| word.store(at as u64 + 1, Ordering::Relaxed));
    let span = Duration::from_secs(4);
    let compare = |name: &str, checkpoint_bytes: u64| {
        let options = Options { checkpoint_bytes, ..Options::default() };
        let mut journal = start(&dir.join(name), &words, &options);
        rate(&mut journal, &words, 64, span)
    };
    let calm = compare("calm", u64::MAX);
    let busy = compare("busy", 1 << 20);
    println!("with a checkpoint under way all the time: {:.2} of the rate without", busy / calm);

    // A gigabyte comes back.
    let (path, words) = (dir.join("restart"), memory(128 << 20));
    let options = Options { checkpoint_bytes: 1 << 20, ..Options::default() };
    let mut journal = start(&path, &words, &options);
    words.iter().enumerate().for_each(|(at, word)| word.store(at as u64 + 1, Ordering::Relaxed));
    let is_there = || {
        let files = std::fs::read_dir(&path).expect("a directory");
        files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("checkpoint"))
    };
    while !is_there() {
        rate(&mut journal, &words, 64, Duration::from_millis(50));
    }
    drop(journal);
    let again = memory(128 << 20);
    let begin = Instant::now();
    let journal = start(&path, &again, &Options::default());
    println!("a region of 1 GiB is there again after {:.2} s", begin.elapsed().as_secs_f64());
    drop(journal);
    std::fs::remove_dir_all(&dir).expect("it was made above");
}
