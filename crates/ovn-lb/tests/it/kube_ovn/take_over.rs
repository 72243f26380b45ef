//! EIps that kube-dc served, and the `OvnEip`s behind them.

use groundcrew_api::eip::{EIp, EIpSpec};
use groundcrew_api::names::finalizer;

use super::*;
use crate::eips::alone_with_eips;

impl Cloud {
    /// An EIp and its `OvnEip` as kube-dc leaves them; `made` if kube-dc made the latter for it.
    async fn kube_dcs(&self, name: &str, address: u8, made: bool, owners: Value) {
        let (project, ovn_eip) = (&self.project, self.ovn_eip_of(name));
        let spec = json!({ "externalSubnet": self.external(), "type": "nat", "v4Ip": project.address(address) });
        let labels = json!({ label::EIP: format!("{}.{name}", project.namespace) });
        self.kube_ovn.put("OvnEip", &ovn_eip, labels, spec).await.unwrap();
        if made {
            let mark = json!({ "metadata": { "annotations": { annotation::OVN_EIP_CREATED_BY_EIP: "true" } } });
            let api = self.kube_ovn.ovn_eips();
            api.patch(&ovn_eip, &PatchParams::default(), &Patch::Merge(&mark)).await.unwrap();
        }
        let mut eip = EIp::new(name, EIpSpec { external_network_type: Some("public".into()), ..EIpSpec::default() });
        eip.metadata.finalizers = Some(vec![finalizer::KUBE_DC_EIP.to_owned()]);
        project.eips().create(&PostParams::default(), &eip).await.unwrap();
        let ownership = match owners[0]["type"].as_str() {
            None => "Released",
            Some("FIp") => "Exclusive",
            Some(_) => "Shared",
        };
        let status = json!({ "status": {
            "ipAddress": project.address(address), "ovnEIpRef": ovn_eip, "owners": owners, "ownershipType": ownership,
            "deleteReleased": name.starts_with("slb-"), "ready": true,
        } });
        project.eips().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    fn ovn_eip_of(&self, eip: &str) -> String {
        format!("eip-{eip}-{}", self.project.namespace)
    }

    async fn until_eip<T>(&self, name: &str, what: &str, probe: impl Fn(Option<EIp>) -> Result<T>) -> T {
        eventually(what, SOON, async || probe(self.project.eips().get_opt(name).await?)).await.unwrap()
    }

    /// What there is of an EIp and its `OvnEip`, versions and all.
    async fn picture(&self, eip: &str) -> (Option<String>, Option<String>) {
        let ours = self.project.eips().get(eip).await.unwrap().resource_version();
        let theirs = self.kube_ovn.ovn_eips().get(&self.ovn_eip_of(eip)).await.unwrap().resource_version();
        (ours, theirs)
    }

    async fn until_settled(&self, names: &[&str]) {
        self.until_ovn_eips("kube-ovn has served them", |eips| {
            let ready = eips.iter().filter(|eip| eip.data["status"]["ready"] == json!(true)).count();
            ensure!(ready == names.len(), "{ready} of {}", names.len());
            Ok(())
        })
        .await;
    }
}

fn is_gone(eip: Option<EIp>) -> Result<()> {
    ensure!(eip.is_none(), "{:?}", eip.map(|eip| eip.metadata));
    Ok(())
}

#[tokio::test]
async fn an_eip_of_kube_dcs_is_left_alone_until_it_is_taken_over_with_its_address_and_its_ovn_eip() {
    let cloud = Cloud::new("dctakeover").await;
    let (project, web) = (&cloud.project, "slb-web-x7k2p");
    cloud.kube_dcs(web, 2, true, json!([{ "type": "ServiceLb", "ownerRef": "web" }])).await;
    cloud.kube_dcs("office", 3, false, json!([])).await;
    cloud.kube_dcs("floating", 4, true, json!([{ "type": "FIp", "ownerRef": "vm" }])).await;
    cloud.kube_dcs("leaving", 5, true, json!([])).await;
    project.eips().delete("leaving", &DeleteParams::default()).await.unwrap();
    let names = [web, "office", "floating", "leaving"];
    cloud.until_settled(&names).await;
    let mut before = Vec::new();
    for name in names {
        before.push(cloud.picture(name).await);
    }

    // Beside a running manager.
    let alone = alone_with_eips().await;
    let controller = cloud.controller_with(&["--serve-eips"]).await;
    project.served("other").await;
    for (name, before) in names.iter().zip(&before) {
        assert_eq!(cloud.picture(name).await, *before, "{name}");
    }
    controller.stop().await;
    drop(alone);

    // The manager is stopped, and leaves a Service.
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    let service = project.create("web", json!({})).await;
    let theirs = json!({ "metadata": { "finalizers": [finalizer::KUBE_DC_SERVICE] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    let status =
        json!({ "status": { "loadBalancer": { "ingress": [{ "ip": project.address(2), "ipMode": "Proxy" }] } } });
    project.services().patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let uid = project.eips().get(web).await.unwrap().uid();

    let controller = cloud.controller_with(&["--take-over"]).await;
    for name in [web, "office"] {
        let eip = cloud
            .until_eip(name, &format!("{name} is taken over"), |eip| {
                let eip = eip.ok_or_else(|| anyhow::anyhow!("gone"))?;
                ensure!(eip.finalizers() == [finalizer::EIP], "{:?}", eip.metadata);
                Ok(eip)
            })
            .await;
        let status = eip.status.unwrap();
        assert_eq!(status.ovn_eip_ref, cloud.ovn_eip_of(name));
        assert_eq!(eip.metadata.labels.unwrap()[label::CLUSTER], project.namespace);
    }
    project.until_reason("web", "Served").await;
    let taken = project.eips().get(web).await.unwrap();
    assert_eq!((taken.uid(), taken.status.unwrap().ip_address), (uid, Some(project.address(2))));
    assert_eq!(addresses(&project.services().get("web").await.unwrap()), [project.address(2)]);
    assert_eq!(project.services().get("web").await.unwrap().uid(), service.uid());
    let kept = cloud.kube_ovn.ovn_eips().get(&cloud.ovn_eip_of(web)).await.unwrap();
    assert_eq!(
        (kept.labels()[label::CLUSTER].as_str(), address_of(&kept)),
        (&*project.namespace, &*project.address(2))
    );
    cloud.until_eip("leaving", "what was stuck in deletion goes", is_gone).await;
    assert_eq!(cloud.picture("floating").await, before[2], "floating addresses are somebody else's");
    assert_eq!(cloud.picture("office").await.1, before[1].1, "an OvnEip that was there before the EIp is nobody's");
    controller.stop().await;

    // It is ours for good.
    let _controller = cloud.controller().await;
    project.delete("web").await;
    cloud.until_eip(web, "what was made for the Service goes with it", is_gone).await;
    project.eips().delete("office", &DeleteParams::default()).await.unwrap();
    cloud.until_eip("office", "the tenant's own goes when he says so", is_gone).await;
    let mut left = [cloud.ovn_eip_of("floating"), cloud.ovn_eip_of("office")];
    left.sort();
    cloud
        .until_ovn_eips("those that kube-dc made for them are gone, too", |eips| {
            let mut names: Vec<_> =
                eips.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("eip-")).collect();
            names.sort();
            ensure!(names == left, "{names:?}");
            Ok(())
        })
        .await;
}
