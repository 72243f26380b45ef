//! What a cloud with all services needs before a member of a project can make something: processes that do the work, a
//! flavour, an image, a type of volumes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::cloud::{ADMIN, Cloud, text};
use super::http::{Method, upload};
use super::settings::COMPUTE_HOST;
use super::worker::{Worker, Working};
use super::{Service, project};
use crate::eventually;

/// Octavia's members have a role of their own.
pub(super) const BALANCER_ROLE: &str = "load-balancer_member";
const READY: Duration = Duration::from_mins(3);
/// Octavia takes a second for a load balancer on an idle machine.
const BALANCED: Duration = Duration::from_secs(15);

pub(super) async fn furnish(cloud: &mut Cloud) -> Result<()> {
    let (user, project) = (cloud.id_of("users", ADMIN).await?, cloud.id_of("projects", ADMIN).await?);
    // Neutron lets nobody else bind a port.
    cloud.grant(&project, &user, "service").await?;
    cloud.make(Service::Identity, "v3/roles", &json!({"role": {"name": BALANCER_ROLE}})).await?;
    cloud.ovn.add_chassis("lab-chassis", COMPUTE_HOST).await?;
    start_workers(cloud, &project).await.context("start the processes that work for Nova, Cinder and Octavia")?;

    let flavor = json!({"id": project::FLAVOR, "name": "lab", "ram": 64, "vcpus": 1, "disk": 1});
    cloud.make(Service::Compute, "v2.1/flavors", &json!({"flavor": flavor})).await?;
    let types = format!("v3/{project}/types");
    cloud.make(Service::BlockStorage, &types, &json!({"volume_type": {"name": "lab"}})).await?;
    let image = json!({"id": project::IMAGE, "name": "lab", "disk_format": "raw", "container_format": "bare",
        "visibility": "public"});
    cloud.make(Service::Image, "v2/images", &image).await?;
    let path = format!("/v2/images/{}/file", project::IMAGE);
    upload(cloud.address(Service::Image), &path, cloud.token(), vec![0; 1024]).await?.ok()?;
    first_load_balancer(cloud).await.context("make a first load balancer")
}

async fn start_workers(cloud: &mut Cloud, project: &str) -> Result<()> {
    let mut workers = std::mem::take(&mut cloud.workers);
    let started = {
        let cloud = &*cloud;
        // Compute gives up on a conductor that does not answer.
        let (compute, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            workers.iter_mut().partition(|(worker, _)| **worker == Worker::Compute);
        let start = async |(worker, working): (&Worker, &mut Working)| {
            working.start(async || is_up(cloud, *worker, project).await).await
        };
        match try_join_all(others.into_iter().map(&start)).await {
            Ok(_) => try_join_all(compute.into_iter().map(&start)).await.map(drop),
            Err(error) => Err(error),
        }
    };
    cloud.workers = workers;
    started?;
    eventually("placement knows the compute host", READY, async || {
        let ask = async |path: &str| cloud.ask(Service::Placement, Method::GET, path, None).await?.ok();
        let providers = ask("resource_providers").await?;
        let host = text(&providers["resource_providers"][0]["uuid"])?;
        let inventories = ask(&format!("resource_providers/{host}/inventories")).await?;
        ensure!(inventories["inventories"]["VCPU"].is_object(), "{inventories}");
        Ok(())
    })
    .await
}

async fn is_up(cloud: &Cloud, worker: Worker, project: &str) -> Result<()> {
    let Some(name) = worker.listed() else { return Ok(()) };
    let (service, path) = if name.starts_with("nova") {
        (Service::Compute, "v2.1/os-services".to_owned())
    } else {
        (Service::BlockStorage, format!("v3/{project}/os-services"))
    };
    let all = cloud.ask(service, Method::GET, &path, None).await?.ok()?;
    let own = all["services"].as_array().into_iter().flatten().find(|listed| listed["binary"] == name);
    let state = own.map_or(&Value::Null, |own| &own["state"]);
    ensure!(state == "up", "{name} is {state}");
    Ok(())
}

/// An order that Octavia's worker is too young to hear is lost, and only a load balancer that comes to life shows that it
/// hears.
async fn first_load_balancer(cloud: &Cloud) -> Result<()> {
    let network = cloud.make(Service::Network, "v2.0/networks", &json!({"network": {"name": "first"}})).await?;
    let subnet = json!({"network_id": network["network"]["id"], "cidr": "10.0.0.0/24", "ip_version": 4});
    let subnet = cloud.make(Service::Network, "v2.0/subnets", &json!({"subnet": subnet})).await?;
    let asked = json!({"loadbalancer": {"name": "first", "vip_subnet_id": subnet["subnet"]["id"]}});
    eventually("octavia makes a load balancer", READY, async || {
        let made = cloud.make(Service::LoadBalancer, "v2/lbaas/loadbalancers", &asked).await?;
        let path = format!("v2/lbaas/loadbalancers/{}", text(&made["loadbalancer"]["id"])?);
        let active = eventually("it is active", BALANCED, async || {
            let found = cloud.ask(Service::LoadBalancer, Method::GET, &path, None).await?.ok()?;
            match found["loadbalancer"]["provisioning_status"].as_str() {
                Some("ACTIVE") => Ok(()),
                other => bail!("it is {other:?}"),
            }
        });
        active.await
    })
    .await
}
