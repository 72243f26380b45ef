//! Prints what changes in a database.
//!
//! ```text
//! ovsdb-tail unix:/run/ovn/ovnnb_db.sock OVN_Northbound Load_Balancer Logical_Router
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, unreachable_pub, reason = "a program for a terminal")]

mod tables;
mod words;

use std::path::PathBuf;

use clap::Parser;
use ovsdb_client::{Config, EndpointError, Replica, Rows, State, Tls, parse_list};

use tables::AnyTables;

/// Prints what changes in a database, until interrupted.
#[derive(Parser)]
struct Args {
    /// Servers, comma separated: unix:<path>, tcp:<host>:<port> or ssl:<host>:<port>.
    endpoints: String,
    /// The database, for example `OVN_Northbound`.
    database: String,
    /// The tables to watch; all of them unless told.
    tables: Vec<String>,
    /// Read from followers too.
    #[arg(long)]
    any_member: bool,
    /// The authority that signed the servers' certificates.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Our certificate.
    #[arg(long, requires = "ca", requires = "key")]
    certificate: Option<PathBuf>,
    /// Our key.
    #[arg(long, requires = "certificate")]
    key: Option<PathBuf>,
    /// Verify the authority but not the name, for certificates of ovs-pki.
    #[arg(long, requires = "ca")]
    any_name: bool,
}

impl Args {
    fn config(&self) -> Result<Config, EndpointError> {
        let mut config = Config::new(parse_list(&self.endpoints)?);
        if self.any_member {
            config = config.any_member();
        }
        if let Some(ca) = &self.ca {
            let mut tls = Tls::new(ca);
            if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
                tls = tls.identity(certificate, key);
            }
            if self.any_name {
                tls = tls.any_name();
            }
            config = config.tls(tls);
        }
        Ok(config)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), EndpointError> {
    let args = Args::parse();
    let replica = Replica::open_as(args.config()?, AnyTables::new(&args.database, args.tables));
    let mut states = replica.client().watch_state();
    let mut changes = replica.changes();
    let mut first = true;
    loop {
        tokio::select! {
            news = changes.next() => {
                if std::mem::take(&mut first) {
                    eprintln!("watching {} rows", news.after.rows.len());
                    continue;
                }
                if news.rows == Rows::Everything {
                    eprintln!("read anew; what differs:");
                }
                for line in words::describe(&news) {
                    println!("{line}");
                }
            }
            _ = states.changed() => match &*states.borrow_and_update() {
                State::Connecting | State::Syncing { .. } => {}
                State::Disconnected { error } => eprintln!("{error}"),
                State::InSync { endpoint } => eprintln!("in sync with {endpoint}"),
            },
        }
    }
}
