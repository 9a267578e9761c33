//! What workloads draw, against what their specifications say.

use std::collections::{BTreeMap, BTreeSet};

use farside_fabric::Worker;
use farside_fabric::runtime::Random;
use farside_workloads::engine::{Engine, Failure, Flaw, Reference, Table};
use farside_workloads::load::{Kvs, ListAppend, SmallBank, Tatp, Workload};

const DRAWS: usize = 200_000;

/// The shares of the kinds that are drawn, of a hundred.
fn shares<W: Workload>(workload: &W) -> BTreeMap<&'static str, f64> {
    let random = &mut Random::new(7);
    let mut counts: BTreeMap<&'static str, f64> = BTreeMap::new();
    for _ in 0..DRAWS {
        let (kind, _) = workload.draw(random);
        *counts.entry(workload.kinds()[kind]).or_default() += 100.0 / DRAWS as f64;
    }
    counts
}

fn assert_shares(found: &BTreeMap<&'static str, f64>, expected: &[(&str, f64)]) {
    for (kind, share) in expected {
        let off = (found.get(kind).copied().unwrap_or(0.0) - share).abs();
        assert!(off < 0.5, "{kind}: {found:?}");
    }
    assert_eq!(found.len(), expected.len());
}

/// `ford.txt` Table 2.
#[test]
fn smallbank_mixes_as_the_paper_says() {
    let bank = SmallBank::new(100_000);
    assert_shares(
        &shares(&bank),
        &[
            ("amalgamate", 15.0),
            ("balance", 15.0),
            ("deposit-checking", 15.0),
            ("send-payment", 25.0),
            ("transact-savings", 15.0),
            ("write-check", 15.0),
        ],
    );
    // Four of a hundred accounts take ninety of a hundred accesses.
    let random = &mut Random::new(8);
    let mut accesses: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..DRAWS {
        let text = format!("{:?}", bank.draw(random).1);
        let account: String = text
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        *accesses.entry(account.parse().unwrap()).or_default() += 1;
    }
    let hot: u64 = accesses.range(..4000).map(|(_, count)| count).sum();
    let share = hot as f64 / DRAWS as f64;
    assert!((0.895..0.905).contains(&share), "{share}");
    assert!(accesses.keys().all(|account| *account < 100_000));
    assert!(accesses.keys().next_back().is_some_and(|last| *last > 99_000));
}

#[test]
fn tatp_mixes_as_its_specification_says() {
    let tatp = Tatp::new(100_000);
    assert_shares(
        &shares(&tatp),
        &[
            ("get-subscriber-data", 35.0),
            ("get-access-data", 35.0),
            ("get-new-destination", 10.0),
            ("update-subscriber-data", 2.0),
            ("update-location", 14.0),
            ("insert-call-forwarding", 2.0),
            ("delete-call-forwarding", 2.0),
        ],
    );
    let random = &mut Random::new(9);
    let mut halves = [0u64; 2];
    for _ in 0..DRAWS {
        let subscriber = tatp.draw(random).1.subscriber();
        assert!(subscriber < 100_000);
        halves[usize::from(subscriber.count_ones() > 8)] += 1;
    }
    // Numbers with many bits come more often, as with the specification's OR of two numbers.
    assert!(halves[1] > 2 * halves[0], "{halves:?}");
}

/// An engine that only counts what is loaded.
#[derive(Clone, Default)]
struct Counting(std::sync::Arc<std::sync::Mutex<BTreeMap<u16, u64>>>);

impl Engine for Counting {
    type Session = <Reference as Engine>::Session;

    fn session(&self, worker: &Worker) -> Self::Session {
        Reference::new(None::<Flaw>).session(worker)
    }

    async fn load(
        &self,
        _: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let mut counts = self.0.lock().unwrap();
        let mut keys = BTreeSet::new();
        for (key, value) in rows {
            assert!(!value.is_empty() && keys.insert(key));
        }
        *counts.entry(table.0).or_default() += keys.len() as u64;
        Ok(())
    }
}

fn loaded<W: Workload>(workload: &W) -> Vec<u64> {
    let (engine, worker) = (Counting::default(), Worker::new(1));
    worker.block_on(workload.setup(&engine, &worker)).unwrap();
    let counts = engine.0.lock().unwrap();
    counts.values().copied().collect()
}

#[test]
fn what_is_loaded_is_as_large_as_specified() {
    assert_eq!(loaded(&SmallBank::new(1234)), [1234, 1234]);
    assert_eq!(loaded(&Kvs::new(5000, 40, 0.99, 50, 4)), [5000]);
    let counts = loaded(&Tatp::new(10_000));
    assert_eq!(counts[..2], [10_000, 10_000]);
    // Two and a half access rows and facilities each, and one and a half forwardings for each facility.
    for (count, expected) in counts[2..].iter().zip([25_000.0, 25_000.0, 37_500.0]) {
        assert!((*count as f64 / expected - 1.0).abs() < 0.03, "{counts:?}");
    }
}

#[test]
fn keys_and_shares_are_as_asked_for() {
    let random = &mut Random::new(10);
    let kvs = Kvs::new(1000, 40, 0.9, 80, 5);
    let (mut writes, mut keys) = (0, BTreeMap::new());
    for _ in 0..DRAWS / 10 {
        let (kind, accesses) = kvs.draw(random);
        assert_eq!(accesses.len(), 5);
        let distinct: BTreeSet<u64> = accesses.iter().map(|(key, _)| *key).collect();
        assert!(distinct.len() == 5 && distinct.iter().all(|key| *key < 1000));
        assert_eq!(kind == 1, accesses.iter().any(|(_, value)| value.is_some()));
        writes += accesses.iter().filter(|(_, value)| value.is_some()).count();
        accesses.iter().for_each(|(key, _)| *keys.entry(*key).or_insert(0u64) += 1);
    }
    let share = writes as f64 / (DRAWS / 2) as f64;
    assert!((0.19..0.21).contains(&share), "{share}");
    // Those that write some, and only read others: the first is always written.
    let mixed = Kvs::new(1000, 40, 0.9, 0, 5).mixing(50);
    let drawn: Vec<_> = (0..DRAWS / 10).map(|_| mixed.draw(random)).collect();
    assert!(drawn.iter().all(|(kind, accesses)| *kind == 1 && accesses[0].1.is_some()));
    let written = drawn.iter().flat_map(|(_, all)| all).filter(|(_, value)| value.is_some());
    let share = written.count() as f64 / (DRAWS / 2) as f64;
    assert!((0.59..0.61).contains(&share), "{share}");
    let mut counts: Vec<u64> = keys.into_values().collect();
    counts.sort_unstable();
    // A tenth of the keys takes most.
    let most: u64 = counts[900.min(counts.len())..].iter().sum();
    assert!(most as f64 > 0.5 * (DRAWS / 2) as f64, "{most}");
    let lists = ListAppend::new(10, 4, 30);
    let steps: Vec<_> = (0..DRAWS / 10).map(|_| lists.draw(random).1).collect();
    assert!(steps.iter().all(|steps| (1..=4).contains(&steps.len())));
    let (reads, all) = steps
        .iter()
        .flatten()
        .fold((0, 0), |(reads, all), (_, only_reads)| (reads + usize::from(*only_reads), all + 1));
    let share = reads as f64 / all as f64;
    assert!((0.28..0.32).contains(&share), "{share}");
}
