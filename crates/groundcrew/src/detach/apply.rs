//! Reads what is there, lifts the block of a Deorbit, and takes finalizers off one by one.

use std::time::Duration;

use anyhow::{Context, anyhow};
use groundcrew_api::deorbit::Deorbit;
use groundcrew_api::eip::EIp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use tokio::time::timeout;

use super::plan::{BLOCK, Block, Half, Kind, PROBE, Plan, Step, Whose};

const PAGE: u32 = 250;
const DEADLINE: Duration = Duration::from_secs(30);
/// Somebody may write to an object just then, again and again.
const MOST_TRIES: usize = 5;

/// What became of a plan.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) done: usize,
    pub(crate) failed: Vec<String>,
}

/// The plan for everything that is there now.
pub(crate) async fn observe(client: &Client, whose: &Whose) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    for service in list::<Service>(client, "Services").await? {
        plan.look(Kind::Service, &service.metadata, service_address(&service), whose);
    }
    for eip in list::<EIp>(client, "EIps").await? {
        plan.look(Kind::EIp, &eip.metadata, eip_address(&eip), whose);
    }
    for deorbit in list::<Deorbit>(client, "Deorbits").await? {
        plan.look(Kind::Deorbit, &deorbit.metadata, None, whose);
    }
    for name in [BLOCK, PROBE] {
        if let Some(binding) = block::<ValidatingAdmissionPolicyBinding>(client, name).await? {
            plan.look_at_block(Half::Binding, name, &binding.metadata);
        }
    }
    if let Some(policy) = block::<ValidatingAdmissionPolicy>(client, BLOCK).await? {
        plan.look_at_block(Half::Policy, BLOCK, &policy.metadata);
    }
    Ok(plan)
}

/// A half of the block; none where Kubernetes is too old for it.
async fn block<K>(client: &Client, name: &str) -> anyhow::Result<Option<PartialObjectMeta<K>>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    match timeout(DEADLINE, api.get_metadata(name)).await {
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(found) => found.map(Some).with_context(|| format!("read the {} {name}", K::kind(&()))),
        Err(_) => Err(anyhow!("read the {} {name}: no answer within {} s", K::kind(&()), DEADLINE.as_secs())),
    }
}

/// All of a kind, in pages; one that is not installed has none.
async fn list<K>(client: &Client, what: &str) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = match timeout(DEADLINE, api.list(&params)).await {
            // By its code: about a kind that it does not know the server gives no reason.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(all),
            Ok(page) => page.with_context(|| format!("list {what}"))?,
            Err(_) => return Err(anyhow!("list {what}: no answer within {} s", DEADLINE.as_secs())),
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// One failure does not stop the rest: what was not done is told, and can be tried again.
pub(crate) async fn apply(client: &Client, whose: &Whose, plan: Plan) -> Told {
    let mut told = Told::default();
    for block in &plan.blocks {
        match timeout(DEADLINE, lift(client, block)).await {
            Ok(Ok(())) => told.done += 1,
            Ok(Err(error)) => told.failed.push(format!("  {} {}: {error}", block.half, block.name)),
            Err(_) => {
                told.failed.push(format!("  {} {}: no answer within {} s", block.half, block.name, DEADLINE.as_secs()));
            }
        }
    }
    for step in plan.steps {
        let name = step.object();
        match let_go(client, whose, step).await {
            Ok(()) => told.done += 1,
            Err(error) => told.failed.push(format!("  {name}: {error:#}")),
        }
    }
    told
}

async fn lift(client: &Client, block: &Block) -> kube::Result<()> {
    let preconditions = Preconditions { uid: block.uid.clone(), resource_version: block.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deleted = match block.half {
        Half::Binding => {
            let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
            api.delete(block.name, &params).await.map(drop)
        }
        Half::Policy => {
            let api: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
            api.delete(block.name, &params).await.map(drop)
        }
    };
    match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted,
    }
}

/// Where somebody was quicker, what is there now is decided on anew.
async fn let_go(client: &Client, whose: &Whose, mut step: Step) -> anyhow::Result<()> {
    for _ in 0..MOST_TRIES {
        match timeout(DEADLINE, write(client, &step)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => return Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(anyhow!("no answer within {} s", DEADLINE.as_secs())),
        }
        match timeout(DEADLINE, again(client, whose, &step)).await {
            Ok(Ok(Some(now))) => step = now,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(anyhow!("no answer within {} s", DEADLINE.as_secs())),
        }
    }
    Err(anyhow!("others change it all the time"))
}

async fn write(client: &Client, step: &Step) -> kube::Result<()> {
    let params = PatchParams::default();
    match step.kind {
        Kind::Service => {
            let api: Api<Service> = Api::namespaced(client.clone(), &step.namespace);
            api.patch_metadata(&step.name, &params, &Patch::Strategic(&step.patch)).await.map(drop)
        }
        Kind::EIp => {
            let api: Api<EIp> = Api::namespaced(client.clone(), &step.namespace);
            api.patch_metadata(&step.name, &params, &Patch::Merge(&step.patch)).await.map(drop)
        }
        Kind::Deorbit => {
            let api: Api<Deorbit> = Api::all(client.clone());
            api.patch_metadata(&step.name, &params, &Patch::Merge(&step.patch)).await.map(drop)
        }
    }
}

/// The step for what is there now; `None` if there is nothing to do any more.
async fn again(client: &Client, whose: &Whose, step: &Step) -> kube::Result<Option<Step>> {
    let mut plan = Plan::default();
    match step.kind {
        Kind::Service => {
            let api: Api<Service> = Api::namespaced(client.clone(), &step.namespace);
            if let Some(now) = api.get_opt(&step.name).await? {
                plan.look(Kind::Service, &now.metadata, service_address(&now), whose);
            }
        }
        Kind::EIp => {
            let api: Api<EIp> = Api::namespaced(client.clone(), &step.namespace);
            if let Some(now) = api.get_opt(&step.name).await? {
                plan.look(Kind::EIp, &now.metadata, eip_address(&now), whose);
            }
        }
        Kind::Deorbit => {
            let api: Api<Deorbit> = Api::all(client.clone());
            if let Some(now) = api.get_opt(&step.name).await? {
                plan.look(Kind::Deorbit, &now.metadata, None, whose);
            }
        }
    }
    Ok(plan.steps.pop())
}

fn service_address(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    let addresses: Vec<_> = ingress.iter().filter_map(|ingress| ingress.ip.clone()).collect();
    (!addresses.is_empty()).then(|| addresses.join(", "))
}

fn eip_address(eip: &EIp) -> Option<String> {
    eip.status.as_ref()?.ip_address.clone().filter(|address| !address.is_empty())
}
