//! Opening a pool that has a config store: this process becomes one of its sessions.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Worker, tcp};
use farside_pool::{Config, ConfigStore, Links, Means, Member, Petition, StoreError, View, store};
use farside_txn::{Identity, Session};

use crate::fabric::Fabric;
use crate::opening::{KEEPERS, Opened, fresh_id};
use crate::url::{Place, Url};
use crate::{Error, Result};

/// How long joining may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the config store may be away meanwhile.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Regions that a pool gets when it has none.
const REGIONS: u16 = 8;

/// Joins a pool. The session lives on this worker from now on.
pub(crate) async fn open(worker: &Worker, url: &Url, network: &tcp::Options) -> Result<Opened> {
    let Place::Pool(store_url) = &url.place else { unreachable!("only pools come here") };
    let store = store::open(store_url, Duration::from_secs(1)).map_err(Error::Invalid)?;
    let start = worker.now();
    let config = loop {
        let waited = worker.now() - start;
        let late = waited > PATIENCE;
        match store.read(0).await.map(|stored| stored.newest()) {
            Ok(Some(config)) => break config,
            Ok(None) if late => {
                return Err(Error::Invalid(
                    "there is no pool of that name: start its nodes".into(),
                ));
            }
            // It may be slow for a moment.
            Err(StoreError::Unreachable(_)) if waited < STORE_PATIENCE => {}
            Err(error) => return Err(Error::NodeLost(error.to_string())),
            Ok(None) => {}
        }
        worker.sleep(Duration::from_millis(50)).await;
    };
    if url.must_keep {
        return Err(Error::Invalid(format!(
            "durability=flush: members of a pool keep nothing yet; {KEEPERS}"
        )));
    }
    loop {
        match enter(worker, url, network, &store, &config).await {
            // It was put out before it could do anything: as good as never in.
            Err(Error::Fenced) if worker.now() - start < PATIENCE => {}
            entered => return entered,
        }
    }
}

/// Becomes a session, with an id of its own.
async fn enter(
    worker: &Worker,
    url: &Url,
    network: &tcp::Options,
    store: &Rc<dyn ConfigStore>,
    config: &Config,
) -> Result<Opened> {
    let client = fresh_id()?;
    let timeout = 4 * Duration::from_nanos(config.lease_ns);
    let fabric = Fabric::Net { client, options: network.clone(), timeout };
    let means = Means {
        worker: worker.clone(),
        client,
        store: Rc::clone(store),
        connect: fabric.connect(),
        left_out: None,
        eager: false,
    };
    let joined = Member::join(means).await.map_err(|error| Error::NodeLost(error.to_string()));
    let member = joined?;
    let view = member.view();
    worker.spawn(async move { member.run().await }).detach();
    wait(worker, &view, || view.may_act(worker.now()), "the pool's manager").await?;
    need_regions(worker, url, &**store, &view).await?;
    wait_for_clock(worker, &view).await?;
    let connect = fabric.connect();
    let links = Links::new(worker, &connect);
    let identity = Identity::claim(worker, &links, &view.seat(), client.0).await?;
    let session = Session::new(identity, url.limits);
    Ok(Opened { fabric, view, session, fixed: false })
}

/// Waits until the time of the pool is known here. Before that nothing is taken that others would miss a sign of life for.
pub(crate) async fn wait_for_clock(worker: &Worker, view: &View) -> Result<()> {
    let time = view.time();
    let is_decided = || time.bounds(worker).is_some() || time.is_faulty();
    wait(worker, view, is_decided, "the pool's clock").await?;
    match time.is_faulty() {
        true => Err(Error::Invalid(
            "the clock of this machine runs differently from those of the pool: mend its time source".into(),
        )),
        false => Ok(()),
    }
}

async fn wait(worker: &Worker, view: &View, ready: impl Fn() -> bool, what: &str) -> Result<()> {
    let start = worker.now();
    while !ready() {
        if view.is_put_out() {
            return Err(Error::Fenced);
        }
        if worker.now() - start > PATIENCE {
            return Err(Error::TimedOut(what.into()));
        }
        worker.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// The first who opens a pool asks for its regions.
async fn need_regions(
    worker: &Worker,
    url: &Url,
    store: &dyn ConfigStore,
    view: &View,
) -> Result<()> {
    let config = view.config();
    if !config.regions.is_empty() {
        return Ok(());
    }
    let copies = url.copies.unwrap_or(config.nodes.len().min(3));
    // Where there are more nodes than copies, there is room for the copies of one that is lost.
    let spare = usize::from(config.nodes.len() > copies);
    let nodes = (config.nodes.len() - spare) as u64;
    let smallest = config.nodes.iter().map(|node| node.bytes).min().unwrap_or(0);
    let room = smallest.saturating_sub(farside_pool::CONTROL_BYTES) * nodes / copies as u64;
    let bytes = crate::opening::region_bytes(room / u64::from(REGIONS))?;
    for number in 0..REGIONS {
        let petition = Petition::Region { number, bytes, copies };
        let asked = store.petition(&petition.key(), &petition.encode()).await;
        asked.map_err(|error| Error::NodeLost(error.to_string()))?;
        let made = || view.config().regions.len() > usize::from(number);
        wait(worker, view, made, "the regions of the pool").await?;
    }
    wait(worker, view, || view.may_act(worker.now()), "the pool's manager").await
}
