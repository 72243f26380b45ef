//! What the tests read of the northbound database, and short ways to say it.

use std::sync::Arc;
use std::time::Duration;

use ovsdb_client::{Config, Endpoint, Op, Replica, Row, Rows, Set, Snapshot, State, StrMap, Uuid, Value, parse_list};
use tokio::time::{Instant, timeout};

ovsdb_client::table! {
    pub(crate) struct LoadBalancer = "Load_Balancer" {
        pub(crate) name: Arc<str>,
        pub(crate) vips: StrMap,
        pub(crate) protocol: Option<Box<str>>,
        pub(crate) health_check: Set<Uuid>,
        pub(crate) selection_fields: Set<Box<str>>,
        pub(crate) external_ids: StrMap,
    }
    indexes LoadBalancersBy {
        name: Arc<str> = |row| Some(row.name.clone()),
        owner: Arc<str> = |row| row.external_ids.get("owner").map(Arc::from),
    }
}

ovsdb_client::table! {
    pub(crate) struct Router = "Logical_Router" {
        pub(crate) name: Arc<str>,
        pub(crate) enabled: Option<bool>,
        pub(crate) load_balancer: Set<Uuid>,
    }
    indexes RoutersBy {
        load_balancer: Uuid = |row| row.load_balancer.to_vec(),
    }
}

ovsdb_client::table! {
    pub(crate) struct Global = "NB_Global" {
        pub(crate) nb_cfg: i64,
        pub(crate) external_ids: StrMap,
    }
}

ovsdb_client::database! {
    pub(crate) struct Northbound = "OVN_Northbound" {
        pub(crate) load_balancers: LoadBalancer,
        pub(crate) routers: Router,
        pub(crate) globals: Global,
    }
}

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn endpoints(list: &str) -> Vec<Endpoint> {
    parse_list(list).unwrap()
}

pub(crate) fn config(list: &str) -> Config {
    Config::new(endpoints(list))
}

pub(crate) fn in_time() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn new_lb(uuid: Uuid, name: &str) -> Op {
    Op::insert(LoadBalancer::TABLE)
        .uuid(uuid)
        .set("name", name)
        .set("vips", Value::map([("192.0.2.1:80", "10.0.0.1:8080,10.0.0.2:8080")]))
        .set("external_ids", Value::map([("owner", name), ("cluster", "test")]))
        .into()
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("nothing within 30 s")
}

/// Waits until the replica is as wanted, looking only when it changes.
pub(crate) async fn until(replica: &Replica<Northbound>, wanted: impl Fn(&Northbound) -> bool) -> Snapshot<Northbound> {
    let mut changes = replica.changes();
    soon(async {
        loop {
            let now = replica.snapshot();
            if wanted(&now) {
                return now;
            }
            changes.next().await;
        }
    })
    .await
}

pub(crate) async fn until_state(replica: &Replica<Northbound>, wanted: impl Fn(&State) -> bool) -> State {
    let mut states = replica.client().watch_state();
    soon(states.wait_for(|state| wanted(state))).await.unwrap().clone()
}

pub(crate) fn names(snapshot: &Northbound) -> Vec<Arc<str>> {
    let mut names: Vec<_> = snapshot.load_balancers.iter().map(|(_, row)| row.name.clone()).collect();
    names.sort();
    names
}

/// The load balancers among changed rows; panics on `Everything`.
pub(crate) fn touched(rows: &Rows, table: &str) -> Vec<Uuid> {
    match rows {
        Rows::Everything => panic!("everything changed"),
        Rows::Some(rows) => rows.iter().filter(|row| &*row.table == table).map(|row| row.uuid).collect(),
    }
}
