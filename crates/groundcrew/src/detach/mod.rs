//! `groundcrew detach`: for whoever leaves.
//!
//! Finalizers of ours would keep Services, EIps and Deorbits from ever being deleted once nobody runs who takes them off,
//! and the block of a Deorbit would refuse new load balancers and volumes for ever. This takes them off and away, and
//! touches nothing else: addresses stay where they are, and whatever serves them outside goes on.

mod apply;
mod leaders;
mod plan;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use groundcrew_api::names::class;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use plan::{Plan, Whose};

/// Flags of `groundcrew detach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Detach {
    /// Take the finalizers off. Without it only shows what would be done; the uid of the kube-system namespace, which it
    /// prints, guards against the wrong cluster
    #[arg(long, env = "GROUNDCREW_CONFIRM", value_name = "UID")]
    confirm: Option<String>,

    /// kubeconfig file; without it what KUBECONFIG names, ~/.kube/config, or the pod's own credentials
    #[arg(long, env = "GROUNDCREW_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context within the kubeconfig
    #[arg(long, env = "GROUNDCREW_CONTEXT", value_name = "NAME")]
    context: Option<String>,

    /// As the controllers had it; without it the uid of the kube-system namespace
    #[arg(long, env = "GROUNDCREW_CLUSTER_ID", value_name = "ID")]
    cluster_id: Option<String>,

    /// Where the controllers have their Leases, which show whether they run; without it every namespace
    #[arg(long, env = "GROUNDCREW_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,

    /// The classes whose Services are let go
    #[arg(long, env = "GROUNDCREW_CLASS", value_name = "CLASS", value_delimiter = ',', default_values = [class::OVN, class::CLOUDSIGMA])]
    class: Vec<String>,
}

/// Shows what would be done, or does it and tells.
pub(crate) async fn detach(args: Detach) -> anyhow::Result<String> {
    let client = client(&args).await?;
    // Asked of the cluster itself: a flag beside --confirm would confirm nothing.
    let uid = cluster_uid(&client).await?;
    let cluster = args.cluster_id.clone().unwrap_or_else(|| uid.clone());
    let whose = Whose { cluster, classes: args.class.clone() };
    let plan = apply::observe(&client, &whose).await?;
    let Some(confirmed) = &args.confirm else { return Ok(preview(&plan, &args, &uid)) };
    ensure!(*confirmed == uid, "--confirm {confirmed}: kube-system of this cluster is {uid}; nothing was done");
    if let Some(leader) = leaders::alive(&client, args.lease_namespace.as_deref()).await? {
        bail!("{leader} is running and would put the finalizers back: stop the controllers first; nothing was done");
    }
    let told = apply::apply(&client, &whose, plan).await;
    ensure!(
        told.failed.is_empty(),
        "{} let go, {} not; run it again:\n{}",
        told.done,
        told.failed.len(),
        told.failed.join("\n")
    );
    Ok(format!("{} let go. Their addresses and what serves them stay; nobody looks after them any more.\n", told.done))
}

fn preview(plan: &Plan, args: &Detach, uid: &str) -> String {
    let mut text = String::new();
    for block in &plan.blocks {
        let _ = writeln!(text, "{block}");
    }
    for step in &plan.steps {
        let _ = writeln!(text, "{step}");
    }
    for kept in &plan.kept {
        let _ = writeln!(text, "{kept}");
    }
    if plan.len() == 0 {
        text.push_str("Nothing has a finalizer of ours.\n");
    } else {
        let _ = writeln!(
            text,
            "\nNothing was done. To let these {} go: stop the controllers, then run\n  groundcrew detach{} --confirm {uid}",
            plan.len(),
            given(args),
        );
    }
    text
}

/// The flags that decide what is let go, to be given again.
fn given(args: &Detach) -> String {
    let kubeconfig = args.kubeconfig.as_ref().map(|path| path.display().to_string());
    let classes = Some(args.class.join(",")).filter(|classes| *classes != [class::OVN, class::CLOUDSIGMA].join(","));
    let flags = [
        ("kubeconfig", &kubeconfig),
        ("context", &args.context),
        ("cluster-id", &args.cluster_id),
        ("lease-namespace", &args.lease_namespace),
        ("class", &classes),
    ];
    flags.iter().filter_map(|(flag, value)| Some(format!(" --{flag} {}", value.as_ref()?))).collect()
}

async fn client(args: &Detach) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await?
        }
        None if args.context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await.context("neither in a pod nor with a kubeconfig (--kubeconfig)")?,
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(30));
    Ok(Client::try_from(config)?)
}

async fn cluster_uid(client: &Client) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces
        .get_metadata("kube-system")
        .await
        .context("read the namespace kube-system (or give --cluster-id)")?;
    found.metadata.uid.context("the namespace kube-system has no uid; give --cluster-id")
}
