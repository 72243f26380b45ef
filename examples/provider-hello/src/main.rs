//! A cloud of one's own in one short file: load balancers that are files in a directory.
//!
//! Everything else, from watching Services to leader election, comes with `groundcrew-core`. Run it with
//! `provider-hello --directory /tmp/hello --range 192.0.2.0/24`.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::stream::{BoxStream, StreamExt};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    Difference, ErrorKind, Held, Ingress, IpMode, Listing, Living, LoadBalancers, Look, Owned, Owner, ProviderError,
    Reachable, Realised, Routable, Verdict, Wanted,
};
use groundcrew_core::runtime::RuntimeArgs;
use groundcrew_core::service::{self, ServiceArgs};
use groundcrew_core::{cli, runtime};
use ipnet::Ipv4Net;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(1);

/// Serves Services of one class from a directory.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    service: ServiceArgs,
    /// The loadBalancerClass that it serves
    #[arg(long, default_value = "hello.example/files")]
    class: String,
    /// Where the load balancers are kept, one file each
    #[arg(long)]
    directory: PathBuf,
    /// Addresses to give out
    #[arg(long)]
    range: Ipv4Net,
}

struct Hello {
    directory: PathBuf,
    range: Ipv4Net,
}

/// A file is named after its owner; its first line is the address, the others are ports with their backends.
impl Hello {
    fn path(&self, owner: &Owner) -> PathBuf {
        self.directory.join(format!("{}_{}_{}", owner.key.namespace, owner.key.name, owner.uid))
    }

    fn read(&self, owner: &Owner) -> Option<String> {
        std::fs::read_to_string(self.path(owner)).ok()
    }

    fn owners(&self) -> io::Result<Vec<Owner>> {
        let mut owners = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            if let Some([namespace, name, uid]) = name.to_str().map(|n| n.split('_').collect::<Vec<_>>()).as_deref()
                && let Ok(uid) = Uuid::parse_str(uid)
            {
                owners.push(Owner { key: ServiceKey::new(*namespace, *name), uid });
            }
        }
        Ok(owners)
    }

    fn held(&self, owner: &Owner) -> Option<IpAddr> {
        self.read(owner)?.lines().next()?.parse().ok()
    }

    /// Written whole or not at all, and only while the term allows it.
    async fn put(&self, owner: &Owner, text: &str, term: &Term) -> Result<(), ProviderError> {
        let (path, new) = (self.path(owner), self.directory.join(format!("new-{}", owner.uid)));
        let write = async { std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(refused) };
        Ok(term.write(DEADLINE, write).await?)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn refused(error: io::Error) -> ProviderError {
    ProviderError::new(ErrorKind::Unavailable, format!("the directory refuses: {error}"))
}

fn text(want: &Wanted) -> String {
    let addresses = want.addresses.iter().map(|address| format!("{address}\n"));
    let ports = want.frontends.iter().map(|frontend| {
        let backends: Vec<_> = frontend.backends.iter().map(|b| format!("{}:{}", b.address, b.port)).collect();
        format!("{}/{} -> {}\n", frontend.port, frontend.protocol, backends.join(" "))
    });
    addresses.chain(ports).collect()
}

fn reachable(want: &Wanted) -> Reachable {
    let ingress = want.addresses.iter().map(|address| Ingress { address: *address, mode: IpMode::Vip }).collect();
    Reachable { ingress, realised: Realised::Yes, routable: Routable::Unasked, caveats: Vec::new() }
}

impl LoadBalancers for Hello {
    async fn begin(&self, term: &Term, living: &[Living]) -> Result<(), ProviderError> {
        for living in living.iter().filter(|living| self.held(&living.owner).is_none()) {
            let addresses: Vec<_> = living.addresses.iter().map(ToString::to_string).collect();
            self.put(&living.owner, &addresses.join("\n"), term).await?;
        }
        Ok(())
    }

    async fn hold(&self, want: &Wanted, term: &Term) -> Result<Held, ProviderError> {
        let ask = &want.ask;
        let other = ask.share_with.as_ref().and_then(|other| self.held(other));
        if let Some(address) = self.held(&ask.owner).or(other) {
            return Ok(Held { addresses: vec![address] });
        }
        let taken: BTreeSet<_> = self.owners().map_err(refused)?.iter().filter_map(|owner| self.held(owner)).collect();
        let free = |address: &IpAddr| !taken.contains(address);
        let wish = ask.requested.first().copied();
        let address = wish.map_or_else(|| self.range.hosts().map(IpAddr::from).find(free), |a| Some(a).filter(free));
        let address = address.ok_or_else(|| {
            ProviderError::new(ErrorKind::Quota, format!("no free address in {}", self.range)).with_reason("PoolEmpty")
        })?;
        self.put(&ask.owner, &format!("{address}\n"), term).await?;
        Ok(Held { addresses: vec![address] })
    }

    async fn ensure(&self, want: &Wanted, term: &Term) -> Result<Reachable, ProviderError> {
        self.put(want.owner(), &text(want), term).await?;
        Ok(reachable(want))
    }

    async fn release(&self, owner: &Owner, term: &Term) -> Result<(), ProviderError> {
        let remove = async {
            match std::fs::remove_file(self.path(owner)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done.map_err(refused),
            }
        };
        Ok(term.write(DEADLINE, remove).await?)
    }

    fn verify(&self, want: &Wanted) -> Verdict {
        let found = self.read(want.owner()).unwrap_or_default();
        match text(want) {
            expected if expected == found => Verdict::Same(reachable(want)),
            expected => Verdict::Differs(vec![Difference { kind: "file", expected, found }]),
        }
    }

    async fn owned(&self) -> Result<Listing<Owned>, ProviderError> {
        let owners = self.owners().map_err(refused)?;
        let what = |owner: &Owner| self.path(owner).display().to_string();
        let owned = owners.into_iter().map(|owner| Owned { what: what(&owner), owner, unused: false });
        Ok(Listing::complete(owned.collect()))
    }

    /// Nobody tells us when a file changes: the full scan finds it.
    fn changes(&self) -> BoxStream<'static, Look> {
        futures::stream::empty().boxed()
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Args = match cli::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(code) => return code,
    };
    runtime::run("provider-hello", args.runtime, async move |runtime| {
        std::fs::create_dir_all(&args.directory)?;
        let hello = Hello { directory: args.directory, range: args.range };
        service::start(&runtime, &args.class, &args.service, &Arc::new(hello))
    })
    .await
}
