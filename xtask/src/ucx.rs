//! READ and CAS over shared memory beside UCX's own benchmark, alternating in one run.

use anyhow::{Result, ensure};

use crate::peers::{farside, median, ucx};
use crate::setup::ensure_program;
use crate::shell::{cargo, step};

const TRIES: usize = 5;

pub(crate) fn run() -> Result<()> {
    ensure!(ensure_program("ucx_perftest", "ucx-utils"), "nothing to compare with");
    step("build", &mut cargo(&["build", "--release", "--package", "farside-cli"]))?;
    println!("mean time of one verb, one outstanding, median of {TRIES} alternating tries");
    let mut slower = Vec::new();
    for (verb, bytes, test) in [("read", 64, "ucp_get"), ("cas", 8, "ucp_cswap")] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            ours.push(farside("shm", verb, bytes, 1, 1)?.0);
            theirs.push(ucx("posix,self", test, bytes, 1, 20_000_000)?);
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "{verb:<5} {bytes:>3} bytes   farside shm {ours:6.1} ns   UCX posix {theirs:6.1} ns   ratio {:.2}",
            ours / theirs
        );
        if ours > theirs {
            slower.push(verb);
        }
    }
    let scaling = (0..TRIES)
        .map(|_| Ok(farside("shm", "read", 64, 2, 1)?.1 / farside("shm", "read", 64, 1, 1)?.1))
        .collect::<Result<Vec<_>>>()?;
    println!("read   64 bytes   two threads on disjoint memory: {:.2} × one", median(scaling));
    ensure!(slower.is_empty(), "slower than UCX: {}", slower.join(", "));
    Ok(())
}
