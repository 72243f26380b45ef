//! Names that several controllers, users' manifests and other systems have to agree on.

/// Annotations.
pub mod annotation {
    /// On a Service: the [`EIp`](crate::eip::EIp) of the same namespace to serve it on. Wins over
    /// [`BIND_ON_DEFAULT_GW_EIP`].
    pub const BIND_ON_EIP: &str = "service.nlb.kube-dc.com/bind-on-eip";
    /// On a Service, `"true"`: serve it on the project's gateway address, the EIp
    /// [`DEFAULT_GATEWAY`](crate::names::eip::DEFAULT_GATEWAY).
    pub const BIND_ON_DEFAULT_GW_EIP: &str = "service.nlb.kube-dc.com/bind-on-default-gw-eip";
    /// On a Service: the network type (`public`, `cloud`) of the EIp that is made for it. Read when the address is
    /// assigned; a later change has no effect on a living address.
    pub const EXTERNAL_NETWORK_TYPE: &str = "network.kube-dc.com/external-network-type";
    /// On a Service, `"true"`. kube-dc's documents give it two meanings (delete the EIp with the Service; delete the
    /// Service once it has no endpoints), so nothing may be deleted because of it.
    pub const AUTODELETE: &str = "service.nlb.kube-dc.com/autodelete";
    /// On a Service: kube-dc's watcher writes the time here to have the load balancer looked at again. A change means
    /// "look now", whatever the value.
    pub const LB_RESYNC_TIMESTAMP: &str = "kube-dc.com/lb-resync-timestamp";
    /// On an `OvnEip`: kube-dc made it for an EIp, and takes it away with that EIp.
    pub const OVN_EIP_CREATED_BY_EIP: &str = "kube-dc.com/ovn-eip-created-by-eip";

    /// On any object that we act on, `"true"`: leave what belongs to it as it is until the annotation goes.
    pub const PAUSED: &str = "groundcrew.dev/paused";
    /// On a Service: the addresses it asks for, at most one per family, separated by a comma. Wins over the deprecated
    /// `spec.loadBalancerIP`, which has room for one family only.
    pub const LOAD_BALANCER_IPS: &str = "groundcrew.dev/load-balancer-ips";
    /// On Services of one namespace: those with the same value may share an address as long as their ports differ.
    pub const SHARING_KEY: &str = "groundcrew.dev/sharing-key";
    /// On a Service, written together with the finalizer: the class of the controller that put it there. The finalizer
    /// alone does not say, as every load balancer controller uses the same one.
    pub const CLAIMED_BY: &str = "groundcrew.dev/claimed-by";
    /// On a Service, `"true"` or settings (`interval=5,timeout=20,success=3,failure=3`): probe the backends and send no
    /// new connection to one that does not answer.
    pub const HEALTH_CHECK: &str = "groundcrew.dev/health-check";
    /// On a Service, `static` or `dynamic`: which addresses of a `CloudSigma` account it may have. Without it static ones.
    pub const IP_POOL: &str = "cloudsigma.com/ip-pool";
    /// On a Service of `CloudSigma`, `"true"`: when it goes, its address stays this cluster's, for a Service of its name.
    pub const KEEP_ADDRESS: &str = "groundcrew.dev/keep-address";
    /// On a Node: the `CloudSigma` account that had its server. Only such a Node is ever deleted.
    pub const CLOUDSIGMA_ACCOUNT: &str = "groundcrew.dev/cloudsigma-account";
    /// On a `FloatingIP`: the server that was let use the address last. Its Node may go before it does.
    pub const CLOUDSIGMA_SERVER: &str = "groundcrew.dev/cloudsigma-server";
    /// On an `OvnEip`: `namespace/name` of the EIp it was made for. An annotation because the two together may be
    /// longer than a label value.
    pub const OWNER: &str = "groundcrew.dev/owner";
    /// On the Lease of a node agent: where other agents ask it whether it reaches the API server.
    pub const AGENT_URL: &str = "groundcrew.dev/agent-url";
    /// On the Lease of a node agent, while the node cannot hold any address: why, in words. Its addresses should move.
    pub const UNABLE: &str = "groundcrew.dev/unable";
    /// On an `OvnEip` of ours that is stuck in deletion: when it was last changed so that kube-ovn looks at it.
    pub const TOUCHED: &str = "groundcrew.dev/touched";
    /// On an external `Subnet` of kube-ovn: how many of its addresses a namespace may have, as `perNamespaceLimit` of an
    /// AddressPool. What is not a number counts as 0. A lower limit takes nothing away.
    pub const PER_NAMESPACE_LIMIT: &str = "groundcrew.dev/per-namespace-limit";
    /// On what Deorbit scaled to zero or suspended: how it was before, so that an abort puts it back.
    pub const BEFORE_DEORBIT: &str = "groundcrew.dev/before-deorbit";
    /// On a `Vpc`: which entries of `spec.policyRoutes` are ours. The entries themselves have no room for a mark.
    pub const POLICY_ROUTES: &str = "groundcrew.dev/policy-routes";
}

/// Labels.
pub mod label {
    /// On an `OvnEip`: `{namespace}.{name}` of kube-dc's EIp.
    pub const EIP: &str = "network.kube-dc.com/eip";
    /// On an external `Subnet`: the network type (`public`, `cloud`) whose addresses it holds.
    pub const EXTERNAL_NETWORK_TYPE: &str = "network.kube-dc.com/external-network-type";
    /// On an external `Subnet`, `"true"`: the one that projects are connected to from the start.
    pub const DEFAULT_EXTERNAL: &str = "network.kube-dc.com/default-external";
    /// On a namespace: it belongs to this kube-dc project.
    pub const PROJECT: &str = "kube-dc.com/project";

    /// On what we make: the id of the cluster that made it. Without it, or with another's, an object is not ours.
    pub const CLUSTER: &str = "groundcrew.dev/cluster";
    /// On what we make: the uid of the object it was made for, so that a namesake made later does not inherit it.
    pub const OWNER_UID: &str = "groundcrew.dev/owner-uid";
    /// On anything that Deorbit would stop or delete, `keep`: it stays, and so does what it has outside.
    pub const DEORBIT: &str = "groundcrew.dev/deorbit";
    /// On the Lease of a node agent: the node's name.
    pub const AGENT_NODE: &str = "groundcrew.dev/agent-node";
}

/// Finalizers.
pub mod finalizer {
    /// On a Service that has a load balancer: the name that Kubernetes itself gave to this promise.
    pub const LOAD_BALANCER_CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
    /// On an EIp that holds an address.
    pub const EIP: &str = "groundcrew.dev/eip";

    /// On a Deorbit that has changed something: it is put back before the object goes.
    pub const DEORBIT: &str = "groundcrew.dev/deorbit";

    /// kube-dc's own, on a Service. Replaced by [`LOAD_BALANCER_CLEANUP`] on take-over, never otherwise touched.
    pub const KUBE_DC_SERVICE: &str = "service.kube-dc.com/finalizer";
    /// kube-dc's own, on an EIp. Replaced by [`EIP`] on take-over, never otherwise touched.
    pub const KUBE_DC_EIP: &str = "eip.kube-dc.com/finalizer";
    /// kube-ovn's own, on an `OvnEip`. Seeing it on an object in deletion that does not go means that kube-ovn missed
    /// the deletion and has to be woken by a change.
    pub const KUBE_OVN: &str = "kubeovn.io/kube-ovn-controller";
}

/// Leases.
pub mod lease {
    /// The Lease that the agent on this node renews while it lives, in the namespace of the agents. It has a random
    /// `holderIdentity` for each run; an empty one says that the agent ended in order and holds nothing any more.
    ///
    /// `leaseDurationSeconds` is how long after the last renewal the node may still answer for its addresses.
    #[must_use]
    pub fn of_node(node: &str) -> String {
        format!("groundcrew-node-{node}")
    }
}

/// Values of `spec.loadBalancerClass` that are ours.
pub mod class {
    /// Served from OVN load balancers.
    pub const OVN: &str = "groundcrew.dev/ovn";
    /// Served on `CloudSigma` floating addresses.
    pub const CLOUDSIGMA: &str = "groundcrew.dev/cloudsigma";
}

/// Names of EIps that mean something.
pub mod eip {
    /// The project's gateway address: shared by its outgoing traffic and by any Service that asks for it.
    pub const DEFAULT_GATEWAY: &str = "default-gw";
    /// EIps that are made for a Service are called `slb-{service}-{hash}`.
    pub const SERVICE_PREFIX: &str = "slb-";
}

/// Condition types.
pub mod condition {
    /// The object is in use as it is described.
    pub const READY: &str = "Ready";
    /// On a Service, every condition of ours begins with it: Services are everybody's.
    pub const SERVICE_PREFIX: &str = "groundcrew.dev/";
    /// On a Service: whether it is served, or why not.
    pub const SERVICE_READY: &str = "groundcrew.dev/Ready";
    /// On a Service: there while nobody has confirmed that what was written outside is in effect.
    pub const SERVICE_REALISED: &str = "groundcrew.dev/Realised";
    /// On a Service: there while somebody else changes its load balancer again and again, and ours is held back.
    pub const SERVICE_DRIFT_FLAPPING: &str = "groundcrew.dev/DriftFlapping";
    /// On a Service: whether somebody outside reaches its addresses, where somebody is asked.
    pub const SERVICE_ROUTABLE_EXTERNALLY: &str = "groundcrew.dev/RoutableExternally";
    /// On an AddressPool: it has addresses in common with another pool. Such addresses are given out once only.
    pub const OVERLAP: &str = "Overlap";
}

/// What kube-ovn calls its own.
pub mod kube_ovn {
    /// Its controller: the label `app` of the pods, and the name of the Lease.
    pub const CONTROLLER: &str = "kube-ovn-controller";

    /// The key of `external_ids` in OVN under which its client, since v1.15, says that it made a row ...
    pub const VENDOR_KEY: &str = "vendor";
    /// ... with this value. kube-dc uses the same client, so its rows may carry it, too.
    pub const VENDOR: &str = "kube-ovn";

    /// Whether kube-ovn gives its own OVN load balancers names like this one: six for each VPC, which its collection
    /// of unknown ones keeps.
    #[must_use]
    pub fn is_own_load_balancer(name: &str) -> bool {
        let between = |prefix, suffix| name.strip_prefix(prefix).is_some_and(|rest: &str| rest.ends_with(suffix));
        between("vpc-", "-load") || between("cluster-", "-loadbalancer")
    }

    #[cfg(test)]
    mod tests {
        use super::is_own_load_balancer;

        #[test]
        fn its_own_are_told_from_those_of_services() {
            for own in ["vpc-shop-tcp-load", "vpc-shop-udp-sess-load", "cluster-tcp-session-loadbalancer"] {
                assert!(is_own_load_balancer(own), "{own}");
            }
            for other in ["shop-web-tcp", "vpc-web-udp", "cluster-web-tcp", "shop-web-load", ""] {
                assert!(!is_own_load_balancer(other), "{other}");
            }
        }
    }
}
