//! TLS, for networks that are not trusted: a node with a certificate, a client that knows whom to
//! believe, and a channel that is encrypted or not.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::{FabricError, Result};

/// The certificate of a node, and its key.
#[derive(Clone, Debug)]
pub struct NodeTls {
    config: Arc<ServerConfig>,
}

/// Whose certificates a client believes, and the name that a node's must have.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

fn failed(what: impl Into<String>) -> impl FnOnce(String) -> FabricError {
    let what = what.into();
    move |why| FabricError::setup(what, why)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let what = format!("reading certificates from {}", path.display());
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed(what.clone())(e.to_string()))?;
    if found.is_empty() {
        return Err(failed(what)("there is none; expected PEM".into()));
    }
    Ok(found)
}

impl NodeTls {
    /// From PEM files: the certificate with its chain, and the private key.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self> {
        let chain = certificates(certificate)?;
        let read = format!("reading the key {}", key.display());
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| failed(read)(e.to_string()))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|e| failed("using the certificate")(e.to_string()))?;
        Ok(NodeTls { config: Arc::new(config) })
    }

    pub(super) fn channel(&self, socket: TcpStream) -> Result<Channel> {
        let session = ServerConnection::new(Arc::clone(&self.config))
            .map_err(|e| failed("beginning TLS")(e.to_string()))?;
        Ok(Channel { socket, tls: Some(Box::new(session.into())), until: None })
    }
}

impl ClientTls {
    /// From a PEM file with the certificates to believe, and the name in the nodes' certificates.
    pub fn from_file(authorities: &Path, name: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|e| failed("using the certificates")(e.to_string()))?;
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| failed("setting up TLS")(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned())
            .map_err(|e| failed(format!("using the name '{name}'"))(e.to_string()))?;
        Ok(ClientTls { config: Arc::new(config), name })
    }

    pub(super) fn channel(&self, socket: TcpStream) -> Result<Channel> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|e| failed("beginning TLS")(e.to_string()))?;
        Ok(Channel { socket, tls: Some(Box::new(session.into())), until: None })
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A socket, with TLS on it or not. Blocks if the socket does.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) socket: TcpStream,
    tls: Option<Box<Connection>>,
    /// When reading gives up, however many bytes drip in; for a socket that blocks.
    until: Option<Instant>,
}

impl Channel {
    pub(super) fn plain(socket: TcpStream) -> Self {
        Channel { socket, tls: None, until: None }
    }

    /// From now on all reads together take no longer than until then; `None` lifts that.
    pub(super) fn give_up_at(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Lets the next read of the socket wait for what is left of the time.
    fn limit_next_read(&self, until: Instant) -> std::io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))
    }

    /// How many reads in a row make sense: one, or until all that was decrypted is taken.
    pub(super) fn reads_at_once(&self) -> usize {
        if self.tls.is_some() { 1024 } else { 1 }
    }

    /// Whether encrypted bytes wait to be sent.
    pub(super) fn is_holding(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what it holds, as far as the socket takes it.
    pub(super) fn push(&mut self) -> std::io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for Channel {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if let Some(until) = self.until {
            self.limit_next_read(until)?;
        }
        let Some(tls) = &mut self.tls else { return self.socket.read(bytes) };
        loop {
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.until.is_some_and(|until| until <= Instant::now()) {
                return Err(ErrorKind::TimedOut.into());
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            let processed = tls.process_new_packets();
            // Alerts and handshake go out, also when something is wrong.
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            processed.map_err(std::io::Error::other)?;
        }
    }
}

impl Write for Channel {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        self.push()?;
        if taken == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.push()
    }
}
