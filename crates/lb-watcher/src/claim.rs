//! Whose a row is, by its name: kube-dc's names are ambiguous. Pure.

use groundcrew_core::key::ServiceKey;

use crate::cluster::Cluster;
use crate::northbound::Northbound;
use crate::wanted::Site;

/// What a Service has to do with a row of its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is its row.
    Its,
    /// kube-dc's manager makes the same row for all of these.
    Shared(Vec<ServiceKey>),
    /// It is the row of another Service, and this one is none of kube-dc's.
    Anothers,
}

pub(crate) fn claim(key: &ServiceKey, row: &str, cluster: &Cluster, site: &Site, nb: &Northbound) -> Claim {
    if cluster.claimants(row).len() < 2 {
        return Claim::Its;
    }
    let rivals = rivals(row, cluster, site, nb);
    match &rivals[..] {
        rivals if !rivals.contains(key) => Claim::Anothers,
        [_] => Claim::Its,
        _ => Claim::Shared(rivals),
    }
}

/// Services that kube-dc's manager makes a row of this name for. Those of a namespace without router and switch are
/// somebody else's, unless they say that they are kube-dc's.
pub(crate) fn rivals(row: &str, cluster: &Cluster, site: &Site, nb: &Northbound) -> Vec<ServiceKey> {
    let is_kube_dcs = |key: &ServiceKey| {
        site.is_project(nb, &key.namespace) || cluster.service(key).is_some_and(|service| service.finalizer)
    };
    cluster.claimants(row).into_iter().filter(is_kube_dcs).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{cluster, place, site, update, uuid};

    #[test]
    fn only_services_of_projects_share_a_row() {
        let (cluster, site) = (cluster(&[("a", "b-c"), ("a-b", "c"), ("a-b", "other")]), site());
        let of = |namespace: &str, name: &str, nb: &Northbound| {
            let row = format!("{namespace}-{name}-tcp");
            claim(&ServiceKey::new(namespace, name), &row, &cluster, &site, nb)
        };
        let mut nb = Northbound::default();
        assert_eq!(of("a-b", "other", &nb), Claim::Its);
        update(&mut nb, &json!({ "Logical_Router": { uuid(5).to_string(): place("a-b", &[]) } }));
        assert_eq!(of("a-b", "c", &nb), Claim::Its, "somebody else serves the other");
        assert_eq!(of("a", "b-c", &nb), Claim::Anothers);
        update(&mut nb, &json!({ "Logical_Switch": { uuid(6).to_string(): place("a-default", &[]) } }));
        let Claim::Shared(both) = of("a-b", "c", &nb) else { panic!("not shared") };
        assert_eq!(both.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a/b-c", "a-b/c"]);
    }
}
