//! Where a server listens, in OVS's notation.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that IANA gave to OVSDB.
const DEFAULT_PORT: u16 = 6640;

/// One server: `unix:<path>`, `tcp:<host>[:<port>]` or `ssl:<host>[:<port>]`. IPv6 addresses stand in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// Plain TCP.
    Tcp {
        /// A name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// TLS over TCP.
    Ssl {
        /// A name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Text that names no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no endpoint: expected unix:<path>, tcp:<host>:<port> or ssl:<host>:<port>")]
pub struct EndpointError {
    text: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let parsed = match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(path.into())),
            Some(("tcp", rest)) => host_and_port(rest).map(|(host, port)| Self::Tcp { host, port }),
            Some(("ssl", rest)) => host_and_port(rest).map(|(host, port)| Self::Ssl { host, port }),
            _ => None,
        };
        parsed.ok_or_else(|| EndpointError { text: text.into() })
    }
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok()?;
    if host.is_empty() { None } else { Some((host.into(), port)) }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut remote = |scheme, host: &str, port| {
            let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
            write!(f, "{scheme}:{open}{host}{close}:{port}")
        };
        match self {
            Self::Tcp { host, port } => remote("tcp", host, port),
            Self::Ssl { host, port } => remote("ssl", host, port),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Reads a comma-separated list, as in `ovn-nbctl --db`.
pub fn parse_list(text: &str) -> Result<Vec<Endpoint>, EndpointError> {
    text.split(',').map(|endpoint| endpoint.trim().parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written_in_the_notation_of_ovs() {
        for text in ["unix:/run/ovn/nb.sock", "tcp:127.0.0.1:6641", "ssl:[::1]:6641", "ssl:nb.example:6641"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("tcp:[fd00::1]".parse::<Endpoint>().unwrap().to_string(), "tcp:[fd00::1]:6640");
        assert_eq!(parse_list("tcp:a:1, tcp:b:2").unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_endpoint_is_quoted_in_the_error() {
        for text in ["", "http:x", "tcp:", "tcp:a:b", "unix:", "tcp:[::1", "tcp:[::1]6640", "tcp:a:70000"] {
            assert!(text.parse::<Endpoint>().unwrap_err().to_string().contains(&format!("{text:?}")));
        }
    }
}
