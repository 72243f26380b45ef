//! A TCP proxy that misbehaves on demand. It lives on the runtime of the test that made it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// What happens to bytes on their way; both ways are alike.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    latency: Duration,
    partitioned: bool,
    /// Connections numbered below this one are cut.
    cut_below: usize,
    /// Connections numbered below this one have lost their server, and nobody tells the client.
    orphaned_below: usize,
}

/// A listener on 127.0.0.1 that passes bytes on to one address.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    accepted: Arc<AtomicUsize>,
    listener: AbortHandle,
}

impl Proxy {
    /// Starts a proxy before `server`, in fair weather.
    pub async fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("bind a port for the proxy")?;
        let address = listener.local_addr()?;
        let (weather, forecast) = watch::channel(Weather::default());
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let listener = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                connections.spawn(carry(client, server, number, forecast.clone()));
            }
        });
        Ok(Self { address, weather, accepted, listener: listener.abort_handle() })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there have been.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// From now on every byte takes `latency` longer, each way.
    pub fn set_latency(&self, latency: Duration) {
        self.weather.send_modify(|weather| weather.latency = latency);
    }

    /// Nothing gets through any more, in either direction; neither does the end of a connection. A new connection is
    /// accepted and hears nothing, as from a server that was stopped.
    pub fn partition(&self) {
        self.weather.send_modify(|weather| weather.partitioned = true);
    }

    /// Ends a partition: what was held back arrives now.
    pub fn heal(&self) {
        self.weather.send_modify(|weather| weather.partitioned = false);
    }

    /// Resets every connection that there is, on both sides. New ones work.
    pub fn cut(&self) {
        let next = self.accepted();
        self.weather.send_modify(|weather| weather.cut_below = next);
    }

    /// Takes the server away from every connection that there is. The server sees its end, the client hears nothing
    /// more, ever: a half-open connection, as a rebooted machine or an expired NAT entry leaves it. New ones work.
    pub fn orphan_clients(&self) {
        let next = self.accepted();
        self.weather.send_modify(|weather| weather.orphaned_below = next);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// What ended the carrying between two living sockets.
enum Ending {
    /// Both sides said that they are done.
    Closed,
    /// One side was reset, or [`Proxy::cut`].
    Reset,
    Orphaned,
}

async fn carry(mut client: TcpStream, server: SocketAddr, number: usize, weather: watch::Receiver<Weather>) {
    let cut = until(&weather, |now| number < now.cut_below);
    let orphaned = until(&weather, |now| number < now.orphaned_below);
    let connect = async {
        // Or the server would learn of a client on the other side of the partition.
        until(&weather, |now| !now.partitioned).await;
        TcpStream::connect(server).await
    };
    tokio::pin!(cut);
    let connected = tokio::select! {
        connected = connect => connected.ok(),
        () = &mut cut => None,
    };
    let Some(mut upstream) = connected else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let ending = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = upstream.split();
        let ways = async {
            tokio::try_join!(pass(client_read, server_write, &weather), pass(server_read, client_write, &weather))
        };
        tokio::select! {
            both = ways => if both.is_ok() { Ending::Closed } else { Ending::Reset },
            () = &mut cut => Ending::Reset,
            () = orphaned => Ending::Orphaned,
        }
    };
    match ending {
        Ending::Closed => {}
        Ending::Reset => {
            let _ = (client.set_zero_linger(), upstream.set_zero_linger());
        }
        Ending::Orphaned => {
            drop(upstream);
            cut.await;
            let _ = client.set_zero_linger();
        }
    }
}

/// Carries one direction to its end, which is carried like a byte: late, and not through a partition.
async fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, weather: &watch::Receiver<Weather>) -> io::Result<()> {
    // Bounded, so that a writer that nobody reads from feels it.
    let (sender, mut queue) = mpsc::channel::<(Instant, io::Result<Vec<u8>>)>(64);
    let depart = async move {
        loop {
            let mut bytes = vec![0; 16 * 1024];
            let read = from.read(&mut bytes).await.map(|length| {
                bytes.truncate(length);
                bytes
            });
            let last = read.as_ref().map_or(true, Vec::is_empty);
            let due = Instant::now() + weather.borrow().latency;
            if sender.send((due, read)).await.is_err() || last {
                return Ok(());
            }
        }
    };
    let arrive = async {
        while let Some((due, bytes)) = queue.recv().await {
            sleep_until(due).await;
            until(weather, |now| !now.partitioned).await;
            let bytes = bytes?;
            if bytes.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&bytes).await?;
        }
        Ok(())
    };
    tokio::try_join!(depart, arrive).map(drop)
}

async fn until(weather: &watch::Receiver<Weather>, wanted: impl Fn(&Weather) -> bool) {
    // The sender is gone when the proxy is: nothing is going to change.
    if weather.clone().wait_for(|now| wanted(now)).await.is_err() {
        std::future::pending::<()>().await;
    }
}
