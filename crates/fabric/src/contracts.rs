//! The memory model: what every backend promises, and all that code above may rely on.
//!
//! The conformance suite (`farside-conformance`) tests these against every backend; the simulator
//! does whatever they leave open, as adversarially as it can.
//!
//! # C1 Order
//!
//! Verbs of one queue take effect in posted order in exactly these cases, across doorbells too:
//!
//! | second ↓ / first → | READ, FLUSH | WRITE | CAS, FAA |
//! | --- | --- | --- | --- |
//! | READ, FLUSH | in order | in order | in order |
//! | WRITE | only if *fenced* | in order | only if *fenced* |
//! | CAS, FAA | only if *fenced* | in order | in order |
//!
//! A verb is fenced with [`Doorbell::fenced`](crate::Doorbell::fenced), which may stall the queue.
//! There is no order across queues, and none between the words of one verb. So design commits as
//! chains of WRITEs. A verb that follows the *completion* of another is of course behind it.
//!
//! # C2 Words
//!
//! Far memory is an array of 8-byte words, in little-endian byte order: every address and every
//! length is a multiple of 8. A word is read, written, compared-and-swapped or added to atomically.
//! Atomics are atomic against each other only when they go through the same node's fabric: CPU code
//! on the node never touches words that clients CAS.
//!
//! # C3 Tearing
//!
//! A READ or WRITE of more than a word is not atomic: it may tear between any two words, in any
//! order, and a WRITE cut off by its sender's death may land in part. Whoever reads more than a word
//! must be able to tell. That an aligned 64-byte line is never torn is a capability
//! ([`Capabilities::line_atomic`](crate::Capabilities::line_atomic)).
//!
//! # C4 Persistence
//!
//! A completion means visible, not persistent. A completed FLUSH makes persistent everything posted
//! earlier on that queue and everything that the queue's completed READs returned, whoever wrote it.
//! Whether there is persistence at all, and whether unflushed writes persist in posted order, is a
//! capability ([`Persistence`](crate::Persistence)).
//!
//! # C5 Errors
//!
//! A completion can be an error ([`FabricError`](crate::FabricError)). Nothing is retried silently,
//! and which verbs of a failed doorbell took effect is unknown; only a refused round
//! ([`FabricError::Refused`](crate::FabricError::Refused)) had none. After an error the queue is
//! broken until [`Queue::reconnect`](crate::Queue::reconnect), which returns only once no verb of
//! the old queue can take effect any more.
//!
//! # C6 Fencing
//!
//! The unit that is fenced is a client process. After [`Queue::fence`](crate::Queue::fence)
//! returned, no verb of that process, in flight or new, has any effect on that node, and the process
//! cannot connect to it again under the same id. On `shm` the kernel confirms that the process is
//! dead, after killing it if need be; on `local` the client handle is revoked.
