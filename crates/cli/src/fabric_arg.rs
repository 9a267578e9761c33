//! Which fabric the user asks for.

use std::fmt;
use std::str::FromStr;

use farside_sim::Profile;

/// The fabrics that exist so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FabricArg {
    Local,
    Shm,
    Tcp,
    Rdma,
    /// By its profile, perhaps with persistent memory.
    Sim {
        name: &'static str,
        persistent: bool,
    },
}

impl FromStr for FabricArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let profiles = || Profile::names().collect::<Vec<_>>().join(", ");
        match text {
            "local" => return Ok(FabricArg::Local),
            "shm" => return Ok(FabricArg::Shm),
            "tcp" => return Ok(FabricArg::Tcp),
            "rdma" => return Ok(FabricArg::Rdma),
            _ => {}
        }
        let Some(name) = text.strip_prefix("sim:") else {
            return Err(format!(
                "no such fabric; there are: local, shm, tcp, rdma, sim:PROFILE with PROFILE one of {}, each also with +pm",
                profiles()
            ));
        };
        let profile = Profile::named(name).ok_or_else(|| {
            format!("no such profile; there are: {}, each also with +pm", profiles())
        })?;
        Ok(FabricArg::Sim { name: profile.name, persistent: name.ends_with("+pm") })
    }
}

impl FabricArg {
    /// The hardware to simulate, if it is to be simulated.
    pub(crate) fn profile(self) -> Option<Profile> {
        matches!(self, FabricArg::Sim { .. })
            .then(|| Profile::named(&self.to_string()["sim:".len()..]).expect("checked when read"))
    }
}

impl fmt::Display for FabricArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricArg::Local => f.write_str("local"),
            FabricArg::Shm => f.write_str("shm"),
            FabricArg::Tcp => f.write_str("tcp"),
            FabricArg::Rdma => f.write_str("rdma"),
            FabricArg::Sim { name, persistent } => {
                write!(f, "sim:{name}{}", if *persistent { "+pm" } else { "" })
            }
        }
    }
}
