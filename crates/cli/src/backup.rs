//! `farside backup` and `farside restore`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use farside::{Backup, check_backup};

use crate::credentials::Credentials;
use crate::data::{DataArgs, open_database};
use crate::output::say;
use crate::progress::Progress;
use crate::signals::stop_on_signals;

/// The file of a backup, in its directory.
const FILE: &str = "backup";

/// Its name as long as it is not whole.
const UNFINISHED: &str = "unfinished-backup";

/// Options of `farside backup`.
#[derive(Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    data: DataArgs,

    /// A directory that is empty or not there yet, or - for stdout
    to: PathBuf,

    /// Print one JSON object (with -: to stderr)
    #[arg(long)]
    json: bool,
}

/// Options of `farside restore`.
#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The database: file:PATH, tcp:HOST:PORT,…, rdma:HOST:PORT,…, etcd:HOST:PORT,…/NAME or pool:PATH
    #[arg(long, value_name = "URL", required_unless_present = "check")]
    connect: Option<String>,

    #[command(flatten)]
    credentials: Credentials,

    /// The directory of a backup, or - for stdin
    from: PathBuf,

    /// Only read the backup, and say whether it is whole; needs no database
    #[arg(long, conflicts_with = "connect")]
    check: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How far one part of it is, for the line on the terminal, and whether it is to end. One at a time.
struct Watch<'s> {
    stop: &'s AtomicBool,
    rows: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    _progress: Progress,
}

impl<'s> Watch<'s> {
    fn new(stop: &'s AtomicBool, what: &'static str, all: Option<u64>) -> Self {
        let (rows, bytes): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let (seen, count, start) = (Arc::clone(&bytes), Arc::clone(&rows), Instant::now());
        let progress = Progress::show(move || {
            let mib = seen.load(Ordering::Relaxed) as f64 / f64::from(1 << 20);
            let (rows, rate) = (count.load(Ordering::Relaxed), mib / start.elapsed().as_secs_f64());
            let share = all.map(|all| 100.0 * mib * f64::from(1 << 20) / all.max(1) as f64);
            let share = share.map(|share| format!(", {share:.0} %")).unwrap_or_default();
            format!("{what}: {rows} rows, {mib:.1} MiB, {rate:.1} MiB/s{share}")
        });
        Watch { stop, rows, bytes, _progress: progress }
    }

    fn go_on(&self, known: &Backup) -> bool {
        self.rows.store(known.rows, Ordering::Relaxed);
        self.bytes.store(known.bytes, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Runs `farside backup`.
pub(crate) fn run(args: &BackupArgs) -> Result<ExitCode> {
    let to_stdout = args.to == Path::new("-");
    if !to_stdout {
        check_place(&args.to)?;
    }
    let db = args.data.open()?;
    let connection = db.connection();
    let stop = stop_on_signals()?;
    let backup = |output: &mut dyn Write| {
        let watch = Watch::new(&stop, "backup", None);
        connection.block_on(connection.back_up(output, |known| watch.go_on(known)))
    };
    let known = match to_stdout {
        true => backup(&mut BufWriter::new(std::io::stdout().lock()))?,
        false => to_directory(&args.to, backup, &stop)?,
    };
    let line = describe(&known, args.json);
    match to_stdout {
        true => eprintln!("{line}"),
        false => say!("{line}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Before anything is begun.
fn check_place(dir: &Path) -> Result<()> {
    let Ok(mut entries) = std::fs::read_dir(dir) else {
        ensure!(!dir.exists(), "{}: expected a directory", dir.display());
        return Ok(());
    };
    ensure!(
        entries.next().is_none(),
        "{}: there is something in it; expected a directory that is empty or not there yet",
        dir.display()
    );
    Ok(())
}

/// Writes it, reads it again, and only then gives it its name.
fn to_directory(
    dir: &Path,
    backup: impl FnOnce(&mut dyn Write) -> farside::Result<Backup>,
    stop: &AtomicBool,
) -> Result<Backup> {
    let is_new = !dir.exists();
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let unfinished = dir.join(UNFINISHED);
    let done = write_and_check(&unfinished, backup, stop);
    if done.is_err() {
        let _ = std::fs::remove_file(&unfinished);
        if is_new {
            let _ = std::fs::remove_dir(dir);
        }
    }
    let known = done?;
    std::fs::rename(&unfinished, dir.join(FILE)).context("naming the backup")?;
    File::open(dir).and_then(|dir| dir.sync_all()).context("syncing the directory")?;
    Ok(known)
}

fn write_and_check(
    path: &Path,
    backup: impl FnOnce(&mut dyn Write) -> farside::Result<Backup>,
    stop: &AtomicBool,
) -> Result<Backup> {
    let name = || path.display().to_string();
    let mut output = BufWriter::with_capacity(1 << 20, File::create(path).with_context(name)?);
    let written = backup(&mut output)?;
    output.into_inner().map_err(|error| error.into_error())?.sync_all().with_context(name)?;
    let watch = Watch::new(stop, "reading it again", Some(written.bytes));
    let found = check_backup(open(path)?, |known| watch.go_on(known)).with_context(name)?;
    ensure!(found == written, "{}: what was read again is not what was written", name());
    Ok(written)
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// Runs `farside restore`.
pub(crate) fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    let path = (args.from != Path::new("-")).then(|| match args.from.is_dir() {
        true => args.from.join(FILE),
        false => args.from.clone(),
    });
    let name = path.as_ref().map_or("stdin".into(), |path| path.display().to_string());
    let input = || -> Result<Box<dyn Read>> {
        Ok(match &path {
            Some(path) => Box::new(open(path)?),
            None => Box::new(std::io::stdin().lock()),
        })
    };
    let length = path.as_ref().and_then(|path| Some(path.metadata().ok()?.len()));
    let stop = stop_on_signals()?;
    let check = || {
        let watch = Watch::new(&stop, "checking", length);
        check_backup(input()?, |known| watch.go_on(known)).with_context(|| name.clone())
    };
    let known = if args.check {
        check()?
    } else {
        let url = args.connect.as_deref().context("expected --connect URL, or --check")?;
        if path.is_some() {
            // A damaged one changes nothing.
            check()?;
        }
        let db = open_database(url, &args.credentials)?;
        let connection = db.connection();
        let watch = Watch::new(&stop, "restore", length);
        let restored = connection.restore(input()?, |known| watch.go_on(known));
        connection.block_on(restored).with_context(|| name.clone())?
    };
    say!("{}", describe(&known, args.json));
    Ok(ExitCode::SUCCESS)
}

fn describe(known: &Backup, json: bool) -> String {
    let Backup { moment, tables, rows, bytes } = *known;
    match json {
        true => serde_json::json!({
            "moment": u64::from(moment), "tables": tables, "rows": rows, "bytes": bytes,
        })
        .to_string(),
        false => format!("{tables} tables, {rows} rows, {bytes} bytes, as of {moment}"),
    }
}
