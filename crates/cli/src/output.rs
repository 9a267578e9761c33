//! Results on stdout.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};

/// Prints a line. Whoever reads may have seen enough, as `head` does: then this process ends quietly.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.write_all(b"\n"));
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("farside: writing the result: {error}");
            std::process::exit(2);
        }
    }
}

/// Prints a line of a result.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

pub(crate) use say;
