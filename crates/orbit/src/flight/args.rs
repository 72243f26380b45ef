//! What the controller can be told. Each flag has an environment twin.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use groundcrew_core::runtime::duration;
use ipnet::IpNet;

use super::hook::{Hook, Target};
use super::ladder::Rules;
use super::settings::{Label, Mode, OwnedBy, Settings};
use crate::flags::{percent, pod_cidr};

/// Flags of `groundcrew flight`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Flight options")]
#[group(id = "flight")]
pub struct Args {
    /// The ranges of the cluster's pods, of both families
    #[arg(long, env = "GROUNDCREW_POD_CIDR", value_name = "CIDR", value_delimiter = ',', required = true, value_parser = pod_cidr)]
    pub pod_cidr: Vec<IpNet>,

    /// Name or id of the security group of the Nodes; without it neither its rules nor the ports are looked at
    #[arg(long, env = "GROUNDCREW_SECURITY_GROUP", value_name = "GROUP")]
    pub security_group: Option<String>,

    /// What to do about rules that the group lacks for traffic between pods
    #[arg(long, env = "GROUNDCREW_RULES", value_name = "MODE", default_value = "repair")]
    pub rules: Mode,

    /// What to do about ports of Nodes that lack the group
    #[arg(long, env = "GROUNDCREW_GROUPS", value_name = "MODE", default_value = "repair")]
    pub groups: Mode,

    /// What to do about servers that failed, stay unready, or never became Nodes
    #[arg(long, env = "GROUNDCREW_NODES", value_name = "MODE", default_value = "report")]
    pub nodes: Mode,

    /// Delete servers that a soft and a hard reboot did not help. Whatever is on them is lost
    #[arg(long, env = "GROUNDCREW_DELETE_SERVERS")]
    pub delete_servers: bool,

    /// What to do about tags and metadata that the servers of Nodes lack
    #[arg(long, env = "GROUNDCREW_LABELS", value_name = "MODE", default_value = "repair")]
    pub labels: Mode,

    /// Tags that the servers of Nodes should have
    #[arg(long, env = "GROUNDCREW_SERVER_TAG", value_name = "TAG", value_delimiter = ',')]
    pub server_tag: Vec<String>,

    /// Metadata that the servers of Nodes should have
    #[arg(long, env = "GROUNDCREW_SERVER_METADATA", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    pub server_metadata: Vec<(String, String)>,

    /// A tag by which servers are the cluster's although no Node says so; without one of these three, only Nodes are touched
    #[arg(long, env = "GROUNDCREW_OWNED_TAG", value_name = "TAG")]
    pub owned_tag: Option<String>,

    /// The same by a key of the metadata
    #[arg(long, env = "GROUNDCREW_OWNED_METADATA", value_name = "KEY=VALUE", value_parser = pair)]
    pub owned_metadata: Option<(String, String)>,

    /// The same by the id of a server group
    #[arg(long, env = "GROUNDCREW_OWNED_SERVER_GROUP", value_name = "ID")]
    pub owned_server_group: Option<String>,

    /// What to do about roles that the controller's own user lacks; nobody can give them to himself, so there is no repair
    #[arg(long, env = "GROUNDCREW_ROLES", value_name = "MODE", default_value = "report", value_parser = reportable)]
    pub roles: Mode,

    /// Roles that the controller's own user should have in the project
    #[arg(
        long,
        env = "GROUNDCREW_REQUIRED_ROLE",
        value_name = "ROLE",
        value_delimiter = ',',
        default_value = "member"
    )]
    pub required_role: Vec<String>,

    /// What to do about routes to pods that are missing or double
    #[arg(long, env = "GROUNDCREW_ROUTES", value_name = "MODE", default_value = "report")]
    pub routes: Mode,

    /// Ids of the routers that carry the pods' routes; without it no Node gets conditions about its routes
    #[arg(long, env = "GROUNDCREW_ROUTER", value_name = "ID", value_delimiter = ',')]
    pub router: Vec<String>,

    /// The namespace in which the probes of the pod network (groundcrew net-probe) have their Leases
    #[arg(long, env = "GROUNDCREW_PROBE_NAMESPACE", value_name = "NAMESPACE")]
    pub probe_namespace: Option<String>,

    /// What to do about filters of ports that may have missed an update: the group gets a harmless rule for a moment
    #[arg(long, env = "GROUNDCREW_NUDGE", value_name = "MODE", default_value = "report")]
    pub nudge: Mode,

    /// How long probes must not reach a Node before its group is nudged and its router re-synced
    #[arg(long, env = "GROUNDCREW_UNREACHABLE_AFTER", value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub unreachable_after: Duration,

    /// How long to wait between two nudges, two re-syncs, and two calls of the hook
    #[arg(long, env = "GROUNDCREW_PUSH_EVERY", value_name = "TIME", default_value = "30m", value_parser = pause)]
    pub push_every: Duration,

    /// With --routes repair: an http(s) URL to POST to, or a program to run, when a re-sync of the router did not help
    #[arg(long, env = "GROUNDCREW_RESYNC_HOOK", hide_env_values = true, value_name = "URL or FILE")]
    pub resync_hook: Option<Unread>,

    /// How long the hook may take
    #[arg(long, env = "GROUNDCREW_RESYNC_HOOK_TIMEOUT", value_name = "TIME", default_value = "30s", value_parser = pause)]
    pub resync_hook_timeout: Duration,

    /// How many routes a router takes, where the cloud has no quota that says so
    #[arg(long, env = "GROUNDCREW_ROUTE_LIMIT", value_name = "N", default_value = "31")]
    pub route_limit: u64,

    /// How often to look
    #[arg(long, env = "GROUNDCREW_INTERVAL", value_name = "TIME", default_value = "1m", value_parser = pause)]
    pub interval: Duration,

    /// How long a Node may be unready
    #[arg(long, env = "GROUNDCREW_UNREADY_AFTER", value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub unready_after: Duration,

    /// How long a new server may take to become a Node
    #[arg(long, env = "GROUNDCREW_REGISTER_WITHIN", value_name = "TIME", default_value = "45m", value_parser = duration)]
    pub register_within: Duration,

    /// How long a step has to help before the next one
    #[arg(long, env = "GROUNDCREW_COOLDOWN", value_name = "TIME", default_value = "15m", value_parser = pause)]
    pub cooldown: Duration,

    /// How long the API server and the cloud must have answered without a break before a server is repaired
    #[arg(long, env = "GROUNDCREW_STEADY_FOR", value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub steady_for: Duration,

    /// The most servers under repair at once
    #[arg(long, env = "GROUNDCREW_MAX_REPAIRS", value_name = "N", default_value = "2")]
    pub max_repairs: usize,

    /// The most percent of the servers under repair at once; one always may
    #[arg(long, env = "GROUNDCREW_MAX_REPAIR_PERCENT", value_name = "N", default_value = "10", value_parser = percent)]
    pub max_repair_percent: usize,
}

impl Args {
    /// What they mean. `Err` says what is wrong with them.
    pub fn settings(self) -> Result<Settings, String> {
        let hook = match &self.resync_hook {
            Some(Unread(text)) => Some(Target::parse(text).map_err(|error| format!("--resync-hook: {error}"))?),
            None => None,
        };
        Ok(Settings {
            pod_ranges: self.pod_cidr,
            security_group: self.security_group,
            routers: self.router,
            route_limit: self.route_limit,
            owned_by: OwnedBy { tag: self.owned_tag, metadata: self.owned_metadata, group: self.owned_server_group },
            label: Label {
                tags: self.server_tag.into_iter().collect(),
                metadata: self.server_metadata.into_iter().collect(),
            },
            rules: self.rules,
            groups: self.groups,
            nodes: self.nodes,
            labels: self.labels,
            routes: self.routes,
            nudge: self.nudge,
            probes: self.probe_namespace,
            unreachable_after: self.unreachable_after,
            push_every: self.push_every,
            hook: hook.map(|target| Hook { target, timeout: self.resync_hook_timeout }),
            required_roles: match self.roles {
                Mode::Off => BTreeSet::new(),
                Mode::Report | Mode::Repair => self.required_role.into_iter().collect(),
            },
            ladder: Rules {
                unready_after: self.unready_after,
                register_within: self.register_within,
                cooldown: self.cooldown,
                steady_for: self.steady_for,
                max_repairs: self.max_repairs,
                max_percent: self.max_repair_percent,
                delete: self.delete_servers,
            },
        })
    }
}

/// What may have a secret in it, and is not read before the command line is: a value that is wrong there is repeated.
#[derive(Clone)]
pub struct Unread(String);

impl From<String> for Unread {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unread")
    }
}

fn reportable(text: &str) -> Result<Mode, String> {
    match Mode::from_str(text, false)? {
        Mode::Repair => Err("these can only be reported: write off or report".into()),
        mode => Ok(mode),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "write it as key=value".into())
}

/// Without a pause it would be a busy loop, or all steps at once.
fn pause(text: &str) -> Result<Duration, String> {
    let pause = duration(text)?;
    if pause < Duration::from_secs(1) { Err("it must be a second or more".into()) } else { Ok(pause) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn line(flags: &[&str]) -> Result<Settings, String> {
        let line = Line::try_parse_from(["test", "--pod-cidr", "10.1.0.0/16"].iter().chain(flags));
        line.map_err(|error| error.to_string())?.args.settings()
    }

    #[test]
    fn nothing_is_rebooted_or_deleted_unless_the_operator_says_so() {
        let settings = line(&[]).unwrap();
        assert_eq!((settings.nodes, settings.ladder.delete), (Mode::Report, false));
        assert_eq!(settings.owned_by, OwnedBy::default());
    }

    #[test]
    fn what_would_take_all_steps_at_once_is_refused() {
        for (flags, word) in [
            (["--cooldown", "0s"], "a second or more"),
            (["--interval", "0s"], "a second or more"),
            (["--max-repair-percent", "0"], "1 to 100"),
            (["--owned-metadata", "cluster"], "key=value"),
            (["--pod-cidr", "::/0"], "all addresses"),
            (["--nodes", "delete"], "possible values: off, report, repair"),
            (["--roles", "repair"], "can only be reported"),
            (["--resync-hook", "resync"], "begins with"),
            (["--push-every", "0s"], "a second or more"),
        ] {
            let said = line(&flags).unwrap_err();
            assert!(said.contains(word), "{flags:?}: {said}");
        }
    }

    #[test]
    fn a_hook_that_is_wrong_is_not_repeated() {
        for hook in ["me:fixture@device.example", "https://me:fixture@"] {
            let said = line(&["--resync-hook", hook]).unwrap_err();
            assert!(said.contains("--resync-hook") && !said.contains("fixture"), "{said}");
        }
    }
}
