//! Whether OVN can be reached, which it is, and who leads it.

use groundcrew_ovn::mark;

use crate::finding::Finding;
use crate::ovn::{Northbound, OvnArgs, Southbound, everything};

const NAME: &str = "ovn";

pub(super) async fn look(args: &OvnArgs) -> Vec<Finding> {
    let Some(replica) = args.northbound::<Northbound>() else { return Vec::new() };
    let nb = match everything(&replica).await {
        Ok(nb) => nb,
        Err(why) => {
            let next =
                "look whether the endpoints of --ovn-nb are right, and whether ovsdb-server runs and has a leader";
            return vec![Finding::bad(NAME, why.to_string(), next)];
        }
    };
    let leader = match replica.client().state() {
        ovsdb_client::State::InSync { endpoint } => endpoint.to_string(),
        other => other.to_string(),
    };
    let ours = nb.load_balancers.iter().filter(|(_, row)| row.external_ids.get(mark::CLUSTER).is_some()).count();
    let found =
        format!("northbound database at {leader}, {} load balancers, {ours} of them ours", nb.load_balancers.len());
    let mut findings = vec![Finding::good(NAME, found)];
    if args.ovn_nb.len() > 1 {
        findings.push(members(args).await);
    }
    findings.push(northd(&nb));
    if let Some(replica) = args.southbound::<Southbound>() {
        findings.push(match everything(&replica).await {
            Ok(sb) => Finding::good("southbound", format!("{} chassis", sb.chassis.len())),
            Err(why) => Finding::bad("southbound", why.to_string(), "look whether the endpoints of --ovn-sb are right"),
        });
    }
    findings
}

/// Whether each member of a cluster answers: with one away it works, with another it does not.
async fn members(args: &OvnArgs) -> Finding {
    const NAME: &str = "ovn cluster";
    let mut away = Vec::new();
    for endpoint in &args.ovn_nb {
        let reached = match endpoint_address(&endpoint.to_string()) {
            Some(address) => {
                let connecting = tokio::net::TcpStream::connect(address);
                matches!(tokio::time::timeout(crate::cluster::PATIENCE, connecting).await, Ok(Ok(_)))
            }
            // A socket of this machine: that there was an answer is all that can be said.
            None => true,
        };
        if !reached {
            away.push(endpoint.to_string());
        }
    }
    if away.is_empty() {
        return Finding::good(NAME, format!("all {} members answer", args.ovn_nb.len()));
    }
    let next = "look at that member's ovsdb-server: without a majority nothing can be written";
    Finding::bad(NAME, format!("no connection to {}", away.join(", ")), next)
}

fn endpoint_address(endpoint: &str) -> Option<&str> {
    endpoint.strip_prefix("tcp:").or_else(|| endpoint.strip_prefix("ssl:"))
}

fn northd(nb: &Northbound) -> Finding {
    const NAME: &str = "ovn version";
    let Some((_, global)) = nb.global.iter().next() else {
        return Finding::bad(NAME, "the database has no NB_Global row", "start ovn-northd: it makes the row");
    };
    let Some(version) = global.options.get("northd_internal_version") else {
        return Finding::bad(NAME, "no ovn-northd has ever run on this database", "start ovn-northd");
    };
    let release = version.split('-').next().unwrap_or(version);
    let mut parts = release.split('.').map_while(|part| part.parse::<u32>().ok());
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if (major, minor) < (21, 3) {
        return Finding::bad(NAME, format!("{release} is too old"), "upgrade OVN to 21.03 or later");
    }
    if (major, minor) < (22, 12) {
        let next = "upgrade OVN to 22.12 or later for sessionAffinity";
        return Finding::note(NAME, format!("{release} has no affinity_timeout")).with_next(next);
    }
    Finding::good(NAME, format!("ovn-northd {release}"))
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, Uuid};
    use serde_json::json;

    use super::*;
    use crate::finding::State;

    #[test]
    fn the_version_is_northds_and_an_old_one_is_told() {
        let northd_of = |options: serde_json::Value| {
            let row = json!({ "NB_Global": { Uuid::from_u128(1).to_string(): { "initial": { "options": ["map", options] } } } });
            let mut nb = Northbound::default();
            ovsdb_client::apply(&row.to_string(), &mut nb, &mut Touched::default()).unwrap();
            northd(&nb)
        };
        let version = |text: &str| northd_of(json!([["northd_internal_version", text]]));
        assert_eq!(version("23.03.1-20.27.0-70.6").state, State::Good);
        assert_eq!(version("22.03.0-20.21.0-58.3").state, State::Note);
        assert_eq!(version("20.12.0-20.12.0-53.0").state, State::Bad);
        assert_eq!(northd_of(json!([])).state, State::Bad);
        assert_eq!(northd(&Northbound::default()).state, State::Bad);
    }
}
