//! What the watcher can be told. Each flag has an environment twin.

use std::time::Duration;

use clap::ValueEnum;
use groundcrew_core::runtime::{duration, interval};
use groundcrew_ovn::{Connection, Template};

use crate::attribution::AttributionArgs;

/// How a repair is brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Trigger {
    /// Set kube-dc.com/lb-resync-timestamp on the Service; kube-dc's manager then rebuilds its load balancer
    Annotation,
}

/// Flags of `groundcrew lb-watcher`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Watcher options")]
#[group(id = "lb-watcher")]
pub struct Args {
    /// How a repair is brought about
    #[arg(long, env = "GROUNDCREW_TRIGGER", value_name = "HOW", default_value = "annotation")]
    pub trigger: Trigger,

    /// Tell what was changed and what would be done about it, and do nothing
    #[arg(long, env = "GROUNDCREW_REPORT_ONLY")]
    pub report_only: bool,

    /// How often everything is compared, whatever OVN says by itself
    #[arg(long, env = "GROUNDCREW_VERIFY_INTERVAL", value_name = "TIME", default_value = "2m", value_parser = interval)]
    pub verify_interval: Duration,

    /// How long the manager may take to follow a change in Kubernetes before a difference counts
    #[arg(long, env = "GROUNDCREW_SETTLE_TIME", value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub settle_time: Duration,

    /// How long the manager may take for a repair before it is asked again
    #[arg(long, env = "GROUNDCREW_REPAIR_TIME", value_name = "TIME", default_value = "30s", value_parser = interval)]
    pub repair_time: Duration,

    #[command(flatten)]
    pub connection: Connection,

    /// The logical router of a namespace; {namespace} stands for its name
    #[arg(long, env = "GROUNDCREW_OVN_ROUTER", value_name = "TEMPLATE", default_value = "{namespace}")]
    pub ovn_router: Template,

    /// The logical switch of a namespace, likewise
    #[arg(long, env = "GROUNDCREW_OVN_SWITCH", value_name = "TEMPLATE", default_value = "{namespace}-default")]
    pub ovn_switch: Template,

    #[command(flatten)]
    pub attribution: AttributionArgs,
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
    fn one_flag_is_enough_and_the_rest_is_as_kube_dc_has_it() {
        let args = Program::parse_from(["x", "--ovn-nb", "tcp:192.0.2.1:6641"]).args;
        assert_eq!((args.trigger, args.report_only), (Trigger::Annotation, false));
        assert_eq!(args.verify_interval, Duration::from_mins(2));
        assert_eq!(args.ovn_router.of("shop"), "shop");
        assert_eq!(args.ovn_switch.of("shop"), "shop-default");
        assert!(Program::try_parse_from(["x"]).is_err());
        assert!(Program::try_parse_from(["x", "--ovn-nb", "unix:/x", "--verify-interval", "0s"]).is_err());
    }

    #[test]
    fn every_flag_has_its_environment_twin() {
        for arg in Program::command().get_arguments().filter(|arg| arg.get_id() != "help") {
            let env = arg.get_env().map(|env| env.to_string_lossy().into_owned());
            assert!(env.is_some_and(|env| env.starts_with("GROUNDCREW_")), "--{}", arg.get_id());
        }
    }
}
