//! `groundcrew pools`: what addresses there are, and how many are left.

use std::fmt::Write;

use groundcrew_api::address_pool::{AddressCounts, AddressPool};
use groundcrew_api::kube_ovn::{OvnEip, Subnet};
use groundcrew_api::names::label;
use groundcrew_core::runtime::StartError;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use crate::cluster::{ClusterArgs, list};
use crate::output::{Answer, Output, columns, data};

/// Flags of `groundcrew pools`.
#[derive(Debug, Clone, clap::Args)]
pub struct PoolsArgs {
    /// How the answer is printed
    #[arg(long, short, env = "GROUNDCREW_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Output,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Addresses of one family in one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    name: String,
    /// `AddressPool`, or kube-ovn's `Subnet`.
    kind: &'static str,
    network_type: Option<String>,
    family: &'static str,
    used: i64,
    /// kube-ovn does not count them reliably.
    free: Option<i64>,
    /// What is wrong with it.
    notes: Vec<String>,
}

/// All pools: ours, and the external Subnets of kube-ovn.
pub async fn pools(args: &PoolsArgs) -> Result<Answer, StartError> {
    let client = args.cluster.client().await?;
    let (pools, subnets, eips): (Api<AddressPool>, Api<Subnet>, Api<OvnEip>) =
        (Api::all(client.clone()), Api::all(client.clone()), Api::all(client));
    let pools = list("AddressPools", &pools, &ListParams::default()).await?;
    let external = ListParams::default().labels(label::EXTERNAL_NETWORK_TYPE);
    let subnets = list("Subnets", &subnets, &external).await?;
    let eips = if subnets.is_empty() { Vec::new() } else { list("OvnEips", &eips, &ListParams::default()).await? };
    let lines: Vec<_> = pools.iter().flat_map(of_pool).chain(subnets.iter().map(|net| of_subnet(net, &eips))).collect();
    let text = if args.output == Output::Table { table(&lines) } else { data(&lines, args.output) };
    Ok(Answer { text, code: 0 })
}

fn of_pool(pool: &AddressPool) -> Vec<Line> {
    let status = pool.status.clone().unwrap_or_default();
    let mut notes = Vec::new();
    if pool.spec.disabled {
        notes.push("disabled".to_owned());
    }
    let wrong = |condition: &&_| matches!(condition_words(condition), ("Ready", "False") | ("Overlap", "True"));
    notes.extend(status.conditions.iter().filter(wrong).map(|condition| condition.message.clone()));
    if pool.status.is_none() {
        notes.push("not counted yet: no controller has looked at it".to_owned());
    }
    let line = |family, counts: &AddressCounts| Line {
        name: pool.metadata.name.clone().unwrap_or_default(),
        kind: "AddressPool",
        network_type: pool.spec.external_network_type.clone(),
        family,
        used: counts.used,
        free: Some(counts.free),
        notes: notes.clone(),
    };
    let counted = [("IPv4", &status.ipv4), ("IPv6", &status.ipv6)];
    let mut lines: Vec<_> =
        counted.iter().filter_map(|(family, counts)| Some(line(family, counts.as_ref()?))).collect();
    if lines.is_empty() {
        lines.push(Line { free: None, ..line("-", &AddressCounts::default()) });
    }
    lines
}

fn condition_words(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> (&str, &str) {
    (&condition.type_, &condition.status)
}

fn of_subnet(subnet: &Subnet, eips: &[OvnEip]) -> Line {
    let name = subnet.metadata.name.clone().unwrap_or_default();
    let used = eips.iter().filter(|eip| eip.spec.external_subnet.as_deref() == Some(&*name)).count();
    let labels = subnet.metadata.labels.as_ref();
    Line {
        kind: "Subnet",
        network_type: labels.and_then(|labels| labels.get(label::EXTERNAL_NETWORK_TYPE).cloned()),
        family: match subnet.spec.cidr_block.as_deref() {
            Some(block) if block.contains(',') => "dual",
            Some(block) if block.contains(':') => "IPv6",
            _ => "IPv4",
        },
        used: i64::try_from(used).unwrap_or(i64::MAX),
        free: None,
        notes: Vec::new(),
        name,
    }
}

fn table(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "there is no AddressPool and no external Subnet\n".to_owned();
    }
    let cells = lines.iter().map(|line| {
        let (free, bar) =
            line.free.map_or_else(|| ("-".into(), String::new()), |free| (free.to_string(), bar(line.used, free)));
        let kind = line.network_type.clone().unwrap_or_else(|| "-".into());
        [
            line.name.clone(),
            line.kind.to_owned(),
            kind,
            line.family.to_owned(),
            line.used.to_string(),
            free,
            bar,
            line.notes.join("; "),
        ]
    });
    columns(&["NAME", "KIND", "TYPE", "FAMILY", "USED", "FREE", "", "NOTES"], cells)
}

/// How full it is, in ten steps and in percent. Only what is empty has no step, and only what is full has all.
fn bar(used: i64, free: i64) -> String {
    let total = used.saturating_add(free);
    if total <= 0 {
        return String::new();
    }
    let percent = used.saturating_mul(100) / total;
    let steps = usize::try_from((percent + 9) / 10).unwrap_or(0).min(if free > 0 { 9 } else { 10 });
    let mut text = format!("[{}{}]", "#".repeat(steps), ".".repeat(10 - steps));
    // Writing to a string cannot fail.
    let _ = write!(text, " {percent} %");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_has_a_line_for_each_family_and_says_what_is_wrong() {
        let pool: AddressPool = serde_json::from_value(json!({
            "metadata": { "name": "public" },
            "spec": { "addresses": ["192.0.2.0/30"], "disabled": true },
            "status": {
                "ipv4": { "used": 3, "free": 1 }, "ipv6": { "used": 0, "free": 16 },
                "conditions": [{
                    "type": "Overlap", "status": "True", "reason": "Overlap", "message": "has addresses of pool other",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .unwrap();
        let text = table(&of_pool(&pool));
        assert!(text.contains("[########..] 75 %") && text.contains("[..........] 0 %"), "{text}");
        assert!(text.contains("disabled; has addresses of pool other"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_bar_is_full_only_when_nothing_is_left() {
        assert_eq!(bar(999, 1), "[#########.] 99 %");
        assert_eq!(bar(4, 0), "[##########] 100 %");
        assert_eq!(bar(1, 999), "[..........] 0 %");
        assert_eq!(bar(0, 0), "");
    }

    #[test]
    fn addresses_of_kube_ovn_are_counted_by_their_objects() {
        let subnet: Subnet = serde_json::from_value(json!({
            "metadata": { "name": "ext", "labels": { "network.kube-dc.com/external-network-type": "public" } },
            "spec": { "cidrBlock": "192.0.2.0/24,2001:db8::/64" },
        }))
        .unwrap();
        let eip = |net: &str| -> OvnEip {
            serde_json::from_value(json!({ "metadata": { "name": "x" }, "spec": { "externalSubnet": net } })).unwrap()
        };
        let line = of_subnet(&subnet, &[eip("ext"), eip("other"), eip("ext")]);
        assert_eq!((line.used, line.free, line.family), (2, None, "dual"));
    }
}
