//! The checker against hand-made histories, and against trying all orders.

mod brute;

use brute::{History, any_history, is_serializable, is_snapshot, lines};
use farside_fabric::runtime::Random;
use farside_workloads::check::{Level, Report, check};

fn judge(text: &str, level: Level) -> Report {
    check(text.as_bytes(), level).unwrap()
}

fn kinds(report: &Report) -> Vec<&str> {
    let mut kinds: Vec<&str> = report.anomalies.iter().map(|a| &*a.kind).collect();
    kinds.dedup();
    kinds
}

fn histories() -> u64 {
    std::env::var("FARSIDE_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn compare(registers: bool, level: Level, oracle: impl Fn(&History) -> bool) {
    let (mut sound, mut unsound) = (0, 0);
    for seed in 0..histories() {
        let history = any_history(&mut Random::new(seed), registers);
        let expected = oracle(&history);
        let text = lines(&history);
        let report = judge(&text, level);
        let found = report.verdict != "violation";
        assert_eq!(
            (found, report.undecided),
            (expected, 0),
            "seed {seed}, {level:?}: all orders say {expected}, the checker {report:?}\n{text}"
        );
        *(if expected { &mut sound } else { &mut unsound }) += 1;
    }
    println!("{level:?}: {sound} sound, {unsound} not");
    assert!(sound > histories() / 10 && unsound > histories() / 20, "{sound} sound, {unsound} not");
}

#[test]
fn lists_are_judged_as_by_trying_all_orders() {
    compare(false, Level::Strict, |history| is_serializable(history, true));
    compare(false, Level::Serializable, |history| is_serializable(history, false));
    compare(false, Level::Snapshot, is_snapshot);
}

#[test]
fn registers_are_judged_as_by_trying_all_orders() {
    compare(true, Level::Strict, |history| is_serializable(history, true));
    compare(true, Level::Serializable, |history| is_serializable(history, false));
}
