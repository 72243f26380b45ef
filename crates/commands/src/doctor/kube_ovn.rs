//! Whether kube-ovn is there, and whether its collection will delete our rows.

use groundcrew_api::names::kube_ovn::CONTROLLER;
use groundcrew_ovn::collection::{Version, deletes_others, remedy};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;
use kube::api::ListParams;

use super::named;
use crate::cluster::list;
use crate::finding::Finding;

const NAME: &str = "kube-ovn";

pub(super) async fn look(client: &Client, namespace: &str) -> Option<Finding> {
    let pods = named::<Pod>(client, namespace);
    let labels = ListParams::default().labels(&format!("app={CONTROLLER}"));
    match list(&format!("Pods of {namespace}"), &pods, &labels).await {
        Ok(pods) => judge(&pods),
        Err(why) => Some(Finding::unknown(NAME, why.to_string(), "ask as a user who may list Pods there")),
    }
}

/// Nothing to say where there is no kube-ovn.
fn judge(pods: &[Pod]) -> Option<Finding> {
    let containers = pods.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| &spec.containers);
    let container = containers.into_iter().find(|container| container.name == CONTROLLER)?;
    let version = container.image.as_deref().and_then(Version::of_image);
    let words = version.map_or_else(|| "of an unknown version".to_owned(), |version| version.to_string());
    let serves = setting(container, "ENABLE_LB", "enable-lb").is_none_or(|value| value != "false");
    let collects = setting(container, "GC_INTERVAL", "gc-interval").is_none_or(|value| value != "0");
    Some(if deletes_others(version, serves, collects) {
        let found =
            format!("{words} deletes our load balancers each time that its leader starts (they are put back at once)");
        Finding::bad(NAME, found, remedy(version))
    } else {
        Finding::good(NAME, format!("{words} leaves our load balancers alone"))
    })
}

/// What a container is told, by a flag or by the variable that its script makes a flag of.
fn setting(container: &Container, variable: &str, flag: &str) -> Option<String> {
    let words = container.command.iter().chain(&container.args).flatten();
    let prefix = format!("--{flag}=");
    let by_flag = words.filter_map(|word| word.strip_prefix(&prefix)).next_back().map(str::to_owned);
    let by_variable = || {
        let variables = container.env.iter().flatten();
        variables.filter(|each| each.name == variable).find_map(|each| each.value.clone())
    };
    by_flag.or_else(by_variable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::finding::State;

    fn pod(image: &str, args: &[&str], env: &[(&str, &str)]) -> Vec<Pod> {
        let env: Vec<_> = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        let pod =
            json!({ "spec": { "containers": [{ "name": CONTROLLER, "image": image, "args": args, "env": env }] } });
        vec![serde_json::from_value(pod).unwrap()]
    }

    #[test]
    fn a_kube_ovn_as_installed_deletes_and_one_that_was_told_does_not() {
        assert_eq!(judge(&[]), None);
        let fresh = judge(&pod("kubeovn/kube-ovn:v1.14.4", &["--enable-lb=true"], &[])).unwrap();
        assert_eq!(fresh.state, State::Bad);
        assert!(fresh.next.unwrap().contains("GC_INTERVAL=0"));
        let told =
            |args: &[&str], env: &[(&str, &str)]| judge(&pod("kubeovn/kube-ovn:v1.15.2", args, env)).unwrap().state;
        assert_eq!(told(&["--gc-interval=0"], &[]), State::Good);
        assert_eq!(told(&[], &[("GC_INTERVAL", "0")]), State::Good);
        assert_eq!(told(&["--enable-lb=false"], &[]), State::Good);
        assert_eq!(told(&["--gc-interval=360"], &[("GC_INTERVAL", "0")]), State::Bad, "the flag counts");
    }
}
