//! Prints the servers, routers and load balancers of a project.
//!
//! ```text
//! OS_CLOUD=lab openstack-ls
//! openstack-ls --cloud-conf /etc/kubernetes/cloud.conf
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::PathBuf;

use clap::Parser;
use openstack_client::{Client, Config, Error, Kind, Listing};

/// Prints the servers, routers and load balancers of a project.
#[derive(Parser)]
struct Args {
    /// The cloud controller manager's configuration; the `OS_*` variables unless told.
    #[arg(long)]
    cloud_conf: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = match Args::parse().cloud_conf {
        Some(file) => Config::from_cloud_conf(&file)?,
        None => Config::from_env()?,
    };
    let cloud = Client::new(config)?;
    let session = cloud.session().await?;
    let roles: Vec<_> = session.roles().iter().map(String::as_str).collect();
    println!("project {} {} ({})", session.project_id(), session.project_name(), roles.join(", "));

    show("servers", cloud.compute().servers().await, |server| {
        let ips: Vec<_> = server.ips().map(|ip| ip.to_string()).collect();
        format!("{} {} {} {}", server.id, server.status, server.name, ips.join(","))
    })?;
    show("routers", cloud.network().routers(&[]).await, |router| {
        let routes: Vec<_> =
            router.routes.iter().map(|route| format!("\n    {} -> {}", route.destination, route.nexthop)).collect();
        format!("{} {} {}{}", router.id, router.status, router.name, routes.concat())
    })?;
    show("load balancers", cloud.load_balancers().list(&[]).await, |lb| {
        let address = lb.vip_address.map(|ip| ip.to_string()).unwrap_or_default();
        format!("{} {} {} {address}", lb.id, lb.provisioning_status, lb.name)
    })
}

fn show<T>(what: &str, listing: Result<Listing<T>, Error>, line: impl Fn(&T) -> String) -> anyhow::Result<()> {
    let listing = match listing {
        Ok(listing) => listing,
        // A cloud need not have everything.
        Err(error) if error.kind() == Kind::NoService => {
            println!("{what}: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("{} {what}", listing.items.len());
    listing.items.iter().for_each(|item| println!("  {}", line(item)));
    for gap in &listing.gaps {
        eprintln!("{what} are incomplete: {gap}");
    }
    Ok(())
}
