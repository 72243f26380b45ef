//! Which of the things that we can work with this cluster has.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use groundcrew_api::kube_ovn::{OvnEip, Subnet, Vpc};
use groundcrew_api::project::Project;
use groundcrew_core::runtime::{Runtime, StartError};
use kube::{Client, Resource};
use tracing::{info, warn};

/// Where new addresses come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AddressSource {
    /// From kube-ovn where the cluster has it, else from pools.
    Auto,
    /// `OvnEip`s of kube-ovn's external Subnets.
    KubeOvn,
    /// `AddressPool`s.
    Pools,
}

impl fmt::Display for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::KubeOvn => "kube-ovn",
            Self::Pools => "pools",
        })
    }
}

/// What is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// kube-ovn's Vpcs and Subnets say where a namespace's pods live.
    pub(crate) kube_ovn: bool,
    /// New addresses are `OvnEip`s.
    pub(crate) addresses: bool,
    /// kube-dc's Projects say which network a namespace leaves by.
    pub(crate) projects: bool,
}

const DISCOVERY: &str = "the API server's answer to what it serves";

/// Asks until there is an answer: to guess would be to give out the wrong addresses. `None` if the process is told to stop
/// before there is one.
pub(crate) async fn discover(runtime: &Runtime, source: AddressSource) -> Result<Option<Found>, StartError> {
    runtime.ready.wait_for(DISCOVERY, "");
    let asking = async {
        let mut pause = Duration::from_millis(100);
        loop {
            match ask(&runtime.client, runtime.write_deadline).await {
                Ok(answer) => return answer,
                Err(error) => {
                    warn!(error, "cannot tell whether the cluster has kube-ovn; trying again");
                    runtime.ready.explain(DISCOVERY, error);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    };
    let Some((kube_ovn, projects)) = runtime.tasks.stop().run_until_cancelled(asking).await else { return Ok(None) };
    runtime.ready.done(DISCOVERY);
    let addresses = match source {
        AddressSource::Pools => false,
        AddressSource::Auto => kube_ovn,
        AddressSource::KubeOvn if kube_ovn => true,
        AddressSource::KubeOvn => {
            return Err("--address-source is kube-ovn, but the API server has no OvnEips (kubeovn.io/v1): install kube-ovn, or \
                        set it to pools"
                .into());
        }
    };
    let from = if addresses { "OvnEips of kube-ovn" } else { "AddressPools" };
    info!(kube_ovn, projects, %source, "new addresses come from {from}");
    Ok(Some(Found { kube_ovn, addresses, projects }))
}

async fn ask(client: &Client, deadline: Duration) -> Result<(bool, bool), String> {
    let both = async {
        let theirs = served::<OvnEip>(client).await?;
        let kinds = [OvnEip::plural(&()), Subnet::plural(&()), Vpc::plural(&())];
        let projects = served::<Project>(client).await?.contains(&*Project::plural(&()));
        Ok((kinds.iter().all(|kind| theirs.contains(&**kind)), projects))
    };
    tokio::time::timeout(deadline, both).await.map_err(|_| "no answer in time".to_owned())?
}

/// The names of everything in the group and version of this kind.
async fn served<K: Resource<DynamicType = ()>>(client: &Client) -> Result<BTreeSet<String>, String> {
    match client.list_api_group_resources(&K::api_version(&())).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        // The path of a group that is not there has no Status, so only the code counts.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeSet::new()),
        Err(error) => Err(error.to_string()),
    }
}
