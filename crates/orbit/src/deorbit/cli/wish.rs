//! What the flags ask for, and the object that says it to the cluster.

use std::time::Duration;

use groundcrew_api::deorbit::{Budgets, Deorbit, DeorbitSpec, OnBudgetEnd, Phase, Policies, Policy, Protect};
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};

/// How long the API server may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Flags that become the spec of a Deorbit.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "What is to be done")]
pub struct Wish {
    /// The uid of the namespace kube-system of the cluster that is to go
    #[arg(long, env = "GROUNDCREW_CONFIRM", value_name = "UID", default_value = "")]
    pub confirm: String,

    /// What becomes of a kind of thing: delete, report or keep, as volumes=delete. Kinds: volumes, retained-volumes, snapshots, backups, load-balancers, floating-ips, security-groups, routes, all
    #[arg(long, env = "GROUNDCREW_POLICY", value_name = "KIND=POLICY", value_delimiter = ',', value_parser = policy)]
    pub policy: Vec<(Kind, Policy)>,

    /// Namespaces in which nothing is stopped, blocked or deleted
    #[arg(
        long,
        env = "GROUNDCREW_PROTECT_NAMESPACE",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pub protect_namespace: Vec<String>,

    /// How long all of it may take
    #[arg(long, env = "GROUNDCREW_BUDGET", value_name = "TIME", default_value = "2h")]
    pub budget: String,

    /// How long one stage may take
    #[arg(long, env = "GROUNDCREW_STAGE_BUDGET", value_name = "TIME", default_value = "15m")]
    pub stage_budget: String,

    /// Exit with 0 when the time is up and something is left, so that a hook lets the cluster go
    #[arg(long, env = "GROUNDCREW_PROCEED")]
    pub proceed: bool,

    /// The most things that are removed by the cloud's API; more of them: none
    #[arg(long, env = "GROUNDCREW_MAX_CLOUD_DELETES", value_name = "N", default_value = "100")]
    pub max_cloud_deletes: u32,
}

/// What a policy is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everything but what somebody asked to retain.
    All,
    /// `volumes`
    Volumes,
    /// `retained-volumes`
    RetainedVolumes,
    /// `snapshots`
    Snapshots,
    /// `backups`
    Backups,
    /// `load-balancers`
    LoadBalancers,
    /// `floating-ips`
    FloatingIps,
    /// `security-groups`
    SecurityGroups,
    /// `routes`
    Routes,
}

fn policy(text: &str) -> Result<(Kind, Policy), String> {
    let (kind, policy) = text.split_once('=').ok_or("write it as volumes=delete")?;
    let kind = match kind {
        "all" => Kind::All,
        "volumes" => Kind::Volumes,
        "retained-volumes" => Kind::RetainedVolumes,
        "snapshots" => Kind::Snapshots,
        "backups" => Kind::Backups,
        "load-balancers" => Kind::LoadBalancers,
        "floating-ips" => Kind::FloatingIps,
        "security-groups" => Kind::SecurityGroups,
        "routes" => Kind::Routes,
        other => return Err(format!("{other} is none of the kinds")),
    };
    let policy = match policy {
        "delete" => Policy::Delete,
        "report" => Policy::Report,
        "keep" => Policy::Keep,
        other => return Err(format!("{other} is none of delete, report and keep")),
    };
    Ok((kind, policy))
}

impl Wish {
    /// The spec.
    #[must_use]
    pub fn spec(&self) -> DeorbitSpec {
        let mut policies = Policies::default();
        for (kind, policy) in &self.policy {
            let Policies {
                volumes,
                retained_volumes,
                snapshots,
                backups,
                load_balancers,
                floating_ips,
                security_groups,
                routes,
            } = &mut policies;
            match kind {
                Kind::All => {
                    for one in [volumes, snapshots, backups, load_balancers, floating_ips, security_groups, routes] {
                        *one = *policy;
                    }
                }
                Kind::Volumes => *volumes = *policy,
                Kind::RetainedVolumes => *retained_volumes = *policy,
                Kind::Snapshots => *snapshots = *policy,
                Kind::Backups => *backups = *policy,
                Kind::LoadBalancers => *load_balancers = *policy,
                Kind::FloatingIps => *floating_ips = *policy,
                Kind::SecurityGroups => *security_groups = *policy,
                Kind::Routes => *routes = *policy,
            }
        }
        DeorbitSpec {
            confirm: self.confirm.clone(),
            dry_run: false,
            policies,
            protect: Protect { namespaces: self.protect_namespace.clone() },
            budgets: Budgets { total: self.budget.clone(), stage: self.stage_budget.clone(), ..Budgets::default() },
            on_budget_end: if self.proceed { OnBudgetEnd::Proceed } else { OnBudgetEnd::Hold },
            max_cloud_deletes: self.max_cloud_deletes,
        }
    }
}

/// What there is already.
pub(super) enum Found {
    /// The object that was asked for, now or before; `true` if it holds on something that was left.
    Asked(bool),
    /// One that was refused and is on its way out: its end may need somebody who puts things back.
    Going,
}

/// Makes the object. One that is under way already is followed, if it asks for the same; one that was refused is replaced.
pub(super) async fn ask(api: &Api<Deorbit>, name: &str, spec: &DeorbitSpec) -> Result<Found, String> {
    let asking = async {
        let Some(found) = api.get_opt(name).await? else {
            return api
                .create(&PostParams::default(), &Deorbit::new(name, spec.clone()))
                .await
                .map(|_| Ok(Found::Asked(false)));
        };
        let phase = found.status.as_ref().map(|status| status.phase).unwrap_or_default();
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(Ok(Found::Going));
        }
        if phase != Phase::Refused {
            let other =
                format!("Deorbit {name} is there already and asks for something else; delete it, or give --name");
            return Ok(if found.spec == *spec { Ok(Found::Asked(phase == Phase::Leftovers)) } else { Err(other) });
        }
        let this = Preconditions { uid: found.metadata.uid, resource_version: found.metadata.resource_version };
        api.delete(name, &DeleteParams { preconditions: Some(this), ..DeleteParams::default() }).await?;
        Ok(Ok(Found::Going))
    };
    match tokio::time::timeout(DEADLINE, asking).await {
        Ok(Ok(asked)) => asked,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err("the cluster does not know Deorbits: groundcrew crds | kubectl apply -f -".into())
        }
        Ok(Err(error)) => Err(format!("cannot make Deorbit {name}: {error}")),
        Err(_) => Err(format!("cannot make Deorbit {name}: no answer within {} s", DEADLINE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        wish: Wish,
    }

    #[test]
    fn nothing_is_removed_by_the_cloud_s_api_unless_the_line_says_so() {
        let spec = Line::parse_from(["test"]).wish.spec();
        assert_eq!(spec.policies, Policies::default());
        assert_eq!(spec.policies.volumes, Policy::Report);
        assert_eq!(spec.on_budget_end, OnBudgetEnd::Hold);
    }

    #[test]
    fn all_is_everything_but_what_somebody_asked_to_retain_and_a_later_word_wins() {
        let policies = Line::parse_from(["test", "--policy", "all=delete,backups=keep"]).wish.spec().policies;
        assert_eq!((policies.volumes, policies.routes), (Policy::Delete, Policy::Delete));
        assert_eq!((policies.retained_volumes, policies.backups), (Policy::Report, Policy::Keep));
    }

    #[test]
    fn a_kind_or_a_policy_that_nobody_knows_is_refused() {
        for wrong in ["volume=delete", "volumes=burn", "volumes"] {
            assert!(Line::try_parse_from(["test", "--policy", wrong]).is_err(), "{wrong}");
        }
    }
}
