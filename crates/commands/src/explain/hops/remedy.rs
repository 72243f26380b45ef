//! What to do about a reason that a controller has given.

/// The next thing to do, for the reasons of the condition `groundcrew.dev/Ready`.
pub(super) fn remedy(reason: &str) -> &'static str {
    match reason {
        "NoPool" => "make an AddressPool of this network type that serves the namespace, or label a Subnet",
        "PoolEmpty" => "free an address or add some: groundcrew pools shows what is left",
        "PoolClosed" => "correct spec.excluded of the AddressPool: the message names the line",
        "WaitsForShared" => "help the Service that the message names to an address, or take the sharing key away",
        "LimitReached" => {
            "delete a Service or EIp of the namespace, or raise perNamespaceLimit of the AddressPool, or the annotation \
             groundcrew.dev/per-namespace-limit of the Subnet"
        }
        "AddressTaken" => "ask for another address, or free this one: the message says who has it",
        "AddressOutsidePools" | "AddressOutsideSubnets" | "AddressExcluded" | "AddressRefused" | "UnknownPool" => {
            "ask for another address, or for none"
        }
        "AddressRests" => "wait: an address that was given back rests, because neighbours remember who had it",
        "EipMissing" => "make the EIp that the Service names, or take the annotation away",
        "EipNotReady" => "kubectl describe the EIp that the message names",
        "EipDeleted" => {
            "move the Services off the EIp that the message names, or make them again: it stays until they are gone"
        }
        "EipExclusive" | "EipTaken" | "EipFamily" => "name another EIp, or none",
        "PortConflict" => "give the Service another port, or another address",
        "RouterMissing" | "SwitchMissing" | "PlaceMissing" => {
            "make it in OVN, or tell the controller its name with --ovn-router and --ovn-switch"
        }
        "RouterAmbiguous" | "SwitchAmbiguous" | "PlaceAmbiguous" => "leave one with this name in OVN",
        "LoadBalancerMarked" => {
            "remove the OVN load balancer that the message names, or take its groundcrew-* keys out of external_ids"
        }
        "ClaimedByAnother" => "start the controller of the class that the message names: it has to let go first",
        "TakeOverUnclear" | "NameShared" => "split, rename or remove the OVN load balancer that the message names",
        "SourceRangesUnenforceable" => {
            "put a switch between the two routers that the message names, or take loadBalancerSourceRanges away"
        }
        "GroupMissing" | "GroupDetached" | "GroupShared" => {
            "make the load balancer group as docs/ovn-lb.md shows, on this project's router and switch alone"
        }
        "SubnetNotConnected" => {
            "set spec.enableExternal of the project's Vpc, and add the Subnet to its spec.extraExternalSubnets"
        }
        "SubnetMissing" | "KubeOvnSilent" => "look whether kube-ovn-controller runs, and into its log",
        "OvnEipTaken" => "remove the OvnEip that the message names: it is not ours",
        "ReturnRouteMissing" => "add the entry or the policy that the message shows to the project's Vpc or router",
        "BackendOutsideProject" => "look why the endpoint's address is in no network of the project's router",
        "NoEndpoints" => "look at the pods of the Service: none is ready",
        "EndpointsMissing" => {
            "look at the pods of the Service: none that is ready has that address family, or a port of that name"
        }
        "NoNode" => "look at the nodes, their agents and their interfaces",
        "NotConfirmed" => "look into the log of the agent on the node that the message names",
        "NotRoutable" => "ask CloudSigma's support whether the address is routed; look at firewall policies",
        "SubscriptionExpires" | "SubscriptionExpired" => "renew the subscription of the address",
        "NoFunds" | "CredentialsRefused" | "Denied" => "look at the account, its funds and the credentials",
        "NotFenced" => "look why the server of the silent node could not be stopped",
        "Claimed" => "wait a second: the node is taking the address",
        "AddressInUse" => "find the host whose hardware address the message names: it answers for the address",
        "AddressForeign" => "take the address out of the node's own network configuration",
        "LinkDown" | "NoInterface" => "put the node's network right; the address moves to another node by itself",
        "FilterFailed" | "KernelRefused" | "ProbeFailed" => {
            "look at the agent's image and its two capabilities: the message has the words of the kernel"
        }
        "NicNotManual" | "AttachIgnored" => {
            "give the server a NIC in manual mode, or start it anew; docs/cloudsigma.md has the two modes"
        }
        "DrivesChanged" => "check the volumes of the node that the message names",
        "DynamicAddress" => "ask for an address of the static pool: a dynamic one never leaves its node",
        "AddressGone" => "renew the subscription of the address, or make the Service again to get another one",
        "FloatingIPNotOurs" => "remove the FloatingIP that the message names, or leave the address to its owner",
        "NotMoved" => "look whether the cloud's API answers; it is tried again",
        "HealthCheckSourceMissing" => {
            "give the controller --health-check-source with an unused address of that network"
        }
        "HealthCheckPortMissing" => "look which logical switch port has the backend's address: OVN has none",
        "AffinityLimited" => "bring OVN to 22.12 or later, or ask for at most 65535 s of sessionAffinity",
        "HealthCheckInvalid" => "correct the annotation groundcrew.dev/health-check",
        _ => "kubectl describe the Service for its Events, and look into the controller's log",
    }
}
