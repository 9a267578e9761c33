//! Installs the system packages that tests use, where that is possible.

use std::process::{Command, Stdio};

use crate::shell::which;

/// Makes sure that `program` is there, from the Debian package `package` if need be. Without the
/// means to install it, says so and returns `false`: the caller then skips what needs it.
pub(crate) fn ensure_program(program: &str, package: &str) -> bool {
    if which(program).is_some() {
        return true;
    }
    if which("apt-get").is_some() {
        eprintln!("── installing {package}");
        let quiet = |args: &[&str]| {
            let status = Command::new("apt-get").args(args).stdout(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        if quiet(&["update", "-q"]) && quiet(&["install", "-q", "-y", package]) {
            return true;
        }
    }
    eprintln!(
        "── skipped: {program} is not installed; install the package {package} to have it tested"
    );
    false
}
