//! The reference engine: sound, and broken in each way.

use farside_fabric::Worker;
use farside_fabric::runtime::Random;
use farside_sim::Faults;
use farside_workloads::check::Level;
use farside_workloads::engine::{Engine, Failure, Flaw, Session, Table, TableShape, Transaction};
use farside_workloads::history::Outcome;
use farside_workloads::load::{Effect, Kind, ListAppend, Tx, Workload};
use farside_workloads::trial::{self, Protocol, Trial, plan};

fn lists() -> ListAppend {
    ListAppend::new(6, 4, 50)
}

/// Two of a pair must not both be there: whoever finds neither comes, whoever finds itself goes.
struct Pairs;

const PAIRS: Table = Table(77);

impl Workload for Pairs {
    type Input = u64;

    fn kinds(&self) -> &'static [&'static str] {
        &["come or go"]
    }

    fn tables(&self) -> Vec<TableShape> {
        vec![TableShape { table: PAIRS, keys: 16, value_bytes: 8 }]
    }

    async fn setup<E: Engine>(&self, _: &E, _: &Worker) -> Result<(), Failure> {
        Ok(())
    }

    fn draw(&self, random: &mut Random) -> (usize, u64) {
        (0, random.below(16))
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        me: &u64,
    ) -> Result<Effect, Failure> {
        let other = me ^ 1;
        let rows = tx.read(&[Tx::<T>::want(PAIRS, other)]).await?;
        let alone = rows.get(0).is_none();
        let rows = tx.read(&[Tx::<T>::want_update(PAIRS, *me)]).await?;
        match rows.get(0).is_some() {
            true => tx.write(PAIRS, *me, None).await?,
            false if alone => tx.write(PAIRS, *me, Some(&me.to_le_bytes())).await?,
            false => {}
        }
        Ok(Effect::default())
    }

    fn book(&self, _: &u64, _: Effect, _: Outcome) {}

    async fn check<S: Session>(&self, _: &mut S) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn each_flaw_is_found_by_its_name() {
    for (flaw, expected) in Flaw::ALL {
        // Within 10,000 transactions, of some seeds.
        let found = (1..=5).any(|seed| {
            let outcome = match flaw {
                Flaw::Phantom => trial::run(Pairs, &plan(seed, 2000), Some(flaw), Level::Strict),
                _ => trial::run(lists(), &plan(seed, 2000), Some(flaw), Level::Strict),
            }
            .unwrap();
            println!("{flaw:?}: {:?}", outcome.report.found);
            let found = outcome.report.anomalies.iter().find(|anomaly| anomaly.kind == expected);
            found.inspect(|found| println!("    {:?} {}", found.transactions, found.why)).is_some()
                && outcome.report.verdict == "violation"
        });
        assert!(found, "{flaw:?}");
    }
}

#[test]
fn the_sound_one_is_sound() {
    for seed in 1..=1000 {
        let outcome = trial::run(lists(), &plan(seed, 300), None, Level::Strict).unwrap();
        let report = &outcome.report;
        assert_eq!((report.verdict, report.undecided), ("strict-serializable", 0), "{report:?}");
        assert_eq!(outcome.invariants, Ok(()), "seed {seed}");
        assert_eq!(outcome.tally.committed(), 300);
        assert!(outcome.tally.aborted() > 0, "nobody was in anybody's way");
        let outcome = trial::run(Pairs, &plan(seed, 300), None, Level::Strict).unwrap();
        assert_eq!(outcome.report.verdict, "strict-serializable", "{:?}", outcome.report);
    }
}

fn run(kind: Kind, seed: u64, flaw: Option<Flaw>) -> trial::Outcome {
    let protocol = Protocol::Reference(flaw);
    let trial = Trial { seed, txns: 400, protocol, faults: Faults::none() };
    kind.visit(&kind.small(), trial).unwrap().unwrap()
}

#[test]
fn every_workload_is_sound_on_the_sound_engine_and_repeats_itself() {
    for kind in Kind::ALL {
        for seed in 1..=20 {
            let outcome = run(kind, seed, None);
            let (report, name) = (&outcome.report, kind.name());
            assert_eq!(report.verdict, "strict-serializable", "{name} {seed}: {report:?}");
            assert_eq!(
                (report.undecided, outcome.invariants.clone()),
                (0, Ok(())),
                "{name} {seed}"
            );
            let again = run(kind, seed, None);
            assert_eq!((again.digest, &again.history), (outcome.digest, &outcome.history));
        }
    }
}

/// Where rows that are written are not checked, money is made, and counters have gaps.
#[test]
fn invariants_are_violated_where_updates_are_lost() {
    for kind in [Kind::SmallBank, Kind::Counter, Kind::Transfer, Kind::ListAppend] {
        let mut violated =
            (1..=20).filter(|seed| run(kind, *seed, Some(Flaw::LostUpdate)).invariants.is_err());
        assert!(violated.next().is_some(), "{}", kind.name());
    }
}
