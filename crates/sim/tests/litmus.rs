//! The adversary at work: careless programs go wrong, careful ones never do, and every run repeats.

use farside_sim::litmus::{Litmus, PROGRAMS, STEPS, Scenario, Style};
use farside_sim::{FaultKind, Faults};

fn scenario(seed: u64, style: Style) -> Scenario {
    Scenario { seed, steps: STEPS, faults: None, style }
}

#[test]
fn careless_programs_go_wrong_within_100_seeds() {
    for program in PROGRAMS {
        let wrong = (1..=100)
            .find(|seed| program.run(&scenario(*seed, Style::Careless), false).violation.is_some());
        assert!(
            wrong.is_some(),
            "{}: 100 seeds, and '{}' seems to hold",
            program.name,
            program.careless
        );
    }
}

#[test]
fn careful_programs_never_go_wrong() {
    for program in PROGRAMS {
        for seed in 1..=200 {
            let outcome = program.run(&scenario(seed, Style::Careful), false);
            assert_eq!(outcome.violation, None, "{} with seed {seed}", program.name);
            assert_eq!(outcome.gave_up, None, "{} with seed {seed} proves nothing", program.name);
        }
    }
}

/// Without faults the careless ones that the adversary breaks hold: it is the adversary who breaks
/// them, not an accident of the model.
#[test]
fn without_faults_order_holds_by_accident() {
    for program in PROGRAMS.iter().filter(|p| ["C1", "C3", "C5"].contains(&p.contract)) {
        let calm = Scenario { faults: Some(Faults::none()), ..scenario(7, Style::Careless) };
        assert_eq!(program.run(&calm, false).violation, None, "{}", program.name);
    }
}

/// Whatever strikes them, careful programs are never wrong; some give up.
#[test]
fn all_faults_together_break_no_careful_program() {
    for program in PROGRAMS {
        for seed in 1..=60 {
            let all = Scenario { faults: Some(Faults::all()), ..scenario(seed, Style::Careful) };
            let outcome = program.run(&all, false);
            assert_eq!(outcome.violation, None, "{} with seed {seed}", program.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    for program in PROGRAMS {
        let run = |seed| program.run(&scenario(seed, Style::Careful), false).digest;
        assert_eq!(run(3), run(3), "{}", program.name);
        assert_ne!(run(3), run(4), "{}", program.name);
    }
}

#[test]
fn a_failing_run_is_shrunk_and_still_fails() {
    let program = Litmus::named("write-after-read").unwrap();
    let failing = (1..).map(|seed| Scenario {
        faults: Some(Faults::order().with(FaultKind::Clock)),
        ..scenario(seed, Style::Careless)
    });
    let failing = failing.into_iter().find(|s| program.run(s, false).violation.is_some()).unwrap();
    let small = program.shrink(&failing);
    assert!(small.steps < failing.steps);
    let left: Vec<_> = small.faults.unwrap().kinds().collect();
    assert_eq!(left.len(), 1, "one kind of fault is enough, {left:?} were left");
    assert!(program.run(&small, false).violation.is_some());
}

#[test]
fn a_trace_tells_the_verbs_of_a_run() {
    let program = Litmus::named("write-after-read").unwrap();
    let traced = program.run(&Scenario { steps: 2, ..scenario(1, Style::Careful) }, true);
    let lines: Vec<_> =
        traced.trace.iter().filter(|line| line.contains("process 0 → node 0")).collect();
    assert_eq!(lines.len(), 4, "{:#?}", traced.trace);
    assert!(lines[0].contains("READ") && lines[1].contains("WRITE"), "{:#?}", traced.trace);
    let untraced = program.run(&Scenario { steps: 2, ..scenario(1, Style::Careful) }, false);
    assert_eq!(untraced.digest, traced.digest, "looking changes nothing");
}
