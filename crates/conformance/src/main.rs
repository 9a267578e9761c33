//! Runs the conformance suite: `farside-conformance FABRIC [CASE]...`

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use farside_conformance::{beds, cases, run};

fn main() -> ExitCode {
    match suite() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn suite() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((first, rest)) = args.split_first() else {
        println!("usage: farside-conformance FABRIC [CASE]...");
        println!("fabrics: {}", beds::FABRICS.join(", "));
        println!("cases:");
        cases::CASES.iter().for_each(|case| println!("  {}", case.name));
        std::process::exit(2);
    };
    if first == beds::ACTOR {
        return beds::act(rest);
    }
    if first == beds::PROXY {
        return beds::be_proxy(rest);
    }
    if first == beds::NODE {
        return beds::be_node(rest);
    }
    let chosen: Vec<_> = if rest.is_empty() {
        cases::CASES.iter().collect()
    } else {
        let find = |name: &String| cases::named(name).with_context(|| format!("no case '{name}'"));
        rest.iter().map(find).collect::<Result<_>>()?
    };
    let program = std::env::current_exe()?;
    let mut failed = 0;
    for case in &chosen {
        let start = std::time::Instant::now();
        let result = beds::fresh(first, &program).and_then(|bed| run(case, &*bed));
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("ok    {seconds:6.2} s  {}", case.name),
            Err(error) => {
                failed += 1;
                println!("FAIL  {seconds:6.2} s  {}: {error:#}", case.name);
            }
        }
    }
    println!("{} passed, {failed} failed", chosen.len() - failed);
    ensure!(failed == 0, "{failed} cases failed on {first}");
    Ok(())
}
