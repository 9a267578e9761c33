//! How a client proves to nodes who it is, and whom it believes.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use farside_fabric::tcp::{ClientTls, Options, Secret};

/// Options of every command that connects to running nodes.
#[derive(Args, Clone)]
pub(crate) struct Credentials {
    /// A file with the secret that the nodes were started with
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// Encrypt, and believe nodes whose certificates are signed by these (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_name")]
    tls_ca: Option<PathBuf>,

    /// The name that the nodes' certificates must have
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
}

impl Credentials {
    /// A client's options, with these credentials.
    pub(crate) fn options(&self) -> Result<Options> {
        let secret = self.secret_file.as_deref().map(Secret::read).transpose()?;
        let tls = match (&self.tls_ca, &self.tls_name) {
            (Some(authorities), Some(name)) => Some(ClientTls::from_file(authorities, name)?),
            _ => None,
        };
        Ok(Options { secret, tls, ..Options::default() })
    }

    /// Whether there are any.
    pub(crate) fn given(&self) -> bool {
        self.secret_file.is_some() || self.tls_ca.is_some()
    }

    /// The same options for a client process.
    pub(crate) fn for_child(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        if let Some(file) = &self.secret_file {
            args.extend(["--secret-file".into(), file.into()]);
        }
        if let (Some(file), Some(name)) = (&self.tls_ca, &self.tls_name) {
            args.extend(["--tls-ca".into(), file.into(), "--tls-name".into(), name.into()]);
        }
        args
    }
}
