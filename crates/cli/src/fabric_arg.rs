//! Which fabric the user asks for.

use std::fmt;
use std::str::FromStr;

/// The fabrics that exist so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FabricArg {
    Local,
    Shm,
}

const NAMES: [(FabricArg, &str); 2] = [(FabricArg::Local, "local"), (FabricArg::Shm, "shm")];

impl FromStr for FabricArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = NAMES.iter().find(|(_, name)| *name == text);
        known.map(|(fabric, _)| *fabric).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("no such fabric; there are: {}", names.join(", "))
        })
    }
}

impl fmt::Display for FabricArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = NAMES.iter().find(|(fabric, _)| fabric == self).expect("all are named");
        f.write_str(name)
    }
}
