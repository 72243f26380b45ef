//! Nova's servers.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{Instance, InstanceGroup, InstanceState, Instances, Listing, ProviderError, Reboot};
use openstack_client::compute::{self, Server};

use crate::OpenStack;
use crate::error::told;
use crate::listing::translate;

impl Instances for OpenStack {
    async fn instances(&self) -> Result<Listing<Instance>, ProviderError> {
        let servers = self.client.compute().servers().await.map_err(told)?;
        Ok(translate("servers", servers, |server| Ok(from_nova(server))))
    }

    async fn instance(&self, id: &str) -> Result<Instance, ProviderError> {
        self.client.compute().server(id).await.map(from_nova).map_err(told)
    }

    async fn instance_groups(&self) -> Result<Listing<InstanceGroup>, ProviderError> {
        let groups = self.client.compute().server_groups().await.map_err(told)?;
        Ok(translate("server groups", groups, |group| {
            Ok(InstanceGroup { id: group.id, name: group.name, members: group.members.into_iter().collect() })
        }))
    }

    async fn reboot(&self, id: &str, how: Reboot, term: &Term) -> Result<(), ProviderError> {
        let how = match how {
            Reboot::Soft => compute::Reboot::Soft,
            Reboot::Hard => compute::Reboot::Hard,
        };
        self.write(term, self.client.compute().reboot(id, how)).await
    }

    async fn delete_instance(&self, id: &str, term: &Term) -> Result<(), ProviderError> {
        self.write(term, self.client.compute().delete_server(id)).await
    }

    async fn mark_instance(
        &self,
        id: &str,
        tags: &BTreeSet<String>,
        metadata: &BTreeMap<String, String>,
        term: &Term,
    ) -> Result<(), ProviderError> {
        let compute = self.client.compute();
        for tag in tags {
            self.write(term, compute.add_tag(id, tag)).await?;
        }
        if !metadata.is_empty() {
            self.write(term, compute.set_metadata(id, metadata)).await?;
        }
        Ok(())
    }
}

fn from_nova(server: Server) -> Instance {
    Instance {
        state: state(&server),
        addresses: server.ips().collect(),
        id: server.id,
        name: server.name,
        task: server.task_state,
        created: server.created,
        locked: server.locked,
        fault: server.fault.map(|fault| fault.message),
        tags: server.tags.into_iter().collect(),
        metadata: server.metadata,
    }
}

fn state(server: &Server) -> InstanceState {
    if server.is_unknown() {
        return InstanceState::Unknown;
    }
    // A server that is on its way out still shows the status that it had.
    if server.task_state.as_deref().is_some_and(|task| task.contains("deleting")) {
        return InstanceState::Deleting;
    }
    match server.status.as_str() {
        "ACTIVE" => InstanceState::Running,
        "BUILD" => InstanceState::Building,
        "ERROR" => InstanceState::Failed,
        "SHUTOFF" | "PAUSED" | "SUSPENDED" | "SHELVED" | "SHELVED_OFFLOADED" => InstanceState::Stopped,
        "DELETED" | "SOFT_DELETED" => InstanceState::Deleting,
        _ => InstanceState::Other,
    }
}
