//! `farside get`, `put`, `delete` and `tables`: a database from the command line.

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use farside::{Blocking, Database, Options};

use crate::credentials::Credentials;
use crate::output::say;

/// Which database.
#[derive(Args)]
pub(crate) struct DataArgs {
    /// The database: file:PATH, tcp:HOST:PORT,…, rdma:HOST:PORT,…, etcd:HOST:PORT,…/NAME or pool:PATH
    #[arg(long, value_name = "URL")]
    connect: String,

    #[command(flatten)]
    credentials: Credentials,
}

/// Options of `farside get` and `farside delete`.
#[derive(Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    data: DataArgs,

    /// The table
    table: String,

    /// The key
    key: String,
}

/// Options of `farside put`.
#[derive(Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// The value; without one it is read from stdin
    value: Option<String>,
}

/// Options of `farside tables`.
#[derive(Args)]
pub(crate) struct TablesArgs {
    #[command(flatten)]
    data: DataArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl DataArgs {
    pub(crate) fn open(&self) -> Result<Blocking> {
        open_database(&self.connect, &self.credentials)
    }
}

pub(crate) fn open_database(url: &str, credentials: &Credentials) -> Result<Blocking> {
    let options = Options { network: credentials.options()?, ..Options::default() };
    Ok(Database::open_with(url, &options)?.blocking()?)
}

/// Runs `farside get`: the value as it is, on stdout. A key that is not there is exit status 1.
pub(crate) fn get(args: &KeyArgs) -> Result<ExitCode> {
    let db = args.data.open()?;
    let table = db.table(&args.table)?;
    let Some(value) = db.get(&table, args.key.as_bytes())? else {
        eprintln!("farside: '{}' is not in table '{}'", args.key, args.table);
        return Ok(ExitCode::from(1));
    };
    let mut out = std::io::stdout().lock();
    out.write_all(&value)?;
    if out.is_terminal() {
        out.write_all(b"\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `farside put`. A table that is not there is created.
pub(crate) fn put(args: &PutArgs) -> Result<ExitCode> {
    let mut value = Vec::new();
    match &args.value {
        Some(given) => value.extend_from_slice(given.as_bytes()),
        None => _ = std::io::stdin().read_to_end(&mut value).context("reading the value")?,
    }
    let db = args.key.data.open()?;
    let table = db.open_table(&args.key.table)?;
    db.put(&table, args.key.key.as_bytes(), &value)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `farside delete`. A key that is not there is exit status 1.
pub(crate) fn delete(args: &KeyArgs) -> Result<ExitCode> {
    let db = args.data.open()?;
    let table = db.table(&args.table)?;
    let was_there = db.delete(&table, args.key.as_bytes())?;
    if !was_there {
        eprintln!("farside: '{}' is not in table '{}'", args.key, args.table);
    }
    Ok(ExitCode::from(u8::from(!was_there)))
}

/// Runs `farside tables`: their names, one a line.
pub(crate) fn tables(args: &TablesArgs) -> Result<ExitCode> {
    let tables = args.data.open()?.tables()?;
    if args.json {
        say!("{}", serde_json::json!({ "tables": tables }));
    } else {
        tables.iter().for_each(|name| say!("{name}"));
    }
    Ok(ExitCode::SUCCESS)
}
