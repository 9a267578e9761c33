//! Running the command in tests.

use std::process::{Command, Output};

pub(crate) fn farside(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farside")).args(args).output().expect("it starts")
}

pub(crate) fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("exactly one JSON object on stdout")
}

#[track_caller]
pub(crate) fn refuses(args: &[&str], expected: &str) {
    let output = farside(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(expected), "{said}");
    assert!(output.stdout.is_empty());
}
