//! The `farside` command.

mod backup;
mod bench;
mod check;
mod credentials;
mod data;
mod demo;
mod doctor;
mod drain;
mod durability;
mod fabric_arg;
mod lab;
mod level;
mod node;
mod node_process;
mod output;
mod progress;
mod protocol;
mod rdma_args;
mod scrub;
mod shape;
mod signals;
mod sim;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Futures and lists of every transaction are allocated: this one does so in a third of the instructions.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// ACID transactions over far memory.
///
/// Results go to stdout, logs and progress to stderr. Exit status: 0 fine, 1 a check or invariant
/// failed, 2 wrong usage or bad input.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a workload on a fabric
    Bench(Box<bench::BenchArgs>),
    /// Transfers between accounts on a replicated pool, a client and a node of which are killed, in a few seconds: start here
    Demo(demo::DemoArgs),
    /// Print the value of a key
    Get(data::KeyArgs),
    /// Write a key
    Put(data::PutArgs),
    /// Delete a key
    Delete(data::KeyArgs),
    /// List the tables of a database
    Tables(data::TablesArgs),
    /// Write a snapshot of a whole database to a directory or to stdout, while transactions go on
    Backup(backup::BackupArgs),
    /// Make the tables of a backup again, or check one
    Restore(backup::RestoreArgs),
    /// Read everything on all replicas, and say what is damaged or not the same everywhere
    Scrub(scrub::ScrubArgs),
    /// Judge a history: is it strictly serializable and opaque, or at least something weaker?
    Check(check::CheckArgs),
    /// Be a memory node, until Ctrl-C or SIGTERM
    Node(Box<node::NodeArgs>),
    /// Draw figures of the papers again, in the simulator, with what they claim beside what is measured
    Lab(lab::LabArgs),
    /// Run simulated clusters under faults, seed by seed, and check what happened
    Sim(Box<sim::SimArgs>),
    /// Let a memory node leave its pool: what it has is copied elsewhere first, under load
    Drain(drain::DrainArgs),
    /// Look at a pool: its members, regions and leases
    Status(Box<status::StatusArgs>),
    /// Check this machine for each fabric, and say what to do where something is missing
    Doctor(doctor::DoctorArgs),
    /// A client process that is going to be killed; started by `farside demo`
    #[command(hide = true)]
    DemoClient(demo::ClientArgs),
    /// One client process of a benchmark; started by `farside bench`
    #[command(hide = true)]
    BenchClient(bench::ClientArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::BenchClient(args) => bench::run_client(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoClient(args) => demo::run_client(&args),
        Command::Get(args) => data::get(&args),
        Command::Put(args) => data::put(&args),
        Command::Delete(args) => data::delete(&args),
        Command::Tables(args) => data::tables(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Node(args) => node::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("farside: {error:#}");
            ExitCode::from(2)
        }
    }
}
