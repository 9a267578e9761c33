//! What the compiler must refuse.

/// The expected messages are those of this compiler; others word them differently.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn the_compiler_refuses_misuse() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = std::process::Command::new(rustc).arg("--version").output().expect("a compiler");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with(COMPILER) {
        println!("skipped: the expected messages are those of {COMPILER}x, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
