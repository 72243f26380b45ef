//! How OpenStack's cloud controller manager and Octavia's Ingress controller mark what they make.
//!
//! A name begins with the cluster's, and so does the name of a cluster whose name begins with ours (`demo` and `demo_x`).
//! So names are never searched by their beginning: the description says for whom the thing was made, and the name must be
//! the one that follows from it.

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::User;
use openstack_client::load_balancer::LoadBalancer;
use openstack_client::network::{FloatingIp, SecurityGroup};

/// Octavia cuts longer ones.
const LONGEST_NAME: usize = 255;

/// The name that a cluster has if nobody gave it one: any other cluster in the project may have it too.
const DEFAULTS: [&str; 2] = ["", "kubernetes"];

/// Why a mark with this name proves nothing.
pub(super) fn doubt(cluster: &str) -> Option<String> {
    let doubt =
        || format!("the cluster's name {cluster:?} is a default that another cluster in this project may have too");
    DEFAULTS.contains(&cluster).then(doubt)
}

/// Whom this load balancer was made for, if this cluster's controllers made it.
pub(super) fn load_balancer(balancer: &LoadBalancer, cluster: &str) -> Option<User> {
    let made_for = described(&balancer.description, cluster)?;
    let expected = match &made_for {
        User::Ingress(key) => name("ingress", cluster, key),
        User::Service(key) | User::Claim(key) => name("service", cluster, key),
    };
    (balancer.name == expected).then_some(made_for)
}

/// The end of most descriptions.
fn described(text: &str, cluster: &str) -> Option<User> {
    let text = text.strip_prefix("Kubernetes ")?;
    let of_it = format!(" from cluster {cluster}");
    if let Some(service) = text.strip_prefix("external service ") {
        return key(service.strip_suffix(&of_it)?).map(User::Service);
    }
    let ingress = text.strip_prefix("ingress ").or_else(|| text.strip_prefix("Ingress "))?;
    let (name, namespace) = unversioned(ingress).strip_suffix(&of_it)?.split_once(" in namespace ")?;
    key(&format!("{namespace}/{name}")).map(User::Ingress)
}

/// Once a load balancer is as its Ingress wants it, its description ends with the resourceVersion of that.
fn unversioned(text: &str) -> &str {
    match text.rsplit_once(", version: ") {
        Some((rest, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => text,
    }
}

/// The name of the load balancer of a Service.
pub(super) fn service_name(cluster: &str, service: &ServiceKey) -> String {
    name("service", cluster, service)
}

fn name(kind: &str, cluster: &str, key: &ServiceKey) -> String {
    let mut name = format!("kube_{kind}_{cluster}_{}_{}", key.namespace, key.name);
    if let Some((cut, _)) = name.char_indices().nth(LONGEST_NAME) {
        name.truncate(cut);
    }
    name
}

/// Tags of Services on a load balancer, which several may share: those of this cluster, and those of others.
pub(super) fn tags(balancer: &LoadBalancer, cluster: &str) -> (Vec<ServiceKey>, Vec<String>) {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for tag in balancer.tags.iter().filter(|tag| tag.starts_with("kube_service_")) {
        // Names of Kubernetes have no underscore, so that what follows the right cluster's name has exactly one.
        let rest = tag.strip_prefix(&format!("kube_service_{cluster}_"));
        match rest.and_then(|rest| rest.split_once('_')).filter(|(_, name)| !name.contains('_')) {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                ours.push(ServiceKey::new(namespace, name));
            }
            _ => others.push(tag.clone()),
        }
    }
    (ours, others)
}

/// Whom this floating IP was made for.
pub(super) fn floating_ip(address: &FloatingIp, cluster: &str) -> Option<User> {
    described(address.description.strip_prefix("Floating IP for ")?, cluster)
}

/// Whom this security group was made for.
pub(super) fn security_group(group: &SecurityGroup, cluster: &str) -> Option<User> {
    if let Some(rest) = group.description.strip_prefix("Security group created for Ingress ") {
        let key = key(rest.strip_suffix(&format!(" from cluster {cluster}"))?)?;
        return (group.name == name("ingress", cluster, &key)).then_some(User::Ingress(key));
    }
    let rest = group.description.strip_prefix("Security Group for ")?;
    let key = key(rest.strip_suffix(&format!(" Service LoadBalancer in cluster {cluster}"))?)?;
    let rest = group.name.strip_prefix("lb-sg-")?;
    let uid = rest.strip_suffix(&format!("-{}-{}", key.namespace, key.name))?;
    (uid.len() == 36).then_some(User::Service(key))
}

fn key(text: &str) -> Option<ServiceKey> {
    let (namespace, name) = text.split_once('/')?;
    let fine = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
    };
    (fine(namespace) && fine(name)).then(|| ServiceKey::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn balancer(fields: &Value) -> LoadBalancer {
        let mut balancer = json!({"id": "1"});
        balancer.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        from_value(balancer).unwrap()
    }

    fn of_service(name: &str, cluster: &str) -> LoadBalancer {
        balancer(
            &json!({"name": name, "description": format!("Kubernetes external service shop/web from cluster {cluster}")}),
        )
    }

    #[test]
    fn a_cluster_whose_name_begins_with_ours_is_another() {
        assert!(load_balancer(&of_service("kube_service_demo_shop_web", "demo"), "demo").is_some());
        for (name, cluster) in [
            ("kube_service_demo_x_shop_web", "demo_x"),
            ("kube_service_demo-2_shop_web", "demo-2"),
            ("kube_service_demo2_shop_web", "demo2"),
            ("kube_service_demo_x_shop_web", "demo"),
            ("kube_service_demo_shop_web", "demo_x"),
            ("kube_service_demo_shop_web", "x from cluster demo_x"),
            ("kube_service_demo_shop_webb", "demo"),
            ("web", "demo"),
        ] {
            assert_eq!(load_balancer(&of_service(name, cluster), "demo"), None, "{name} of {cluster}");
        }
    }

    #[test]
    fn a_name_without_its_description_is_nobodys() {
        let bare = balancer(&json!({"name": "kube_service_demo_shop_web", "description": ""}));
        assert_eq!(load_balancer(&bare, "demo"), None);
    }

    #[test]
    fn a_name_that_octavia_cut_is_still_ours() {
        let (namespace, name, cluster) = ("n".repeat(63), "s".repeat(63), "c".repeat(150));
        let cut: String = format!("kube_service_{cluster}_{namespace}_{name}").chars().take(255).collect();
        let description = format!("Kubernetes external service {namespace}/{name} from cluster {cluster}");
        let cut = balancer(&json!({"name": cut, "description": description}));
        assert!(matches!(load_balancer(&cut, &cluster), Some(User::Service(_))));
    }

    #[test]
    fn an_ingress_has_a_load_balancer_of_its_own() {
        let ingress = balancer(&json!({"name": "kube_ingress_demo_shop_web",
            "description": "Kubernetes ingress web in namespace shop from cluster demo"}));
        assert_eq!(load_balancer(&ingress, "demo"), Some(User::Ingress(ServiceKey::new("shop", "web"))));
        assert_eq!(load_balancer(&ingress, "demo_x"), None);
    }

    #[test]
    fn the_version_of_its_ingress_does_not_hide_a_load_balancer() {
        let of = |end: &str| {
            let description = format!("Kubernetes Ingress web in namespace shop from cluster {end}");
            load_balancer(&balancer(&json!({"name": "kube_ingress_demo_shop_web", "description": description})), "demo")
        };
        assert_eq!(of("demo, version: 12345"), Some(User::Ingress(ServiceKey::new("shop", "web"))));
        for end in ["demo_x, version: 1", "demo, version: x", "demo, version: 1, version: 2", "x from cluster demo"] {
            assert_eq!(of(end), None, "{end}");
        }
    }

    #[test]
    fn tags_of_other_clusters_on_a_shared_load_balancer_are_told_apart() {
        let shared = balancer(&json!({"tags": ["kube_service_demo_shop_web", "kube_service_demo_x_shop_web", "prod"]}));
        let (ours, others) = tags(&shared, "demo");
        assert_eq!(ours, [ServiceKey::new("shop", "web")]);
        assert_eq!(others, ["kube_service_demo_x_shop_web"]);
    }

    #[test]
    fn a_group_is_known_by_its_description_and_the_name_that_follows_from_it() {
        let uid = "0b7a8c1e-0000-4000-8000-000000000000";
        let group = |name: &str, cluster: &str| -> SecurityGroup {
            let description = format!("Security Group for shop/web Service LoadBalancer in cluster {cluster}");
            from_value(json!({"id": "1", "name": name, "description": description})).unwrap()
        };
        assert!(security_group(&group(&format!("lb-sg-{uid}-shop-web"), "demo"), "demo").is_some());
        for (name, cluster) in [
            (format!("lb-sg-{uid}-shop-web"), "demo_x"),
            (format!("lb-sg-{uid}-shop-webb"), "demo"),
            ("lb-sg-shop-web".into(), "demo"),
            ("nodes".into(), "demo"),
        ] {
            assert_eq!(security_group(&group(&name, cluster), "demo"), None, "{name} of {cluster}");
        }
    }

    #[test]
    fn the_group_of_an_ingress_is_known_in_the_same_way() {
        let group = |name: &str, cluster: &str| -> SecurityGroup {
            let description = format!("Security group created for Ingress shop/web from cluster {cluster}");
            from_value(json!({"id": "1", "name": name, "description": description})).unwrap()
        };
        let ours = security_group(&group("kube_ingress_demo_shop_web", "demo"), "demo");
        assert_eq!(ours, Some(User::Ingress(ServiceKey::new("shop", "web"))));
        for (name, cluster) in [
            ("kube_ingress_demo_x_shop_web", "demo_x"),
            ("kube_ingress_demo_x_shop_web", "demo"),
            ("kube_ingress_demo_shop_web", "demo_x"),
            ("nodes", "demo"),
        ] {
            assert_eq!(security_group(&group(name, cluster), "demo"), None, "{name} of {cluster}");
        }
    }

    #[test]
    fn default_names_are_in_doubt() {
        assert!(doubt("kubernetes").is_some() && doubt("").is_some());
        assert_eq!(doubt("demo"), None);
    }
}
