//! Whether the clouds know us, and let us do what the controllers do.

use clap::{Args as _, Command, FromArgMatches};
use groundcrew_cloudsigma_ccm::client::{Client as CloudSigma, Kind as CloudSigmaKind};
use openstack_client::{Client as OpenStack, Config, Kind as OpenStackKind};

use crate::finding::Finding;

/// Which clouds are asked. Each is found as its controllers find it.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cloud options")]
#[group(id = "clouds")]
pub struct CloudArgs {
    /// Check the credentials for OpenStack: from --cloud-conf, else from the variables of an openrc file
    #[arg(id = "check-openstack", long = "openstack", env = "GROUNDCREW_OPENSTACK")]
    openstack: bool,

    #[command(flatten)]
    found: groundcrew_openstack_cloud::Args,

    /// Check the credentials for CloudSigma, from the variables `CLOUDSIGMA_...` as its controller reads them
    #[arg(id = "check-cloudsigma", long = "cloudsigma", env = "GROUNDCREW_CLOUDSIGMA")]
    cloudsigma: bool,
}

impl CloudArgs {
    pub(super) async fn look(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.openstack || self.found.cloud_conf.is_some() {
            findings.extend(self.openstack().await);
        }
        if self.cloudsigma {
            findings.push(cloudsigma().await);
        }
        findings
    }

    async fn openstack(&self) -> Vec<Finding> {
        const NAME: &str = "openstack";
        let config = match &self.found.cloud_conf {
            Some(path) => Config::from_cloud_conf(path),
            None => Config::from_env(),
        };
        let client = match config.and_then(OpenStack::new) {
            Ok(client) => client,
            Err(error) => return vec![Finding::bad(NAME, error.to_string(), "correct the configuration")],
        };
        let session = match client.session().await {
            Ok(session) => session,
            Err(error) => return vec![Finding::bad(NAME, error.to_string(), openstack_remedy(error.kind()))],
        };
        let roles = session.roles().iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let who = format!("project {}, roles {roles}", session.project_name());
        vec![Finding::good(NAME, who), extensions(&client).await, rights(&client, &roles).await]
    }
}

async fn extensions(client: &OpenStack) -> Finding {
    const NAME: &str = "openstack routes";
    match client.network().extensions().await {
        Ok(extensions) if extensions.atomic_routes() => {
            Finding::good(NAME, "single routes can be changed (extraroute-atomic)")
        }
        Ok(_) => Finding::bad(
            NAME,
            "Neutron has no extension extraroute-atomic: routegc removes no route",
            "upgrade Neutron (OVN: 2026.1), or start routegc with --allow-whole-list-writes where nobody else writes routes",
        ),
        Err(error) => Finding::bad(NAME, error.to_string(), openstack_remedy(error.kind())),
    }
}

/// Reading is tried; what may be written is told by the role, because trying it would write.
async fn rights(client: &OpenStack, roles: &str) -> Finding {
    const NAME: &str = "openstack rights";
    if let Err(error) = client.network().routers(&[]).await {
        return Finding::bad(NAME, format!("cannot list routers: {error}"), openstack_remedy(error.kind()));
    }
    if let Err(error) = client.compute().servers().await {
        // A cloud for networks alone is enough for routegc.
        return Finding::note(NAME, format!("cannot list servers: {error}"))
            .with_next("routegc and flight need Nova to tell living servers from gone ones");
    }
    if roles == "reader" {
        let next = "give the user or application credential the role member";
        return Finding::bad(NAME, "the only role is reader: nothing can be repaired", next);
    }
    Finding::good(NAME, "routers and servers can be listed")
}

fn openstack_remedy(kind: OpenStackKind) -> &'static str {
    match kind {
        OpenStackKind::Unauthorized | OpenStackKind::Denied => {
            "look whether the credentials are right, alive, and have a role in the project"
        }
        OpenStackKind::NoService => "look whether the region and the interface are those of the cloud's catalog",
        _ => "look whether the address of Keystone is right and can be reached from here",
    }
}

async fn cloudsigma() -> Finding {
    const NAME: &str = "cloudsigma";
    let command = groundcrew_cloudsigma_ccm::Args::augment_args(Command::new("cloudsigma"));
    let args = command
        .try_get_matches_from(["cloudsigma"])
        .and_then(|matches| groundcrew_cloudsigma_ccm::Args::from_arg_matches(&matches));
    let args = match args {
        Ok(args) => args,
        // Of clap's words only the kind: the rest may repeat what a variable holds.
        Err(error) => {
            let next = "set the variables CLOUDSIGMA_REGION, CLOUDSIGMA_USERNAME and CLOUDSIGMA_PASSWORD, or those of impersonation";
            return Finding::bad(NAME, format!("the variables are not complete: {}", error.kind()), next);
        }
    };
    let client = match args.config().await {
        Ok(config) => CloudSigma::new(config),
        Err(error) => return Finding::bad(NAME, error.to_string(), "correct the variables CLOUDSIGMA_..."),
    };
    let asked = async {
        let client = client?;
        client.user().await?;
        let (ips, servers) = (client.ips().await?, client.servers().await?);
        client.ip_subscriptions().await?;
        Ok::<_, groundcrew_cloudsigma_ccm::client::Error>((ips, servers))
    };
    match asked.await {
        Ok((ips, servers)) if ips.complete && servers.complete => {
            Finding::good(NAME, format!("{} addresses and {} servers", ips.items.len(), servers.items.len()))
        }
        Ok(_) => Finding::unknown(
            NAME,
            "the account was shown only in part",
            "try again; nothing is decided on half an account",
        ),
        Err(error) => {
            let next = match error.kind() {
                CloudSigmaKind::Unauthorized | CloudSigmaKind::Denied | CloudSigmaKind::Funds => {
                    "look whether the credentials are right and the account is not suspended"
                }
                _ => "look whether the region or CLOUDSIGMA_API_URL is right and can be reached from here",
            };
            Finding::bad(NAME, error.to_string(), next)
        }
    }
}
