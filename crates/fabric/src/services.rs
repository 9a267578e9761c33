//! Services: the two-sided half of a memory node.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock};

use crate::verbs::MAX_CALL_BYTES;
use crate::{ClientId, FabricError, NodeId, Result};

/// What a service does with the request of a client; an error message goes back as
/// [`FabricError::Service`].
pub type Handler = dyn Fn(ClientId, &[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// The service by which a node tells its clock, as [`Told`](crate::Told) understands it: little-endian nanoseconds, perhaps with the name of
/// the clock. Every node on a network has it.
pub const TIME: u16 = u16::MAX;

/// The services that a memory node offers, by number.
#[derive(Default)]
pub struct Services {
    handlers: RwLock<HashMap<u16, Arc<Handler>>>,
}

impl Services {
    /// Offers a service from now on, in place of the one that had the number before.
    pub fn offer(
        &self,
        service: u16,
        handler: impl Fn(ClientId, &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) {
        let mut handlers = self.handlers.write().expect("no panic while held");
        handlers.insert(service, Arc::new(handler));
    }

    /// Runs a service for a client.
    pub fn run(
        &self,
        node: NodeId,
        client: ClientId,
        service: u16,
        request: &[u8],
    ) -> Result<Vec<u8>> {
        let handlers = self.handlers.read().expect("no panic while held");
        let handler = handlers.get(&service).cloned();
        drop(handlers);
        let handler = handler.ok_or(FabricError::NoService { node, service })?;
        let reply =
            handler(client, request).map_err(|why| FabricError::Service { node, service, why })?;
        if reply.len() > MAX_CALL_BYTES {
            return Err(FabricError::Limit {
                what: "bytes of a reply",
                limit: MAX_CALL_BYTES,
                remedy: "let the service answer in parts",
            });
        }
        Ok(reply)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}
