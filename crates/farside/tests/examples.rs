//! The examples run: they assert what they show.

use std::process::Command;

#[test]
fn the_examples_run() {
    for example in ["bank", "counter", "sessions"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--quiet", "--package", "farside", "--example", example]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let output = cargo.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{example}: {said}");
    }
}
