//! Whether Cilium is told which interfaces to work on.

use std::collections::BTreeMap;

use groundcrew_api::floating_ip::FloatingIP;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};

use super::named;
use crate::cluster::{list, read_opt};
use crate::finding::Finding;

const NAME: &str = "cilium";

pub(super) async fn look(client: &Client, namespace: &str) -> Option<Finding> {
    let config = named::<ConfigMap>(client, namespace);
    let floating: Api<FloatingIP> = Api::all(client.clone());
    let config = match read_opt("Cilium's settings", config.get("cilium-config")).await {
        Ok(config) => config?,
        Err(why) => {
            return Some(Finding::unknown(NAME, why.to_string(), "ask as a user who may read ConfigMaps there"));
        }
    };
    let floats = list("FloatingIPs", &floating, &ListParams::default().limit(1)).await.is_ok_and(|all| !all.is_empty());
    Some(judge(&config.data.unwrap_or_default(), floats))
}

/// Left to itself Cilium works on whatever interfaces it finds, and a floating address that comes changes what it finds.
fn judge(settings: &BTreeMap<String, String>, floats: bool) -> Finding {
    let devices = settings.get("devices").map(|devices| devices.trim()).filter(|devices| !devices.is_empty());
    match devices {
        Some(devices) => Finding::good(NAME, format!("works on {devices}")),
        None if !floats => Finding::good(NAME, "finds its devices by itself; no floating address disturbs it"),
        None => Finding::bad(
            NAME,
            "it finds its devices by itself: a floating address that comes or goes changes what it finds",
            "set devices in cilium-config to the interface with the node's own address, and restart Cilium",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn devices_must_be_named_where_addresses_float() {
        let settings = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(judge(&settings(&[]), false).state, State::Good);
        assert_eq!(judge(&settings(&[("devices", "ens3")]), true).state, State::Good);
        for unset in [settings(&[]), settings(&[("devices", " ")])] {
            let found = judge(&unset, true);
            assert!(found.state == State::Bad && found.next.is_some());
        }
    }
}
