//! Calls.

use anyhow::{Result, bail, ensure};
use farside_fabric::FabricError;

use super::{finish, queues, start};
use crate::actor::{Job, Role};
use crate::bed::{Bed, service};

pub(super) async fn calls_are_answered(bed: &dyn Bed) -> Result<()> {
    for queue in queues(bed)? {
        for size in [0, 1, 7, 8, 1000, 64 << 10] {
            let request: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
            let reply = queue.call(service::ECHO, &request).await?;
            ensure!(reply == request, "{size} bytes were not echoed");
        }
        let who = queue.call(service::WHO, &[]).await?;
        ensure!(who == bed.client().0.to_le_bytes(), "taken for {who:?}");
    }
    Ok(())
}

pub(super) async fn failed_calls_say_why(bed: &dyn Bed) -> Result<()> {
    let queue = &queues(bed)?[0];
    match queue.call(service::FAIL, b"no such luck").await {
        Err(FabricError::Service { why, .. }) if why == "no such luck" => {}
        other => bail!("a failing service: {other:?}"),
    }
    match queue.call(service::NONE, &[]).await {
        Err(FabricError::NoService { service, .. }) if service == service::NONE => {}
        other => bail!("no service: {other:?}"),
    }
    match queue.call(service::ECHO, &vec![0; (64 << 10) + 1]).await {
        Err(FabricError::Limit { .. }) => {}
        other => bail!("a request that is too large: {other:?}"),
    }
    ensure!(queue.call(service::ECHO, b"still here").await? == b"still here");
    Ok(())
}

pub(super) async fn calls_of_many_clients_are_answered(bed: &dyn Bed) -> Result<()> {
    let job = |me| Job { role: Role::Call, node: 1, at: 0, count: 500, me };
    let actors = start(bed, &[job(1), job(2), job(3)]).await?;
    finish(bed, actors).await
}
