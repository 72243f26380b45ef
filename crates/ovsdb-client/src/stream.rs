//! Opens the byte stream to an endpoint.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::Cause;
use crate::tls;

/// Any of the transports.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) async fn open(endpoint: &Endpoint, config: &Config) -> Result<Box<dyn Stream>, Cause> {
    match endpoint {
        Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(refused_or_worse)?)),
        Endpoint::Tcp { host, port } => Ok(Box::new(dial(host, *port).await?)),
        Endpoint::Ssl { host, port } => {
            let connector = config.tls.as_ref().ok_or(Cause::NoTls)?.connector()?;
            let name = ServerName::try_from(host.clone()).map_err(|error| Cause::WrongName(error.to_string()))?;
            let stream =
                connector.connect(name, dial(host, *port).await?).await.map_err(|error| tls::cause_of(&error))?;
            Ok(Box::new(stream))
        }
    }
}

/// Takes the first address of a name that answers.
async fn dial(host: &str, port: u16) -> Result<TcpStream, Cause> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(Cause::Resolve)?;
    let mut failure = Cause::Resolve(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A transaction is one small write that somebody waits for.
                stream.set_nodelay(true).map_err(Cause::Connect)?;
                return Ok(stream);
            }
            Err(error) => failure = refused_or_worse(error),
        }
    }
    Err(failure)
}

fn refused_or_worse(error: io::Error) -> Cause {
    if error.kind() == io::ErrorKind::ConnectionRefused { Cause::Refused } else { Cause::Connect(error) }
}
