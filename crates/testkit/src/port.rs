//! TCP ports for servers that must know theirs before they start, and must have it again after a restart.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use tokio::net::TcpSocket;

/// Below the range from which the kernel takes the local ports of clients: so nobody's connection takes the port of a
/// server that is down for a moment.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port of 127.0.0.1 that no other test process on this machine uses while this value lives.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _lock: File,
}

impl ReservedPort {
    /// Takes a free one.
    pub fn new() -> Result<Self> {
        // From another start in every process, or they would all queue for the same ports.
        static TRIED: AtomicU16 = AtomicU16::new(0);
        let start = u16::try_from(process::id() * 37 % u32::from(COUNT))?;
        let dir = std::env::temp_dir().join(format!("groundcrew-ports-{}", Uid::current()));
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        for _ in 0..COUNT {
            let port = FIRST + (start + TRIED.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
            let path = dir.join(port.to_string());
            let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
            if lock.try_lock().is_ok() && bind(port).is_ok() {
                return Ok(Self { port, _lock: lock });
            }
        }
        bail!("no free TCP port between {FIRST} and {}", FIRST + COUNT)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.port
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

/// Not listening: a child that is being started at this moment has a copy until it becomes its program, and a listening
/// one would keep the server out.
fn bind(port: u16) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())
}
