//! kube-ovn's collection: at each start of its leader it deletes load balancers that it does not know.

use std::fmt;

/// A version of kube-ovn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32, u32);

/// The first that can be told not to collect at all.
const CAN_BE_OFF: Version = Version(1, 13, 5);
/// The first that collects only its own where it does not serve `ClusterIP`s.
const SPARES_OTHERS: Version = Version(1, 15, 0);

impl Version {
    /// From the tag of an image: `docker.io/kubeovn/kube-ovn:v1.14.4`.
    #[must_use]
    pub fn of_image(image: &str) -> Option<Self> {
        let (_, tag) = image.split('@').next()?.rsplit_once(':')?;
        let mut numbers = tag.strip_prefix('v')?.split(['.', '-']).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self(next()?, next()?, next()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Whether it deletes load balancers of others when its leader starts. `serves` is `ENABLE_LB`, `collects` whether
/// `GC_INTERVAL` is not 0. Of an unknown version the worst is assumed.
#[must_use]
pub fn deletes_others(version: Option<Version>, serves: bool, collects: bool) -> bool {
    let at_least = |first| version.is_some_and(|version| version >= first);
    let off = !collects && at_least(CAN_BE_OFF);
    let spares = !serves && at_least(SPARES_OTHERS);
    !off && !spares
}

/// How to stop it, by version.
#[must_use]
pub fn remedy(version: Option<Version>) -> String {
    const OFF: &str = "set GC_INTERVAL=0 on kube-ovn-controller, which turns its start-up collection off";
    const NO_LB: &str = "or ENABLE_LB=false where kube-proxy or Cilium serves ClusterIPs and the rows do not carry \
                         vendor=kube-ovn";
    match version {
        Some(version) if version < CAN_BE_OFF => {
            format!("upgrade kube-ovn (this is {version}) to v1.14 or later, then {OFF}")
        }
        Some(version) if version < SPARES_OTHERS => OFF.to_owned(),
        Some(_) => format!("{OFF}, {NO_LB}"),
        None => format!("{OFF} (v1.13.5 and later), {NO_LB} (v1.15 and later)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_that_of_the_version() {
        let of = |image: &str| remedy(Version::of_image(image));
        let old = of("docker.io/kubeovn/kube-ovn:v1.12.28");
        assert!(old.contains("upgrade kube-ovn (this is v1.12.28)"), "{old}");
        let v14 = of("registry:5000/kubeovn/kube-ovn:v1.14.4-x86@sha256:00ff");
        assert!(v14.contains("GC_INTERVAL=0") && !v14.contains("ENABLE_LB"), "{v14}");
        assert!(of("kubeovn/kube-ovn:v1.16.2").contains("ENABLE_LB=false"));
        for unknown in ["kubeovn/kube-ovn:latest", "kubeovn/kube-ovn", "host:5000/kube-ovn"] {
            assert!(of(unknown).contains("(v1.13.5 and later)"), "{unknown}");
        }
    }

    #[test]
    fn rows_of_others_survive_only_where_the_version_has_the_switch_and_it_is_set() {
        let deletes = |image: &str, serves, collects| deletes_others(Version::of_image(image), serves, collects);
        assert!(deletes("x:v1.14.4", true, true), "the default");
        assert!(!deletes("x:v1.14.4", true, false));
        assert!(deletes("x:v1.14.4", false, true), "it spares nobody before v1.15");
        assert!(deletes("x:v1.12.28", true, false), "too old to be told");
        assert!(!deletes("x:v1.15.0", false, true));
        assert!(deletes("x:latest", false, false), "unknown is assumed to be the worst");
    }
}
