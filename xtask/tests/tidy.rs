//! Style that no other tool enforces.

use std::path::{Path, PathBuf};

/// The longest file, and the longest function.
const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All files that git knows or would add.
fn files() -> Vec<PathBuf> {
    let listed = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    assert!(listed.status.success(), "this is not a git checkout");
    let names = String::from_utf8(listed.stdout).unwrap();
    names.lines().map(|name| root().join(name)).filter(|path| path.is_file()).collect()
}

fn rust_files() -> Vec<(PathBuf, String)> {
    let rust = files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let read = rust.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()));
    let found: Vec<_> = read.collect();
    assert!(found.len() > 20, "the files were not found");
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

#[track_caller]
fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

#[test]
fn files_and_functions_are_short() {
    let mut complaints = Vec::new();
    for (path, text) in rust_files() {
        let lines: Vec<_> = text.lines().collect();
        if lines.len() > FILE_LINES {
            complaints.push(format!("{}: {} lines, split it", shown(&path), lines.len()));
        }
        let mut start = None;
        for (number, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let indent = line.len() - code.len();
            let begins = [
                "fn ",
                "pub fn ",
                "pub(super) fn ",
                "pub(crate) fn ",
                "async fn ",
                "pub async fn ",
            ];
            if begins.iter().any(|word| code.starts_with(word)) {
                start = Some((number, indent));
            }
            // A signature without a body, perhaps over several lines, or a body of one line.
            let short = code.ends_with(';') || code.ends_with('}') && code.contains('{');
            let closes = number == start.map_or(0, |(first, _)| first) || code.starts_with(')');
            if start.is_some_and(|(_, depth)| depth == indent) && closes && short {
                start = None;
            }
            let Some((first, depth)) = start else { continue };
            if code == "}" && indent == depth {
                if number - first > FUNCTION_LINES {
                    complaints.push(format!(
                        "{}:{}: a function of {} lines",
                        shown(&path),
                        first + 1,
                        number - first
                    ));
                }
                start = None;
            }
        }
    }
    none(complaints);
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent = |(path, text): &(PathBuf, String)| {
        (!text.starts_with("//!")).then(|| format!("{}: begin it with a //! line", shown(path)))
    };
    none(rust_files().iter().filter_map(silent).collect());
}

/// Calls that have a replacement here, where they are banned, and what to use instead.
const BANNED: &[(&str, &[&str], &str)] = &[
    (
        ".unwrap()",
        &["crates/fabric/src", "crates/cli/src"],
        "say what is expected, or return the error",
    ),
    (
        "Instant::now",
        &["crates/fabric/src/verbs", "crates/fabric/src/local"],
        "Worker::now, which the simulator owns",
    ),
    ("SystemTime", &["crates"], "Worker::now: no wall clocks"),
    ("thread::sleep", &["crates/fabric/src", "crates/cli/src"], "Worker::sleep"),
    ("println!", &["crates/fabric/src"], "return it: libraries do not print"),
    ("#[allow", &["crates", "xtask"], "#[expect] with a reason"),
    ("#[ignore", &["crates", "xtask"], "run it, or delete it"),
];

/// Ids of transactions mean something on other machines, and after a restart.
const EXCEPTIONS: &[(&str, &str)] = &[("SystemTime", "crates/farside/src/outcome.rs")];

#[test]
fn banned_calls_are_not_used() {
    let mut complaints = Vec::new();
    for (path, text) in rust_files() {
        let name = shown(&path);
        if name == "xtask/tests/tidy.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            // Unit tests stand at the end of a file.
            if line.starts_with("mod tests") || line.starts_with("mod loom_tests") {
                break;
            }
            for (call, places, instead) in BANNED {
                let allowed = EXCEPTIONS.contains(&(call, &name));
                let banned = places.iter().any(|place| name.starts_with(place));
                if line.contains(call) && banned && !allowed {
                    complaints.push(format!("{name}:{}: {call}: {instead}", number + 1));
                }
            }
        }
    }
    none(complaints);
}

#[test]
fn nothing_is_left_over() {
    let marks = ["FIX".to_owned() + "ME", "TO".to_owned() + "DO", "XX".to_owned() + "X"];
    let mut complaints = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if shown(&path).starts_with("fuzz/corpus") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let place = || format!("{}:{}", shown(&path), number + 1);
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                complaints.push(format!("{}: leftover mark", place()));
            }
            if line.ends_with(' ') || line.contains('\t') && !path.ends_with("Makefile") {
                complaints.push(format!("{}: stray white space", place()));
            }
            let home =
                ["/ro".to_owned() + "ot/", "/ho".to_owned() + "me/", "/wo".to_owned() + "rk/"];
            if home.iter().any(|home| line.contains(home.as_str())) {
                complaints.push(format!("{}: a path of some machine", place()));
            }
        }
    }
    none(complaints);
}

#[test]
fn the_readme_has_the_commands_that_ci_runs() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let command = "cargo xtask test";
    assert!(readme.contains(command) && ci.contains(command));
}
