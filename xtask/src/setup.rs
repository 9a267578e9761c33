//! Installs the system packages that tests use, where that is possible.

use std::process::{Command, Stdio};

use crate::shell::which;

/// Makes sure that `program` is there, from the Debian package `package` if need be. Without the
/// means to install it, says so and returns `false`: the caller then skips what needs it.
pub(crate) fn ensure_program(program: &str, package: &str) -> bool {
    if which(program).is_some() || install(package) {
        return true;
    }
    eprintln!(
        "── skipped: {program} is not installed; install the package {package} to have it tested"
    );
    false
}

/// Installs a package; `false` if that cannot be.
pub(crate) fn install(package: &str) -> bool {
    if which("apt-get").is_none() {
        return false;
    }
    eprintln!("── installing {package}");
    refresh() && quiet(&["install", "-q", "-y", "--no-install-recommends", package])
}

/// Asks again which packages there are.
pub(crate) fn refresh() -> bool {
    quiet(&["update", "-q"])
}

fn quiet(args: &[&str]) -> bool {
    let status = Command::new("apt-get").args(args).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
