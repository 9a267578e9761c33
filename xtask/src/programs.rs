//! The test programs of the workspace: built once, and run so that both cores have something to do.
//!
//! `cargo test` runs one program after the other. Those that only simulate do not care who else is there, so they share the
//! machine; those with processes, sockets and leases have it for themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::shell::{cargo, output};

/// Where everything is simulated, or computed.
const SIMULATED: [&str; 5] = ["index", "lab", "sim", "txn", "workloads"];

/// A program of tests.
pub(crate) struct Program {
    /// The directory of its package.
    directory: PathBuf,
    name: String,
    pub(crate) path: PathBuf,
}

/// Builds all of them, and the programs that they start. For the whole workspace, also where one is wanted: for a single package
/// cargo would choose other features, and build everything again.
pub(crate) fn build() -> Result<Vec<Program>> {
    eprintln!("── build");
    let start = Instant::now();
    let args = ["test", "--workspace", "--locked", "--no-run", "--message-format"];
    let messages = output(cargo(&args).arg("json-render-diagnostics"))?;
    let programs = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let is_test = message["profile"]["test"] == true;
        // Those of the public interface assert what they show.
        let is_example =
            message["target"]["kind"][0] == "example" && directory.ends_with("farside");
        let path = message["executable"].as_str().filter(|_| is_test || is_example)?.into();
        Some(Program { directory, name: message["target"]["name"].as_str()?.to_owned(), path })
    });
    let programs: Vec<Program> = programs.collect();
    ensure!(!programs.is_empty(), "cargo built no test program");
    eprintln!("── build: fine after {:.1?}", start.elapsed());
    Ok(programs)
}

/// One of them, by the directory of its package and its name.
pub(crate) fn find(package: &str, name: &str) -> Result<PathBuf> {
    let programs = build()?;
    let found = programs.into_iter().find(|it| it.package() == package && it.name == name);
    Ok(found.with_context(|| format!("there is no test program {name} of {package}"))?.path)
}

/// Runs all of them.
pub(crate) fn run(programs: Vec<Program>) -> Result<()> {
    let (simulated, alone): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|it| SIMULATED.contains(&it.package()));
    for program in alone {
        program.run(&[])?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(simulated.into_iter());
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some(program) = next else { return Ok(()) };
            program.run(&["--test-threads=1"])?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

impl Program {
    fn package(&self) -> &str {
        self.directory.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Runs it as cargo would, and shows what it says when it is over.
    fn run(&self, args: &[&str]) -> Result<()> {
        let start = Instant::now();
        let name = format!("{} of {}", self.name, self.package());
        let done = Command::new(&self.path)
            .args(args)
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("CARGO_PKG_NAME", format!("farside-{}", self.package()))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {name}"))?;
        let (said, also) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        eprintln!("── {name}, {:.1?}\n{}{also}", start.elapsed(), said.trim_start());
        ensure!(done.status.success(), "tests failed: {name}; to run them again: {:?}", self.path);
        Ok(())
    }
}
