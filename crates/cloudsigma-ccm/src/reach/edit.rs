//! Changes of a server's NICs. Each is a write of all that the server is, so what it does to drives is looked at, and what
//! was ignored once is not tried again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use groundcrew_core::leader::Term;
use serde_json::Value;

use crate::client::{Client, Server};
use crate::error::Error;
use crate::write::{leads, under};

pub(crate) struct Edits {
    pub(super) client: Client,
    deadline: Duration,
    /// Servers that ignored a change of their NICs, as they were then. Until they are started anew, asking once more would
    /// only be one more write of all that they are, drives included.
    ignored: Mutex<BTreeMap<String, Option<String>>>,
}

impl Edits {
    pub(crate) fn new(client: Client, deadline: Duration) -> Self {
        Self { client, deadline, ignored: Mutex::default() }
    }

    pub(super) fn ignores(&self, server: &Server) -> bool {
        let ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        server.status != "stopped" && ignored.get(&server.uuid) == Some(&server.running_since())
    }

    pub(super) fn note_ignored(&self, server: &Server) {
        let mut ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        ignored.insert(server.uuid.clone(), server.running_since());
    }

    /// The server as it was read afterwards; whether the change is in it is for the caller to see.
    pub(super) async fn edit(
        &self,
        address: IpAddr,
        server: &str,
        term: &Term,
        mut change: impl FnMut(&Server) -> Result<Option<Value>, Error> + Send,
    ) -> Result<Server, Error> {
        let mut before = BTreeSet::new();
        let edit = self.client.edit_server::<Error>(server, |now| {
            leads(term)?;
            before = now.drives();
            change(now)
        });
        let after = under(term, self.deadline, edit).await?.now;
        let differing: Vec<_> = before.symmetric_difference(&after.drives()).cloned().collect();
        if differing.is_empty() {
            return Ok(after);
        }
        Err(Error::DrivesChanged { address, server: server.to_owned(), drives: differing.join(", ") })
    }
}
