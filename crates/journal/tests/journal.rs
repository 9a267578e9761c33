//! What survives: power losses, damaged bits, disks that are full.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{contents, memory};
use farside_journal::lossy::{Lossy, Random};
use farside_journal::{Disk, Journal, JournalError, Options, Report, open};

const WORDS: usize = 300;

const SMALL: Options = Options { segment_bytes: 6 << 10, checkpoint_bytes: 9 << 10 };

fn start(disk: &Lossy) -> Result<(Arc<Vec<AtomicU64>>, Journal, Report), JournalError> {
    let words = memory(WORDS);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (journal, report) = open(disk, words.clone(), &SMALL, || 7, || {})?;
    Ok((words, journal, report))
}

/// What was done, and the position after it.
type Done = (u64, Vec<u64>, u64);

/// Changes some words.
fn change(words: &[AtomicU64], journal: &mut Journal, random: &mut Random) -> Done {
    let count = if random.below(20) == 0 { 120 } else { 1 + random.below(6) };
    let at = random.below(WORDS as u64 - count + 1);
    let values: Vec<u64> = (0..count).map(|_| 1 + random.below(1 << 40)).collect();
    for (word, value) in words[at as usize..].iter().zip(&values) {
        word.store(*value, Ordering::Relaxed);
    }
    journal.append(at, &values);
    (at, values, journal.position())
}

/// Which of the states that there were this is, not before a position.
fn is_a_prefix(start: &[u64], done: &[Done], found: &[u64], durable: u64) -> Option<usize> {
    let mut state = start.to_vec();
    let mut fits =
        (found == state && done.first().is_none_or(|first| durable < first.2)).then_some(0);
    for (number, (at, values, position)) in done.iter().enumerate() {
        state[*at as usize..*at as usize + values.len()].copy_from_slice(values);
        if *position >= durable && state == found {
            fits = Some(number + 1);
        }
    }
    fits
}

#[test]
fn after_a_loss_of_power_it_is_a_prefix_with_all_that_was_durable() {
    let (mut torn, mut lost, mut checkpoints) = (0, 0, 0);
    for seed in 1..=200 {
        let mut random = Random(seed);
        let mut disk = Lossy::default();
        let mut before = vec![0; WORDS];
        // Several lives, each on what the one before has left.
        for life in 0..4 {
            let (words, mut journal, report) =
                start(&disk).unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            checkpoints += usize::from(report.checkpoint_bytes > 0);
            assert_eq!(contents(&words), before, "seed {seed}, life {life}");
            let mut done = Vec::new();
            for _ in 0..20 + random.below(150) {
                done.push(change(&words, &mut journal, &mut random));
                match random.below(12) {
                    0 => journal.sync_and_wait().unwrap(),
                    1 => journal.sync(),
                    _ => {}
                }
            }
            // Often in the middle of something.
            journal.sync();
            std::thread::sleep(std::time::Duration::from_micros(random.below(150)));
            let durable = journal.durable();
            let after = disk.after_power_loss(&mut random, &Arc::default());
            let (found, _journal, report) =
                start(&after).unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            let found = contents(&found);
            let fits = is_a_prefix(&before, &done, &found, durable);
            let fits = fits
                .unwrap_or_else(|| panic!("seed {seed}, life {life}: no prefix from {durable} on"));
            torn += usize::from(report.torn.is_some());
            lost += usize::from(fits < done.len());
            (disk, before) = (after, found);
        }
    }
    println!(
        "800 losses of power: {torn} torn tails, {lost} lost something, {checkpoints} had a checkpoint"
    );
    assert!(torn > 5 && lost > 50 && checkpoints > 50);
}

/// A store with a checkpoint and two journal files.
fn grown() -> (Lossy, Vec<u64>) {
    let (disk, mut random) = (Lossy::default(), Random(5));
    let (words, mut journal, _) = start(&disk).unwrap();
    for _ in 0..400 {
        change(&words, &mut journal, &mut random);
        journal.sync_and_wait().unwrap();
    }
    drop(journal);
    (disk, contents(&words))
}

#[test]
fn every_damaged_bit_is_found_and_named() {
    let (disk, whole) = grown();
    let names = disk.names().unwrap();
    assert!(names.iter().any(|name| name.starts_with("checkpoint")), "{names:?}");
    assert_eq!(contents(&start(&disk.copy()).unwrap().0), whole);
    let mut bits = 0;
    for name in &names {
        for bit in 0..8 * disk.length(name) {
            let copy = disk.copy();
            copy.flip(name, bit);
            match start(&copy) {
                Err(JournalError::Damaged { file, .. } | JournalError::Foreign { file, .. }) => {
                    assert_eq!(file, *name, "bit {bit}");
                }
                other => panic!("{name}, bit {bit}: {:?}", other.map(|opened| opened.2)),
            }
            bits += 1;
        }
    }
    println!("{bits} bits of {} files", names.len());
}

/// The same with some bits of a store of 20 MB.
#[test]
fn damaged_bits_of_a_large_store_are_found_and_named() {
    let (disk, words, mut random) = (Lossy::default(), memory(1 << 20), Random(9));
    let options = Options { segment_bytes: 4 << 20, checkpoint_bytes: 8 << 20 };
    let open_it = |disk: Lossy| {
        open(Arc::new(disk), memory(1 << 20), &options, || 7, || {}).map(|opened| opened.1)
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (mut journal, _) = open(shared, words.clone(), &options, || 7, || {}).unwrap();
    for part in (0..1 << 20).step_by(512).chain((0..400).map(|part| part * 2048)) {
        let values: Vec<u64> = (0..512).map(|_| 1 + random.below(1 << 40)).collect();
        let places = words[part as usize..].iter();
        places.zip(&values).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
        journal.append(part, &values);
        journal.tick();
        if part.is_multiple_of(1 << 14) {
            journal.sync_and_wait().unwrap();
        }
    }
    journal.sync_and_wait().unwrap();
    drop(journal);
    let names = disk.names().unwrap();
    let bytes: u64 = names.iter().map(|name| disk.length(name)).sum();
    assert!(bytes > 10 << 20 && open_it(disk.copy()).is_ok(), "{bytes} bytes");
    for _ in 0..60 {
        let name = &names[random.below(names.len() as u64) as usize];
        let bit = random.below(8 * disk.length(name));
        disk.flip(name, bit);
        match open_it(disk.copy()) {
            Err(JournalError::Damaged { file, .. } | JournalError::Foreign { file, .. }) => {
                assert_eq!(file, *name, "bit {bit}");
            }
            other => panic!("{name}, bit {bit}: {other:?}"),
        }
        disk.flip(name, bit);
    }
}

#[test]
fn what_is_missing_is_missed() {
    let (disk, _) = grown();
    // Whether there was a later file nobody knows.
    let mut names = disk.names().unwrap();
    names.sort();
    names.pop();
    for name in names {
        let copy = disk.copy();
        copy.remove(&name).unwrap();
        let found = start(&copy).map(|opened| opened.2);
        assert!(matches!(found, Err(JournalError::Damaged { .. })), "{name}: {found:?}");
    }
}

/// However often it is started, and however little it does.
#[test]
fn starting_again_and_again_leaves_few_files() {
    let disk = Lossy::default();
    for number in 1..40 {
        let (words, mut journal, report) = start(&disk).unwrap();
        assert_eq!(report.time, if number == 1 { 0 } else { 7 });
        assert_eq!(contents(&words)[0], number - 1);
        words[0].store(number, Ordering::Relaxed);
        journal.append(0, &[number]);
        journal.sync_and_wait().unwrap();
        let files = disk.names().unwrap().len();
        assert!(files < 40, "{files} files");
        if files > 9 {
            // A checkpoint is under way.
            let begun = std::time::Instant::now();
            while disk.names().unwrap().len() > 9 {
                assert!(begun.elapsed().as_secs() < 60, "there is no checkpoint");
                journal.tick();
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn foreign_files_are_refused() {
    let (disk, _) = grown();
    disk.create("notes.txt", 10).unwrap();
    disk.create("unfinished-journal-0000000000000001", 10).unwrap();
    let before = disk.names().unwrap();
    let error = start(&disk).map(|opened| opened.2).unwrap_err();
    assert!(error.to_string().contains("notes.txt: it is no file of a farside node"), "{error}");
    assert_eq!(disk.names().unwrap(), before, "nothing is changed");
    let (one, two) = (grown().0, grown().0);
    let name = one.names().unwrap().into_iter().rfind(|name| name.starts_with("journal")).unwrap();
    let mut bytes = vec![0; one.length(&name) as usize];
    one.open(&name).unwrap().read_at(0, &mut bytes).unwrap();
    two.remove(&name).unwrap();
    two.create(&name, bytes.len() as u64).unwrap().write_at(0, &bytes).unwrap();
    let error = start(&two).map(|opened| opened.2).unwrap_err();
    assert!(error.to_string().contains("belongs to another node"), "{error}");
}

#[test]
fn less_memory_than_before_is_refused_and_more_is_not() {
    let (disk, whole) = grown();
    let open = |words: usize| {
        let (memory, disk): (_, Arc<dyn Disk>) = (memory(words), Arc::new(disk.copy()));
        open(disk, memory.clone(), &SMALL, || 7, || {}).map(|_| memory)
    };
    let error = open(WORDS - 1).unwrap_err().to_string();
    assert!(error.contains("give as much memory as before"), "{error}");
    assert_eq!(contents(&open(WORDS + 50).unwrap())[..WORDS], whole);
}

#[test]
fn a_full_disk_is_an_error_for_ever_and_nothing_durable_is_lost() {
    for room in (0..12_000).step_by(700) {
        let (disk, mut random) = (Lossy::default(), Random(room));
        let (words, mut journal, _) = start(&disk).unwrap();
        disk.fill_up(room);
        let mut done = Vec::new();
        let error = loop {
            done.push(change(&words, &mut journal, &mut random));
            if let Err(error) = journal.sync_and_wait() {
                break error;
            }
        };
        assert!(error.to_string().starts_with("the disk fails: writing"), "{error}");
        let durable = journal.durable();
        disk.fill_up(1 << 30);
        assert_eq!(journal.sync_and_wait(), Err(error), "it pretends");
        assert_eq!(journal.durable(), durable);
        drop(journal);
        let (found, _, _) = start(&disk.after_power_loss(&mut random, &Arc::default())).unwrap();
        assert!(is_a_prefix(&[0; WORDS], &done, &contents(&found), durable).is_some());
    }
}
