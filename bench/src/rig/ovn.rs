//! OVN's northbound database, and the floor at it: sockets that send prepared bytes and look at nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::ovn::lab::{Lab, ROUTER, SWITCH};
use groundcrew_testkit::ovn::{Central, Northbound as Server};
use ovsdb_client::ops::Mutator;
use ovsdb_client::{Condition, Op, Replica, StrMap, Uuid, Value};
use tokio::sync::mpsc;

use super::CLUSTER;
use crate::ovsdb::config;
use crate::ovsdb::raw::Raw;
use crate::world::{NAMESPACES, namespace};

ovsdb_client::table! {
    pub(crate) struct LoadBalancer = "Load_Balancer" {
        pub(crate) name: Arc<str>,
        pub(crate) vips: StrMap,
        pub(crate) protocol: Option<Box<str>>,
        pub(crate) options: StrMap,
        pub(crate) external_ids: StrMap,
    }
}

ovsdb_client::database! {
    pub(crate) struct Rows = "OVN_Northbound" {
        pub(crate) load_balancers: LoadBalancer,
    }
}

const TABLE: &str = "Load_Balancer";
const GLOBAL: &str = "NB_Global";
const PLACES: [&str; 2] = ["Logical_Router", "Logical_Switch"];

/// Where load balancers are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A router and a switch for each namespace.
    Tenants,
    /// One router and one switch for all.
    One,
}

impl Layout {
    /// What the controller has to be told about it.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Tenants => &[],
            Self::One => &["--ovn-router=all", "--ovn-switch=all-default"],
        }
    }

    fn names(self) -> Vec<String> {
        match self {
            Self::Tenants => (0..NAMESPACES).map(namespace).collect(),
            Self::One => vec!["all".into()],
        }
    }
}

enum Servers {
    /// With somebody who says at once what northd says when it has done its work, which is no work of ours.
    Confirmed {
        server: Box<Server>,
        _confirmer: Confirmer,
    },
    WithNorthd(Box<Central>),
    /// With a data path.
    Lab(Arc<Lab>),
}

pub(crate) struct Ovn {
    servers: Servers,
    pub(crate) layout: Layout,
    /// Routers and switches by table and name.
    places: BTreeMap<(&'static str, String), Uuid>,
    socket: PathBuf,
}

/// A row; its marks say where it is attached.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    pub(crate) uuid: Uuid,
    pub(crate) row: Arc<LoadBalancer>,
}

impl Ovn {
    /// The database, and somebody in northd's place who confirms and translates nothing.
    pub(crate) async fn start(layout: Layout) -> Result<Self> {
        let server = Box::new(Server::standalone().await?);
        let confirmer = Confirmer::start(Path::new(server.unix(0).trim_start_matches("unix:")))?;
        Self::on(Servers::Confirmed { server, _confirmer: confirmer }, layout)
    }

    /// With northd, which translates whatever is written.
    pub(crate) async fn with_northd(layout: Layout) -> Result<Self> {
        Self::on(Servers::WithNorthd(Box::new(Central::start().await?)), layout)
    }

    /// With the one project that a lab has.
    pub(crate) async fn of_lab(lab: Arc<Lab>) -> Result<Self> {
        let mut ovn = Self::bare(Servers::Lab(lab), Layout::Tenants);
        for (table, name) in PLACES.into_iter().zip([ROUTER, SWITCH].map(str::to_owned)) {
            let uuid = ovn.server().nbctl(["--bare", "--columns=_uuid", "list", table, &name]).await?.trim().parse()?;
            ovn.places.insert((table, name), uuid);
        }
        Ok(ovn)
    }

    fn bare(servers: Servers, layout: Layout) -> Self {
        let mut ovn = Self { servers, layout, places: BTreeMap::new(), socket: PathBuf::new() };
        ovn.socket = ovn.endpoint().trim_start_matches("unix:").into();
        ovn
    }

    fn on(servers: Servers, layout: Layout) -> Result<Self> {
        let mut ovn = Self::bare(servers, layout);
        let mut ops = Vec::new();
        for (n, name) in layout.names().into_iter().enumerate() {
            let places = [(PLACES[0], name.clone()), (PLACES[1], format!("{name}-default"))];
            let uuids = [Uuid::new_v4(), Uuid::new_v4()];
            ops.extend(project(n, &name, uuids));
            ovn.places.extend(places.into_iter().zip(uuids));
        }
        succeed(&ovn.raw()?.exchange(&Raw::transact_request(&ops)?)?)?;
        Ok(ovn)
    }

    pub(crate) fn server(&self) -> &Server {
        match &self.servers {
            Servers::Confirmed { server, .. } => server,
            Servers::WithNorthd(central) => central.northbound(),
            Servers::Lab(lab) => lab.northbound(),
        }
    }

    /// The same socket for the controller and for its floor.
    pub(crate) fn endpoint(&self) -> String {
        self.server().unix(0)
    }

    pub(crate) fn raw(&self) -> Result<Raw> {
        Raw::connect(&self.socket)
    }

    /// Everything that is there.
    pub(crate) async fn rows(&self) -> Result<Vec<Attached>> {
        let replica = Replica::<Rows>::open(config(&self.endpoint())?);
        let rows = replica.synced().await;
        Ok(rows.load_balancers.iter().map(|(uuid, row)| Attached { uuid, row: row.clone() }).collect())
    }

    /// Transactions of the controller since the server started, its claims of an epoch included.
    pub(crate) async fn transactions(&self) -> Result<usize> {
        let prefix = format!("groundcrew {CLUSTER} ");
        Ok(self.server().comments().await?.iter().filter(|comment| comment.contains(&prefix)).count())
    }

    /// Deletes every load balancer in one transaction.
    pub(crate) fn delete_all() -> Result<Vec<u8>> {
        Raw::transact_request(&[Op::delete(TABLE, [])])
    }

    pub(crate) fn delete(uuid: Uuid) -> Result<Vec<u8>> {
        Raw::transact_request(&[Op::delete(TABLE, [Condition::uuid(uuid)])])
    }

    /// One transaction with all of these rows, one mutation for each router and each switch, and the guards that the
    /// controller has.
    pub(crate) fn insert(&self, rows: &[Attached]) -> Result<Vec<u8>> {
        let epoch = Op::wait(GLOBAL, []).columns(["_uuid"]).are_not([]);
        let mut ops = vec![epoch.into()];
        let mut members = BTreeMap::<_, Vec<Uuid>>::new();
        for Attached { uuid, row } in rows {
            ops.push(
                Op::insert(TABLE)
                    .uuid(*uuid)
                    .set("name", &*row.name)
                    .set("vips", &row.vips)
                    .set("protocol", row.protocol.clone())
                    .set("options", &row.options)
                    .set("external_ids", &row.external_ids)
                    .into(),
            );
            for (table, mark) in PLACES.into_iter().zip(["groundcrew-router", "groundcrew-switch"]) {
                let place = row.external_ids.get(mark).context("a row without our marks")?;
                members.entry((table, place.to_owned())).or_default().push(*uuid);
            }
        }
        for (place, rows) in members {
            let uuid = *self.places.get(&place).context("a row on a router that is not ours")?;
            let (table, name) = place;
            let mutate = Op::mutate(table, [Condition::uuid(uuid)]);
            ops.push(Op::wait(table, [Condition::uuid(uuid)]).has("name", name).into());
            ops.push(mutate.mutation("load_balancer", Mutator::Insert, Value::set(rows)).into());
        }
        ops.push(Op::mutate(GLOBAL, []).mutation("nb_cfg", Mutator::Add, 1).into());
        ops.push(Op::comment("raw"));
        ops.push(Op::select(GLOBAL, []).columns(["nb_cfg"]).into());
        Raw::transact_request(&ops)
    }

    /// A raw socket with the monitor that the controller has, in place of the controller.
    pub(crate) fn stand_in(&self) -> Result<Raw> {
        let mut raw = self.raw()?;
        let tables = [
            (
                TABLE,
                &[
                    "name",
                    "vips",
                    "protocol",
                    "options",
                    "selection_fields",
                    "health_check",
                    "ip_port_mappings",
                    "external_ids",
                ][..],
            ),
            ("Load_Balancer_Health_Check", &["vip", "options"]),
            (
                PLACES[0],
                &["name", "load_balancer", "load_balancer_group", "ports", "static_routes", "policies", "options"],
            ),
            (PLACES[1], &["name", "load_balancer", "load_balancer_group"]),
            ("Logical_Router_Port", &["name", "networks", "gateway_chassis", "ha_chassis_group", "peer"]),
            ("Logical_Router_Static_Route", &["policy", "ip_prefix", "nexthop"]),
            ("Logical_Router_Policy", &["match", "action", "nexthop", "nexthops"]),
            ("NAT", &["external_ip"]),
            ("Load_Balancer_Group", &["name", "load_balancer"]),
            ("Logical_Switch_Port", &["type", "options"]),
            ("Port_Group", &["name", "ports", "acls", "external_ids"]),
            ("ACL", &["priority", "direction", "match", "action", "options", "external_ids"]),
            (GLOBAL, &["external_ids", "options", "nb_cfg", "sb_cfg"]),
        ];
        raw.exchange(&Raw::monitor_request(&tables))?;
        Ok(raw)
    }

    pub(crate) fn watch(&self) -> Result<RowWatch> {
        RowWatch::start(&self.socket)
    }

    /// Begins to count transactions and queries that the server is asked for.
    pub(crate) async fn count_requests(&self) -> Result<Requests<'_>> {
        self.server().appctl(0, ["vlog/set", "jsonrpc:console:dbg"]).await?;
        let mut requests = Requests { server: self.server(), before: 0.0 };
        requests.before = requests.now()?;
        Ok(requests)
    }

    /// Waits until northd has translated all there is.
    pub(crate) async fn wait_northd(&self) -> Result<()> {
        if let Servers::WithNorthd(central) = &self.servers {
            central.northbound().nbctl(["--wait=sb", "--timeout=300", "sync"]).await?;
        }
        Ok(())
    }
}

/// What the server was asked for, by its own log.
pub(crate) struct Requests<'a> {
    server: &'a Server,
    before: f64,
}

impl Requests<'_> {
    /// So many until now.
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    pub(crate) fn now(&self) -> Result<f64> {
        let log = self.server.log(0)?;
        let asked = log.lines().filter(|line| line.contains(r#"received request, method="transact""#));
        Ok(asked.count() as f64 - self.before)
    }
}

/// Copies `nb_cfg` to `sb_cfg`.
struct Confirmer {
    socket: std::os::unix::net::UnixStream,
}

impl Confirmer {
    fn start(socket: &Path) -> Result<Self> {
        let (mut raw, mut writer) = (Raw::connect(socket)?, Raw::connect(socket)?);
        let socket = raw.try_clone()?;
        raw.exchange(&Raw::monitor_request(&[(GLOBAL, &["nb_cfg"])]))?;
        thread::spawn(move || -> Result<()> {
            loop {
                let message: serde_json::Value = serde_json::from_slice(&raw.read(1)?)?;
                let rows = message["params"][2][GLOBAL].as_object().context("an update of another table")?;
                let number = rows.values().find_map(|row| row["modify"]["nb_cfg"].as_i64());
                if let Some(number) = number {
                    let confirm = Op::update(GLOBAL, []).set("sb_cfg", number);
                    writer.transact(&Raw::transact_request(&[confirm.into()])?)?;
                }
            }
        });
        Ok(Self { socket })
    }
}

impl Drop for Confirmer {
    fn drop(&mut self) {
        // Ends the thread; there is nobody to tell if it has ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Whether a transaction was carried out.
pub(crate) fn succeed(reply: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(reply);
    ensure!(
        !text.contains(r#""details""#) && !text.contains("timed out"),
        "{}",
        text.chars().take(500).collect::<String>()
    );
    Ok(())
}

/// A router and a switch that know each other.
fn project(n: usize, name: &str, [router, switch]: [Uuid; 2]) -> [Op; 4] {
    let (router_port, switch_port) = (Uuid::new_v4(), Uuid::new_v4());
    let (inside, outside) = (format!("{name}-in"), format!("{name}-default-out"));
    let mac = format!("0a:00:00:01:{:02x}:{:02x}", n / 256, n % 256);
    [
        Op::insert("Logical_Router_Port")
            .uuid(router_port)
            .set("name", &inside)
            .set("mac", mac)
            .set("networks", Value::set(["10.128.0.1/9"]))
            .into(),
        Op::insert("Logical_Router").uuid(router).set("name", name).set("ports", Value::set([router_port])).into(),
        Op::insert("Logical_Switch_Port")
            .uuid(switch_port)
            .set("name", outside)
            .set("type", "router")
            .set("addresses", Value::set(["router"]))
            .set("options", Value::map([("router-port", inside)]))
            .into(),
        Op::insert("Logical_Switch")
            .uuid(switch)
            .set("name", format!("{name}-default"))
            .set("ports", Value::set([switch_port]))
            .into(),
    ]
}

/// One transaction as a monitor of row names sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Rows that there are now.
    pub(crate) total: usize,
    pub(crate) inserted: usize,
}

/// A monitor in a thread of its own that notes when rows come and go, and is the same for the controller and for the floor.
pub(crate) struct RowWatch {
    seen: mpsc::UnboundedReceiver<Seen>,
    total: usize,
    socket: std::os::unix::net::UnixStream,
}

impl RowWatch {
    fn start(socket: &Path) -> Result<Self> {
        let mut raw = Raw::connect(socket)?;
        let initial = raw.exchange(&Raw::monitor_request(&[(TABLE, &["name"])]))?;
        let mut total = count(&initial, br#""initial""#);
        let (sender, seen) = mpsc::unbounded_channel();
        let watch = Self { seen, total, socket: raw.try_clone()? };
        thread::spawn(move || {
            while let Ok(message) = raw.read(1) {
                let at = Instant::now();
                let (inserted, deleted) = (count(&message, br#""insert""#), count(&message, br#""delete""#));
                total = (total + inserted).saturating_sub(deleted);
                if sender.send(Seen { at, total, inserted }).is_err() {
                    return;
                }
            }
        });
        Ok(watch)
    }

    /// Rows that there were at the last change.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The next change.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<Seen> {
        let seen = tokio::time::timeout(within, self.seen.recv()).await;
        let seen = seen.with_context(|| format!("no change within {within:?}; {} rows", self.total))?;
        let seen = seen.context("the monitor ended")?;
        self.total = seen.total;
        Ok(seen)
    }

    /// When there were so many.
    pub(crate) async fn until(&mut self, total: usize, within: Duration) -> Result<Instant> {
        let mut at = Instant::now();
        let deadline = at + within;
        while self.total != total {
            at = self.next(deadline.saturating_duration_since(Instant::now())).await?.at;
        }
        Ok(at)
    }
}

impl Drop for RowWatch {
    fn drop(&mut self) {
        // Ends the thread; there is nobody to tell if it has ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Row names of a benchmark have none of these words.
fn count(message: &[u8], word: &[u8]) -> usize {
    // One search for the rare first byte and a comparison: a message has megabytes.
    let mut found = 0;
    let mut rest = message;
    while let Some(at) = rest.iter().position(|byte| *byte == b'"') {
        rest = &rest[at..];
        if rest.starts_with(word) {
            found += 1;
        }
        rest = &rest[1..];
    }
    found
}
