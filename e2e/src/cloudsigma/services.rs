//! Services, their endpoints, and who holds their addresses.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_testkit::cloudsigma::Account;
use groundcrew_testkit::eventually;
use groundcrew_testkit::wire::{Asking, Requesting};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{NAMESPACE, SOON, TARGET_PORT, World};

impl World {
    /// Services of the world.
    #[must_use]
    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a Service with port 80, as somebody would who knows nothing of classes; `more` is merged over its spec.
    pub async fn create(&self, name: &str, more: &Value) -> Result<()> {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "p80", "port": 80, "targetPort": TARGET_PORT }],
            },
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        self.services().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }

    /// Makes these nodes the endpoints of a Service, on these ports by name, protocol and number.
    pub async fn endpoints(&self, service: &str, nodes: &[usize], ports: &[(String, &str, u16)]) -> Result<()> {
        let mut endpoints = Vec::new();
        for number in nodes {
            let machine = self.wire.nodes.get(*number).context("no such machine")?;
            endpoints.push(json!({
                "addresses": [machine.address()], "conditions": { "ready": true }, "nodeName": machine.name(),
            }));
        }
        let ports: Vec<_> = ports
            .iter()
            .map(|(name, protocol, port)| json!({ "name": name, "protocol": protocol, "port": port }))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.patch(service, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await?;
        Ok(())
    }

    /// A Service with port 80 that every node answers for; its address.
    pub async fn serve(&self, name: &str) -> Result<IpAddr> {
        self.create(name, &json!({})).await?;
        let all: Vec<_> = (0..self.nodes.len()).collect();
        self.endpoints(name, &all, &[("p80".into(), "TCP", TARGET_PORT)]).await?;
        self.until_served(name).await
    }

    /// Waits until a Service has an address.
    pub async fn until_served(&self, name: &str) -> Result<IpAddr> {
        eventually(&format!("{name} has an address"), SOON, async || {
            let service = self.services().get(name).await?;
            let ingress =
                service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
            let address = ingress.and_then(|ingress| ingress.ip.as_ref()?.parse().ok());
            address.with_context(|| format!("{:?}", service.status))
        })
        .await
    }

    /// Deletes a Service, and waits until it is gone.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        eventually(&format!("{name} is gone"), SOON, async || match self.services().get_opt(name).await? {
            None => Ok(()),
            Some(service) => Err(anyhow::anyhow!("{:?} {:?}", service.metadata.finalizers, service.status)),
        })
        .await
    }

    /// All `FloatingIP`s.
    pub async fn floating_ips(&self) -> Result<Vec<FloatingIP>> {
        Ok(Api::<FloatingIP>::all(self.client.clone()).list(&ListParams::default()).await?.items)
    }

    /// The resourceVersions of what the controller writes.
    pub async fn versions(&self) -> Result<Vec<(String, Option<String>)>> {
        let mut versions: Vec<_> =
            self.floating_ips().await?.iter().map(|object| (object.name_any(), object.resource_version())).collect();
        for service in self.services().list(&ListParams::default()).await? {
            versions.push((service.name_any(), service.resource_version()));
        }
        for node in Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await? {
            versions.push((node.name_any(), node.resource_version()));
        }
        Ok(versions)
    }

    /// Waits until a node that `probe` likes is said to hold the address, as wanted; its number.
    pub async fn until_held(&self, address: IpAddr, probe: impl Fn(usize) -> bool) -> Result<usize> {
        let api: Api<FloatingIP> = Api::all(self.client.clone());
        eventually(&format!("{address} is held"), SOON, async || {
            let object = api.get(&FloatingIP::name_of(address)).await?;
            let status = object.status.clone().unwrap_or_default();
            let ready =
                status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            let settled = ready && status.serial == object.spec.serial && status.holder == object.spec.holder;
            let holder = status.holder.as_deref().filter(|_| settled);
            let number = self.nodes.iter().position(|node| Some(node.name()) == holder);
            number.filter(|number| probe(*number)).with_context(|| format!("{:?} {status:?}", object.spec))
        })
        .await
    }

    /// Waits until a node that `probe` likes should hold the address, whether it does or not; its number.
    pub async fn until_wanted(&self, address: IpAddr, probe: impl Fn(usize) -> bool) -> Result<usize> {
        let api: Api<FloatingIP> = Api::all(self.client.clone());
        eventually(&format!("{address} is wanted elsewhere"), SOON, async || {
            let wanted = api.get(&FloatingIP::name_of(address)).await?.spec.holder;
            let number = self.nodes.iter().position(|node| Some(node.name()) == wanted.as_deref());
            number.filter(|number| probe(*number)).with_context(|| format!("{wanted:?}"))
        })
        .await
    }

    /// Waits until the account is what it was.
    pub async fn until_account_is(&self, before: &Account) -> Result<()> {
        eventually("the account is as before", SOON, async || {
            let now = self.cloud.snapshot();
            let same = now.ips == before.ips
                && now.tags == before.tags
                && now.servers == before.servers
                && now.subscriptions == before.subscriptions;
            if same { Ok(()) } else { Err(format!("{:?} {:?}", now.ips, now.tags)) }
        })
        .await
    }

    /// Waits until the client is answered by this node's machine when it asks who has the address.
    pub async fn until_answers(&self, asking: &Asking, number: usize) -> Result<()> {
        let mac = self.wire.nodes.get(number).context("no such machine")?.mac();
        eventually(&format!("node {number} answers"), SOON, async || {
            let last = asking.answers().pop().map(|answer| answer.mac);
            ensure!(last.as_deref() == Some(mac), "it is {last:?}");
            Ok(())
        })
        .await
    }

    /// Nobody said any more that it has the address once somebody else had begun to: these nodes in this order.
    pub fn ensure_answered_in_turn(&self, asking: &Asking, nodes: &[usize]) -> Result<()> {
        let mut turns: Vec<String> = asking.answers().into_iter().map(|answer| answer.mac).collect();
        turns.dedup();
        let expected: Vec<_> =
            nodes.iter().filter_map(|node| Some(self.wire.nodes.get(*node)?.mac().to_owned())).collect();
        ensure!(turns == expected, "{turns:?} answered, not {expected:?}");
        Ok(())
    }

    /// Nobody said again that it has the address who had stopped because another began to.
    pub fn ensure_nobody_answered_again(&self, asking: &Asking) -> Result<()> {
        let mut turns: Vec<String> = asking.answers().into_iter().map(|answer| answer.mac).collect();
        turns.dedup();
        let who: std::collections::BTreeSet<_> = turns.iter().collect();
        ensure!(who.len() == turns.len(), "{turns:?} answered");
        Ok(())
    }

    /// Waits until so many requests in a row, all sent after `since`, were answered.
    pub async fn until_steady(&self, requesting: &Requesting, since: f64, count: usize) -> Result<()> {
        eventually(&format!("{count} answers in a row"), SOON, async || {
            let requests = requesting.requests();
            let row = requests.iter().rev().take_while(|request| request.sent > since && request.answer.is_some());
            let row = row.count();
            if row >= count { Ok(()) } else { Err(format!("{row}, the last is {:?}", requests.last())) }
        })
        .await
    }
}
