//! Which fabric the user asks for.

use std::fmt;
use std::str::FromStr;

use farside_sim::Profile;

/// The fabrics that exist so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FabricArg {
    Local,
    Shm,
    Sim(SimProfile),
}

/// A profile as it was named.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SimProfile {
    pub(crate) profile: Profile,
    persistent: bool,
}

impl FromStr for FabricArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let profiles = || Profile::names().collect::<Vec<_>>().join(", ");
        match text {
            "local" => return Ok(FabricArg::Local),
            "shm" => return Ok(FabricArg::Shm),
            _ => {}
        }
        let Some(name) = text.strip_prefix("sim:") else {
            return Err(format!(
                "no such fabric; there are: local, shm, sim:PROFILE with PROFILE one of {}, each also with +pm",
                profiles()
            ));
        };
        let profile = Profile::named(name).ok_or_else(|| {
            format!("no such profile; there are: {}, each also with +pm", profiles())
        })?;
        Ok(FabricArg::Sim(SimProfile { profile, persistent: name.ends_with("+pm") }))
    }
}

impl fmt::Display for FabricArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricArg::Local => f.write_str("local"),
            FabricArg::Shm => f.write_str("shm"),
            FabricArg::Sim(sim) => {
                write!(f, "sim:{}{}", sim.profile.name, if sim.persistent { "+pm" } else { "" })
            }
        }
    }
}
