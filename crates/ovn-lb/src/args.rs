//! What the controller can be told. Each flag has an environment twin.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use groundcrew_api::names::class;
use groundcrew_core::runtime::duration;
use groundcrew_core::service::ServiceArgs;
use groundcrew_ovn::{Connection, Template};

use crate::kube_ovn::AddressSource;

/// What becomes of return routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReturnRoutes {
    /// They are written, and go with the Services that need them.
    Write,
    /// The Service says which are missing.
    Tell,
}

impl fmt::Display for ReturnRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Write { "write" } else { "tell" })
    }
}

/// Flags of `groundcrew ovn-lb`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "OVN options")]
#[group(id = "ovn-lb")]
pub struct Args {
    #[command(flatten)]
    pub connection: Connection,

    /// The logical router of a namespace; {namespace} stands for its name
    #[arg(long, env = "GROUNDCREW_OVN_ROUTER", value_name = "TEMPLATE", default_value = "{namespace}")]
    pub ovn_router: Template,

    /// The logical switch of a namespace, likewise
    #[arg(long, env = "GROUNDCREW_OVN_SWITCH", value_name = "TEMPLATE", default_value = "{namespace}-default")]
    pub ovn_switch: Template,

    /// The load balancer group of a namespace, likewise: rows are put into it instead of on router and switch. It must be
    /// there, and be on the project's router and switch and on no other router
    #[arg(long, env = "GROUNDCREW_OVN_LOAD_BALANCER_GROUP", value_name = "TEMPLATE")]
    pub ovn_load_balancer_group: Option<Template>,

    /// An unused address of the backends' network that health checks are sent from, comma-separated for several networks
    #[arg(long, env = "GROUNDCREW_HEALTH_CHECK_SOURCE", value_name = "ADDRESSES", value_delimiter = ',')]
    pub health_check_source: Vec<IpAddr>,

    /// Adopt what kube-dc made for Services that are served here: rows, addresses and finalizers. Stop its manager first
    #[arg(long, env = "GROUNDCREW_TAKE_OVER")]
    pub take_over: bool,

    /// The network type of addresses for Services without the annotation network.kube-dc.com/external-network-type.
    /// Without either it is the type that their kube-dc project leaves by, where there is one
    #[arg(long, env = "GROUNDCREW_NETWORK_TYPE", value_name = "TYPE")]
    pub network_type: Option<String>,

    /// Give addresses to EIps that tenants make. Not beside a kube-dc manager, which does so too; only one controller of
    /// a cluster may
    #[arg(long, env = "GROUNDCREW_SERVE_EIPS")]
    pub serve_eips: bool,

    /// Where new addresses come from: kube-ovn, pools (our own), or auto: from kube-ovn where the cluster has it
    #[arg(long, env = "GROUNDCREW_ADDRESS_SOURCE", value_name = "SOURCE", default_value_t = AddressSource::Auto)]
    pub address_source: AddressSource,

    /// What to do about the return routes that an address of a second external network needs in its Vpc's policyRoutes:
    /// write them, or tell which are missing
    #[arg(long, env = "GROUNDCREW_RETURN_ROUTES", value_name = "WHAT", default_value_t = ReturnRoutes::Write)]
    pub return_routes: ReturnRoutes,

    /// How long a released address is not given to another Service: neighbours remember who had it
    #[arg(long, env = "GROUNDCREW_ADDRESS_REST", value_name = "TIME", default_value = "2m", value_parser = duration)]
    pub address_rest: Duration,

    /// The loadBalancerClass that is served. One class and one installation for each cluster: two would give out the same
    /// addresses, so OVN lets one of them write
    #[arg(long, env = "GROUNDCREW_CLASS", value_name = "CLASS", default_value = class::OVN)]
    pub class: String,

    #[command(flatten)]
    pub service: ServiceArgs,
}

impl Args {
    /// Refuses what cannot work, before anything is started.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_one = |template: &Template| template.of("a") == template.of("b");
        match &self.ovn_load_balancer_group {
            Some(group) if is_one(group) && !(is_one(&self.ovn_router) && is_one(&self.ovn_switch)) => Err(format!(
                "--ovn-load-balancer-group {group}: each project has a router and a switch of its own, and a group on all of \
                 them would serve the addresses of one project to the others; put {{namespace}} into its name"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_cluster_is_a_list_of_endpoints_and_the_rest_has_defaults() {
        let args = Program::parse_from(["x", "--ovn-nb", "tcp:192.0.2.1:6641,ssl:[2001:db8::1]:6641"]).args;
        assert_eq!(args.connection.ovn_nb.len(), 2);
        assert_eq!(args.class, "groundcrew.dev/ovn");
        assert_eq!(args.ovn_switch.to_string(), "{namespace}-default");
        assert!(Program::try_parse_from(["x"]).is_err());
        assert!(Program::try_parse_from(["x", "--ovn-nb", "unix:/x", "--ovn-router", "{ns}"]).is_err());
    }

    #[test]
    fn one_group_for_all_projects_is_refused_unless_they_share_router_and_switch() {
        let check = |flags: &[&str]| {
            Program::parse_from(["x", "--ovn-nb", "unix:/x"].iter().chain(flags)).args.check().map_err(drop)
        };
        assert_eq!(check(&["--ovn-load-balancer-group=all"]), Err(()));
        assert_eq!(check(&["--ovn-load-balancer-group=all", "--ovn-router=lr0"]), Err(()));
        assert_eq!(check(&["--ovn-load-balancer-group=all", "--ovn-router=lr0", "--ovn-switch=ls0"]), Ok(()));
        assert_eq!(check(&["--ovn-load-balancer-group={namespace}-lbs"]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn every_flag_has_its_environment_twin() {
        for arg in Program::command().get_arguments().filter(|arg| arg.get_id() != "help") {
            let env = arg.get_env().map(|env| env.to_string_lossy().into_owned());
            assert!(env.is_some_and(|env| env.starts_with("GROUNDCREW_")), "--{}", arg.get_id());
        }
    }
}
