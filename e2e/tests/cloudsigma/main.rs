//! Services on CloudSigma, from the Service to the packet. They take minutes, one after the other, because they count
//! milliseconds: `make e2e-cloudsigma`.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]
#![allow(clippy::large_futures, reason = "few of them, each awaited once")]

mod client;
mod failing;
mod serving;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use groundcrew_e2e::cloudsigma::{Options, World};
use groundcrew_testkit::wire::{Asking, Requesting};

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 100));

const ADDRESS_V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x100));

async fn start(options: Options) -> World {
    let groundcrew = Path::new(env!("CARGO_BIN_EXE_demo")).with_file_name("groundcrew");
    World::start(groundcrew, options).await.unwrap()
}

/// A world with one address, and a Service on it.
async fn served(options: Options) -> (World, usize, Asking, Requesting) {
    let world = start(options).await;
    world.subscribe(ADDRESS).await.unwrap();
    let (holder, asking, requesting) = serve(&world).await;
    (world, holder, asking, requesting)
}

/// A Service, the node that holds its address, somebody who asks for the address, and somebody who sends fifty requests a
/// second.
async fn serve(world: &World) -> (usize, Asking, Requesting) {
    assert_eq!(world.serve("web").await.unwrap(), ADDRESS);
    let holder = world.until_held(ADDRESS, |_| true).await.unwrap();
    let asking = world.wire.ask(ADDRESS).await.unwrap();
    let (pause, patience) = (Duration::from_millis(20), Duration::from_millis(900));
    let requesting = world.wire.request((ADDRESS, 80).into(), pause, patience).await.unwrap();
    world.until_steady(&requesting, 0.0, 50).await.unwrap();
    (holder, asking, requesting)
}
