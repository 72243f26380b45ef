use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use tokio::net::TcpStream;

use super::Kubeconfig;
use super::flags::{self, Pki};
use crate::command::find_pinned;
use crate::daemon::Daemon;
use crate::directory::copy;
use crate::process::Process;
use crate::{ReservedPort, Scratch, Signal, eventually};

/// From 3 s on an idle machine; the rest is for the neighbours.
const READY: Duration = Duration::from_mins(2);

const AUDIT_LOG: &str = "audit.log";

/// Requests of `ServiceAccount`s, once each. A watch is written down when it is answered, not when it ends.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        { "level": "Metadata", "userGroups": ["system:serviceaccounts"] },
        { "level": "None" }
    ]
}"#;

/// A process of a [`ControlPlane`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager; there only after [`ControlPlane::start_controller_manager`].
    ControllerManager,
}

/// etcd and kube-apiserver with RBAC, no anonymous access, and nothing else.
///
/// No controller runs, so nothing makes `EndpointSlices`, collects garbage or finishes the deletion of a namespace,
/// unless [`ControlPlane::start_controller_manager`] names who should. There are no nodes and no DNS.
#[derive(Debug)]
pub struct ControlPlane {
    // Before `dir`: processes must have ended when their directory is removed.
    api_server: Server,
    etcd: Server,
    controller_manager: Option<Server>,
    admin: Kubeconfig,
    pki: Pki,
    _peer_port: ReservedPort,
    dir: Scratch,
}

#[derive(Debug)]
struct Server {
    daemon: Daemon,
    port: ReservedPort,
}

impl ControlPlane {
    /// Starts one and waits until the API server is ready.
    pub async fn start() -> Result<Self> {
        Self::start_in(Scratch::new("kube")?, false).await
    }

    /// Starts one that writes down what `ServiceAccount`s ask for: see [`ControlPlane::audited`].
    pub async fn start_audited() -> Result<Self> {
        Self::start_in(Scratch::new("kube")?, true).await
    }

    /// Starts one that has what [`ControlPlane::save`] put into `saved`. Objects are as they were, but certificates and
    /// tokens of the saved one are no good here.
    pub async fn start_from(saved: &Path) -> Result<Self> {
        let dir = Scratch::new("kube")?;
        copy(saved, &dir.join("etcd")).with_context(|| format!("copy {}", saved.display()))?;
        Self::start_in(dir, false).await
    }

    /// Ends it, and keeps its data in `into`, which must not exist.
    pub async fn save(mut self, into: &Path) -> Result<()> {
        self.stop(Part::ApiServer, Signal::SIGTERM).await?;
        self.stop(Part::Etcd, Signal::SIGTERM).await?;
        ensure!(!into.exists(), "{} is there already", into.display());
        // Under another name first, so that a copy that was cut short is never taken for whole.
        let partial = into.with_extension(format!("partial-{}", std::process::id()));
        copy(&self.dir.join("etcd"), &partial).with_context(|| format!("copy to {}", partial.display()))?;
        Ok(std::fs::rename(&partial, into)?)
    }

    async fn start_in(dir: Scratch, audited: bool) -> Result<Self> {
        let pki = Pki::new(&dir.join("pki"))?;
        let (etcd_port, peer_port, api_port) = (ReservedPort::new()?, ReservedPort::new()?, ReservedPort::new()?);

        let etcd = flags::etcd(&find_pinned("etcd").await?, &pki, &dir.join("etcd"), &etcd_port, &peer_port);
        let mut api_server = flags::api_server(&find_pinned("kube-apiserver").await?, &pki, &etcd_port, &api_port);
        if audited {
            let policy = dir.join("audit-policy.yaml");
            std::fs::write(&policy, AUDIT_POLICY).with_context(|| format!("write {}", policy.display()))?;
            api_server.args(flags::audit(&policy, &dir.join(AUDIT_LOG)));
        }
        let identity = pki.cluster.issue("admin", "system:masters/admin", vec![])?;
        let admin = Kubeconfig::with_certificate(
            dir.join("admin.kubeconfig"),
            api_port.address(),
            &pki.cluster.certificate,
            &identity,
        )?;
        let mut plane = Self {
            api_server: Server { daemon: Daemon::new("kube-apiserver", &api_server, dir.path())?, port: api_port },
            etcd: Server { daemon: Daemon::new("etcd", &etcd, dir.path())?, port: etcd_port },
            controller_manager: None,
            admin,
            pki,
            _peer_port: peer_port,
            dir,
        };
        plane.restart(Part::Etcd).await?;
        plane.restart(Part::ApiServer).await?;
        Ok(plane)
    }

    /// Starts kube-controller-manager with these controllers only, for example `endpointslice-controller`. The name of
    /// one that it does not have ends it.
    pub async fn start_controller_manager(&mut self, controllers: &[&str]) -> Result<()> {
        ensure!(self.controller_manager.is_none(), "kube-controller-manager is there already");
        let program = find_pinned("kube-controller-manager").await?;
        let kubeconfig = self.user("system:kube-controller-manager", None)?;
        let port = ReservedPort::new()?;
        let command = flags::controller_manager(&program, &self.pki, kubeconfig.path(), &port, controllers);
        let daemon = Daemon::new("kube-controller-manager", &command, self.dir.path())?;
        self.controller_manager = Some(Server { daemon, port });
        self.restart(Part::ControllerManager).await
    }

    /// A namespace of the test's own: `prefix` and a number. Pods can be made in it at once.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let client = self.client().await?;
        let name = loop {
            let name = format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
            // Data that was started from may have some already.
            if create(&Api::<Namespace>::all(client.clone()), &name).await? {
                break name;
            }
        };
        // Pods name it, and the controller that makes it may not run.
        create(&Api::<ServiceAccount>::namespaced(client, &name), "default").await?;
        Ok(name)
    }

    /// Installs these definitions, or changes them, and waits until their objects can be made.
    pub async fn define(&self, definitions: &[CustomResourceDefinition]) -> Result<()> {
        let client = self.client().await?;
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in definitions {
            let name = definition.metadata.name.as_deref().context("a definition without a name")?;
            let spec = &definition.spec;
            let version = spec.versions.iter().find(|version| version.served).context("no version is served")?;
            let objects = format!("/apis/{}/{}/{}?limit=1", spec.group, version.name, spec.names.plural);
            api.patch(name, &PatchParams::apply("testkit").force(), &Patch::Apply(definition)).await?;
            eventually(&format!("{name} is established"), READY, async || {
                let conditions = api.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
                let there = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
                ensure!(there, "{conditions:?}");
                // It writes that down before it goes by it.
                client.request_text(http::Request::get(objects.as_str()).body(Vec::new())?).await?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// A client with every right; a new one for each call, see [`Kubeconfig::client`].
    pub async fn client(&self) -> Result<Client> {
        self.admin.client().await
    }

    /// The file for programs with every right.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        self.admin.path()
    }

    /// Who has every right.
    #[must_use]
    pub fn admin(&self) -> &Kubeconfig {
        &self.admin
    }

    /// A user with a certificate, who may do what RBAC grants to that name or to `group`.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<Kubeconfig> {
        let file = name.replace([':', '/'], "-");
        let subject = group.map_or_else(|| name.to_owned(), |group| format!("{group}/{name}"));
        let identity = self.pki.cluster.issue(&file, &subject, vec![])?;
        let path = self.dir.join(format!("{file}.kubeconfig"));
        Kubeconfig::with_certificate(path, self.address(), &self.pki.cluster.certificate, &identity)
    }

    /// A `ServiceAccount`, made if it is not there, with a token for an hour. It may do what RBAC grants it.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Kubeconfig> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await?, namespace);
        create(&accounts, name).await?;
        let wanted = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() },
            ..Default::default()
        };
        let given = accounts.create_token_request(name, &PostParams::default(), &wanted).await?;
        let token = given.status.with_context(|| format!("no token for {namespace}/{name}"))?.token;
        let path = self.dir.join(format!("{namespace}-{name}.kubeconfig"));
        Kubeconfig::with_token(path, self.address(), &self.pki.cluster.certificate, &token)
    }

    /// Where the API server listens; its certificate holds for every port of 127.0.0.1.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.api_server.port.address()
    }

    /// Sends a signal to a part. SIGSTOP and SIGCONT make it hang and go on.
    pub fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        self.process(part)?.signal(signal)
    }

    /// Ends a part with `signal` (SIGKILL, SIGTERM) and waits until it is gone.
    pub async fn stop(&mut self, part: Part, signal: Signal) -> Result<()> {
        self.server_mut(part)?.daemon.stop(signal).await
    }

    /// Starts a part that was stopped, at its old address and with its old data, and waits until it is ready.
    pub async fn restart(&mut self, part: Part) -> Result<()> {
        let admin = self.admin.clone();
        let server = self.server_mut(part)?;
        let address = server.port.address();
        let ready = async || {
            // For etcd a listening socket is enough: its clients wait, while a refused one would back off for a second.
            TcpStream::connect(address).await?;
            if part == Part::ApiServer {
                let ready = http::Request::get("/readyz").body(Vec::new())?;
                admin.client().await?.request_text(ready).await?;
            }
            Ok(())
        };
        server.daemon.start(READY, ready).await
    }

    /// Makes etcd forget all but the present. A watch that the API server does not remember, because it was restarted
    /// meanwhile, has to list anew.
    pub async fn compact(&self) -> Result<()> {
        let (address, identity) = (self.etcd.port.address(), &self.pki.etcd_client);
        let etcd = Kubeconfig::with_certificate(
            self.dir.join("etcd.kubeconfig"),
            address,
            &self.pki.etcd.certificate,
            identity,
        )?;
        let client = etcd.client().await?;
        let ask = async |path: &str, body: serde_json::Value| {
            let request = http::Request::post(path).body(body.to_string().into_bytes())?;
            anyhow::Ok(client.request::<serde_json::Value>(request).await?)
        };
        let status = ask("/v3/maintenance/status", serde_json::json!({})).await?;
        let revision = &status["header"]["revision"];
        ask("/v3/kv/compaction", serde_json::json!({ "revision": revision })).await.map(drop).context("compact etcd")
    }

    /// The requests of `ServiceAccount`s so far, as events of `audit.k8s.io/v1`. Only of one that was started for it.
    pub fn audited(&self) -> Result<Vec<serde_json::Value>> {
        let path = self.dir.join(AUDIT_LOG);
        let log = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // The last line may be on its way.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// What a part has logged.
    pub fn log(&self, part: Part) -> Result<String> {
        Ok(self.process(part)?.log())
    }

    fn process(&self, part: Part) -> Result<&Process> {
        self.server(part)?.daemon.process()
    }

    fn server(&self, part: Part) -> Result<&Server> {
        match part {
            Part::Etcd => Ok(&self.etcd),
            Part::ApiServer => Ok(&self.api_server),
            Part::ControllerManager => {
                self.controller_manager.as_ref().context("kube-controller-manager was not started")
            }
        }
    }

    fn server_mut(&mut self, part: Part) -> Result<&mut Server> {
        match part {
            Part::Etcd => Ok(&mut self.etcd),
            Part::ApiServer => Ok(&mut self.api_server),
            Part::ControllerManager => {
                self.controller_manager.as_mut().context("kube-controller-manager was not started")
            }
        }
    }
}

/// Makes an object that needs no more than a name; `false` if it was there already.
async fn create<K>(api: &Api<K>, name: &str) -> Result<bool>
where
    K: Resource<DynamicType = ()> + Default + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let mut object = K::default();
    *object.meta_mut() = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error).with_context(|| format!("create {} {name}", K::kind(&()))),
    }
}
