//! What the agent can be told. Each flag has an environment twin.

use std::net::{IpAddr, SocketAddr};

use crate::timing::Timings;

/// Flags of `groundcrew node-agent`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Node agent options")]
#[group(id = "node-agent")]
pub struct Args {
    /// Name of the node that the agent runs on
    #[arg(long, env = "GROUNDCREW_NODE_NAME", value_name = "NAME")]
    pub node_name: String,

    /// Address of the node, at which other agents ask this one whether it reaches the API server
    #[arg(long, env = "GROUNDCREW_NODE_IP", value_name = "ADDRESS")]
    pub node_ip: IpAddr,

    /// Where it listens for them
    #[arg(long, env = "GROUNDCREW_PEER_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0:8091")]
    pub peer_address: SocketAddr,

    /// Give addresses up after 2 s without the API server instead of 6, so that they can be moved after 3 s instead of 8
    #[arg(long, env = "GROUNDCREW_FAST_FAILOVER")]
    pub fast_failover: bool,
}

impl Args {
    pub(crate) fn timings(&self) -> Timings {
        if self.fast_failover { Timings::FAST } else { Timings::DEFAULT }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", SocketAddr::new(self.node_ip, self.peer_address.port()))
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
    fn other_agents_are_told_the_address_of_the_node_and_not_the_one_that_is_listened_on() {
        let line = ["x", "--node-name", "a", "--node-ip", "2001:db8::1", "--peer-address", "[::]:8091"];
        let args = Program::parse_from(line).args;
        assert_eq!(args.url(), "http://[2001:db8::1]:8091");
        assert_eq!(args.timings(), Timings::DEFAULT);
        assert!(Program::try_parse_from(["x"]).is_err());
    }

    #[test]
    fn every_flag_has_its_environment_twin() {
        for arg in Program::command().get_arguments().filter(|arg| arg.get_id() != "help") {
            let env = arg.get_env().map(|env| env.to_string_lossy().into_owned());
            assert!(env.is_some_and(|env| env.starts_with("GROUNDCREW_")), "--{}", arg.get_id());
        }
    }
}
