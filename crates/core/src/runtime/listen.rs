//! Listens to both families where everybody is meant.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// `[::]` is everybody, of IPv4 too, whatever the machine's `bindv6only` says; on one without IPv6 it is everybody that
/// there is. Pods of a cluster have one family or both, and nobody should have to tell which.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match open(address) {
        Err(error) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && error.kind() != io::ErrorKind::AddrInUse => {
            open((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        opened => opened,
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn everybody_is_whoever_there_is() {
        let listener = listen("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn one_address_is_that_one_and_a_taken_port_is_an_error() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = listener.local_addr().unwrap();
        assert_eq!(taken.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(listen(taken).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let everybody = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), taken.port());
        assert_eq!(listen(everybody).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
