//! The last steps, kept in the cluster as `NodeRepair` objects.

use std::collections::BTreeMap;
use std::time::Duration;

use groundcrew_api::node_repair::{NodeRepair, NodeRepairSpec, NodeRepairStatus};
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use super::fleet::Member;
use super::ladder::Taken;

pub(crate) struct Memory {
    api: Api<NodeRepair>,
    deadline: Duration,
    /// As they were read: a write fails if somebody changed one since.
    read: BTreeMap<String, NodeRepair>,
}

impl Memory {
    pub(crate) fn new(client: Client, deadline: Duration) -> Self {
        Self { api: Api::all(client), deadline, read: BTreeMap::new() }
    }

    /// Reads all of it anew.
    pub(crate) async fn load(&mut self) -> Result<BTreeMap<String, Taken>, ProviderError> {
        let all = ListParams::default();
        let list = tokio::time::timeout(self.deadline, self.api.list(&all)).await.map_err(|_| silent())?;
        let list = list
            .map_err(|error| refused("list NodeRepairs (are the definitions of `groundcrew crds` there?)", &error))?;
        self.read = list.items.into_iter().map(|repair| (repair.name_any(), repair)).collect();
        let taken = self.read.iter().filter_map(|(id, repair)| {
            let status = repair.status.as_ref()?;
            let NodeRepairStatus { step, at, outcome, refusals, .. } = status;
            Some((id.clone(), Taken { step: *step, at: at.0, outcome: *outcome, refusals: *refusals }))
        });
        Ok(taken.collect())
    }

    /// Notes a step **before it is ordered**: what is not known to have been noted must not be done.
    pub(crate) async fn note(
        &mut self,
        member: Member<'_>,
        status: NodeRepairStatus,
        term: &Term,
    ) -> Result<(), ProviderError> {
        let object = match self.read.get(&member.instance.id).cloned() {
            Some(object) => object,
            None => self.create(member, term).await?,
        };
        self.replace(&member.instance.id, &NodeRepair { status: Some(status), ..object }, term).await
    }

    async fn replace(&mut self, id: &str, object: &NodeRepair, term: &Term) -> Result<(), ProviderError> {
        let post = PostParams::default();
        let write = async {
            self.api.replace_status(id, &post, object).await.map_err(|error| refused("note a repair", &error))
        };
        let written = term.write(self.deadline, write).await?;
        self.read.insert(id.to_owned(), written);
        Ok(())
    }

    async fn create(
        &self,
        Member { instance, node, .. }: Member<'_>,
        term: &Term,
    ) -> Result<NodeRepair, ProviderError> {
        let server = instance.name.chars().take(255).collect();
        let new = NodeRepair::new(&instance.id, NodeRepairSpec { server, node: node.map(|node| node.name.clone()) });
        let post = PostParams::default();
        let create = async {
            let made = self.api.create(&post, &new).await;
            made.map_err(|error| refused("create a NodeRepair", &error))
        };
        Ok(term.write(self.deadline, create).await?)
    }

    /// Forgets the step of a server.
    pub(crate) async fn forget(&mut self, id: &str, term: &Term) -> Result<(), ProviderError> {
        let Some(object) = self.read.get(id) else { return Ok(()) };
        let only = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let delete = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        let forget = async {
            match self.api.delete(id, &delete).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                done => done.map(drop).map_err(|error| refused("forget a repair", &error)),
            }
        };
        term.write(self.deadline, forget).await?;
        self.read.remove(id);
        Ok(())
    }
}

fn refused(tried: &str, error: &kube::Error) -> ProviderError {
    ProviderError::from_kube(tried, error)
}

fn silent() -> ProviderError {
    ProviderError::new(ErrorKind::Unavailable, "list NodeRepairs: no answer")
}
