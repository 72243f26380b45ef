use std::net::SocketAddr;
use std::time::{Duration, Instant};

use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{ReservedPort, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const SOON: Duration = Duration::from_mins(1);
/// Long enough for a byte that gets through on loopback, short enough to wait for one that does not.
const SILENCE: Duration = Duration::from_millis(100);

/// Says back what it hears; tells of every connection that ended.
async fn echo_server() -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, endings) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let ended = ended.clone();
            tokio::spawn(async move {
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = ended.send(());
            });
        }
    });
    (address, endings)
}

async fn round_trip(client: &mut TcpStream) -> std::io::Result<()> {
    client.write_all(b"x").await?;
    client.read_u8().await.map(drop)
}

async fn connected(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    round_trip(&mut client).await.unwrap();
    client
}

#[tokio::test]
async fn latency_is_paid_each_way() {
    let (server, _endings) = echo_server().await;
    let proxy = Proxy::before(server).await.unwrap();
    let mut client = connected(&proxy).await;
    proxy.set_latency(Duration::from_millis(40));
    let started = Instant::now();
    round_trip(&mut client).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_partition_holds_bytes_back_until_it_heals() {
    let (server, _endings) = echo_server().await;
    let proxy = Proxy::before(server).await.unwrap();
    let mut client = connected(&proxy).await;
    proxy.partition();
    client.write_all(b"y").await.unwrap();
    timeout(SILENCE, client.read_u8()).await.unwrap_err();
    proxy.heal();
    assert_eq!(timeout(SOON, client.read_u8()).await.unwrap().unwrap(), b'y');
}

#[tokio::test]
async fn the_end_of_a_connection_does_not_cross_a_partition() {
    let (server, mut endings) = echo_server().await;
    let proxy = Proxy::before(server).await.unwrap();
    let client = connected(&proxy).await;
    proxy.partition();
    drop(client);
    timeout(SILENCE, endings.recv()).await.unwrap_err();
    proxy.heal();
    timeout(SOON, endings.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cut_resets_what_is_there_and_lets_new_ones_in() {
    let (server, mut endings) = echo_server().await;
    let proxy = Proxy::before(server).await.unwrap();
    let mut client = connected(&proxy).await;
    proxy.cut();
    let error = timeout(SOON, client.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    timeout(SOON, endings.recv()).await.unwrap().unwrap();
    connected(&proxy).await;
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn an_orphaned_client_is_not_told_that_its_server_is_gone() {
    let (server, mut endings) = echo_server().await;
    let proxy = Proxy::before(server).await.unwrap();
    let mut client = connected(&proxy).await;
    proxy.orphan_clients();
    timeout(SOON, endings.recv()).await.unwrap().unwrap();
    client.write_all(b"anybody?").await.unwrap();
    timeout(SILENCE, client.read_u8()).await.unwrap_err();
    connected(&proxy).await;
}

#[tokio::test]
async fn a_dead_server_is_a_reset_and_a_closed_connection_is_an_end() {
    let (server, _endings) = echo_server().await;
    let proxy = Proxy::before(server).await.unwrap();
    let mut client = connected(&proxy).await;
    client.shutdown().await.unwrap();
    assert_eq!(timeout(SOON, client.read(&mut [0; 8])).await.unwrap().unwrap(), 0);

    // One that is merely free at the moment may be another test's the next.
    let nobody = ReservedPort::new().unwrap();
    let proxy = Proxy::before(nobody.address()).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    timeout(SOON, client.read_u8()).await.unwrap().unwrap_err();
    eventually("it was counted", SOON, async || (proxy.accepted() == 1).then_some(()).ok_or(proxy.accepted()))
        .await
        .unwrap();
}
