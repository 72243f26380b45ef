//! The client against real servers, and against peers that no real server would be.

mod cluster;
mod nb;
mod peer;
mod server;
mod standalone;
mod tls;
