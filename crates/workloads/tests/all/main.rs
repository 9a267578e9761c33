//! Everything that is tested in the simulator, and the checker: one program, because all of it is made of the same large parts.

mod backup;
mod brute;
mod checker;
mod common;
mod contention;
mod crashes;
mod engines;
mod failover;
mod generators;
mod outages;
mod pool;
mod power;
mod presets;
mod protocol;
mod repair;
mod scrub;
mod shapes;
mod time;
mod versions;
