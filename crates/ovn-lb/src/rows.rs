//! All load balancers of an OVN and whose they are, for people. Nothing is written, and no Kubernetes is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use groundcrew_api::names::kube_ovn::is_own_load_balancer;
use groundcrew_ovn::Connection;
use ovsdb_client::{Replica, Uuid};
use tokio::time::timeout;

use crate::error::Error;
use crate::marks;
use crate::northbound::{LoadBalancer, Northbound};
use crate::view::View;

/// For connecting and reading.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many places a line names.
const MOST_PLACES: usize = 3;

/// Flags of `groundcrew ovn-rows`.
#[derive(Debug, Clone, clap::Args)]
pub struct RowsArgs {
    /// Where to look.
    #[command(flatten)]
    pub connection: Connection,

    /// The cluster whose load balancers are called ours; without it those of every cluster are
    #[arg(long, env = "GROUNDCREW_CLUSTER_ID", value_name = "ID")]
    pub cluster_id: Option<String>,

    /// Only those that are not ours
    #[arg(long, env = "GROUNDCREW_FOREIGN")]
    pub foreign: bool,
}

/// The table as text, one line for each load balancer, sorted by owner and name.
pub async fn rows(args: &RowsArgs) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let view: View = View { replica: Replica::open(args.connection.config()) };
    let Ok(nb) = timeout(PATIENCE, view.replica.synced()).await else {
        return Err(Box::new(Error::OutOfSight { why: view.replica.client().state().to_string() }));
    };
    Ok(show(&nb, args.cluster_id.as_deref(), args.foreign))
}

/// Whose a row is, as far as it can be told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// Of this cluster, or of any if none was named.
    Ours(String),
    /// Of another cluster.
    Another(String),
    /// kube-ovn's, by its name or vendor.
    KubeOvn,
    Unknown,
}

fn whose(row: &LoadBalancer, cluster: Option<&str>) -> Whose {
    if let Some(of) = row.external_ids.get(marks::CLUSTER) {
        let service = marks::owner(&row.external_ids, of).map_or_else(|| "no Service".to_owned(), |o| o.to_string());
        return match cluster {
            Some(cluster) if cluster == of => Whose::Ours(service),
            Some(_) => Whose::Another(format!("{service} of cluster {of}")),
            None => Whose::Ours(format!("{service} of cluster {of}")),
        };
    }
    let is_vendors = row.external_ids.get("vendor") == Some("kube-ovn");
    if is_vendors || is_own_load_balancer(&row.name) { Whose::KubeOvn } else { Whose::Unknown }
}

fn show(nb: &Northbound, cluster: Option<&str>, foreign: bool) -> String {
    let places = places(nb);
    let mut lines: Vec<(Whose, [String; 5])> = Vec::new();
    for (uuid, row) in nb.load_balancers.iter() {
        let whose = whose(row, cluster);
        if foreign && matches!(whose, Whose::Ours(_)) {
            continue;
        }
        let owner = match &whose {
            Whose::Ours(owner) | Whose::Another(owner) => owner.clone(),
            Whose::KubeOvn => "(kube-ovn)".to_owned(),
            Whose::Unknown => "(unknown)".to_owned(),
        };
        let attached = places.get(&uuid).map_or_else(|| "nowhere".to_owned(), listed);
        let name = if row.name.is_empty() { "-".to_owned() } else { row.name.to_string() };
        lines.push((whose, [owner, name, row.vips.len().to_string(), attached, uuid.to_string()]));
    }
    lines.sort();
    let header = ["OWNER", "NAME", "VIPS", "ATTACHED TO", "UUID"].map(str::to_owned);
    let all: Vec<_> = std::iter::once(&header).chain(lines.iter().map(|(_, cells)| cells)).collect();
    let width = |column: usize| all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for [owner, name, vips, attached, uuid] in all {
        let [w0, w1, w2, w3] = widths;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{owner:w0$}  {name:w1$}  {vips:>w2$}  {attached:w3$}  {uuid}");
    }
    text
}

fn listed(places: &BTreeSet<String>) -> String {
    let named: Vec<_> = places.iter().take(MOST_PLACES).map(String::as_str).collect();
    match places.len().saturating_sub(MOST_PLACES) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Where each row is attached.
fn places(nb: &Northbound) -> BTreeMap<Uuid, BTreeSet<String>> {
    let mut places: BTreeMap<Uuid, BTreeSet<String>> = BTreeMap::new();
    let mut grouped = BTreeSet::new();
    let routers = nb.routers.iter().map(|(_, row)| ("router", &row.name, &row.load_balancer, &row.load_balancer_group));
    let switches =
        nb.switches.iter().map(|(_, row)| ("switch", &row.name, &row.load_balancer, &row.load_balancer_group));
    for (kind, name, members, groups) in routers.chain(switches) {
        for member in members.iter() {
            places.entry(*member).or_default().insert(format!("{kind} {name}"));
        }
        for (uuid, group) in groups.iter().filter_map(|uuid| Some((uuid, nb.groups.get(*uuid)?))) {
            grouped.insert(*uuid);
            for member in group.load_balancer.iter() {
                places.entry(*member).or_default().insert(format!("{kind} {name} (group {})", group.name));
            }
        }
    }
    for (_, group) in nb.groups.iter().filter(|(uuid, _)| !grouped.contains(uuid)) {
        for member in group.load_balancer.iter() {
            places.entry(*member).or_default().insert(format!("group {}, which is nowhere", group.name));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use ovsdb_client::Touched;
    use serde_json::{Value, json};

    use super::*;

    fn northbound() -> Northbound {
        let id = |n| Uuid::from_u128(n).to_string();
        let row = |name: &str, marks: &[[&str; 2]]| json!({ "initial": { "name": name, "external_ids": ["map", marks], "vips": ["map", [["192.0.2.7:80", ""]]] } });
        let ours = |cluster, name: &str| {
            let uid = "00000000-0000-0000-0000-000000000001";
            let marks =
                [[marks::CLUSTER, cluster], [marks::NAMESPACE, "shop"], [marks::SERVICE, name], [marks::UID, uid]];
            row(&format!("shop-{name}-tcp-1a2b3c4d"), &marks)
        };
        let on = |name: &str, members: &[u128]| -> Value {
            let members: Vec<_> = members.iter().map(|n| json!(["uuid", id(*n)])).collect();
            json!({ "initial": { "name": name, "load_balancer": ["set", members] } })
        };
        let mut tables = json!({
            "Load_Balancer": {
                id(1): ours("c1", "web"), id(2): ours("c2", "web"), id(3): row("cluster-tcp-loadbalancer", &[]),
                id(4): row("x", &[["vendor", "kube-ovn"]]), id(5): row("shop-web-tcp", &[]),
            },
            "Load_Balancer_Group": { id(9): on("shop-group", &[1]), id(10): on("idle", &[2]) },
            "Logical_Router": { id(6): on("shop", &[5]) },
            "Logical_Switch": { id(7): on("shop-default", &[1]), id(8): on("ovn-default", &[3]) },
        });
        tables["Logical_Router"][id(6)]["initial"]["load_balancer_group"] = json!(["uuid", id(9)]);
        let mut nb = Northbound::default();
        ovsdb_client::apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    /// The first four columns.
    fn lines(text: &str) -> Vec<String> {
        let cut = |line: &str| {
            line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).take(4).collect::<Vec<_>>().join("|")
        };
        text.lines().skip(1).map(cut).collect()
    }

    #[test]
    fn every_row_is_listed_with_its_owner_and_its_places() {
        let text = show(&northbound(), Some("c1"), false);
        assert!(text.starts_with("OWNER "), "{text}");
        assert_eq!(
            lines(&text),
            [
                "shop/web|shop-web-tcp-1a2b3c4d|1|router shop (group shop-group), switch shop-default",
                "shop/web of cluster c2|shop-web-tcp-1a2b3c4d|1|group idle, which is nowhere",
                "(kube-ovn)|cluster-tcp-loadbalancer|1|switch ovn-default",
                "(kube-ovn)|x|1|nowhere",
                "(unknown)|shop-web-tcp|1|router shop",
            ]
        );
    }

    #[test]
    fn foreign_is_what_is_not_of_the_named_cluster_and_without_a_name_what_is_of_none() {
        assert_eq!(lines(&show(&northbound(), Some("c1"), true)).len(), 4);
        assert_eq!(lines(&show(&northbound(), None, true)).len(), 3);
        assert!(lines(&show(&northbound(), None, false))[0].starts_with("shop/web of cluster c1|"));
    }
}
