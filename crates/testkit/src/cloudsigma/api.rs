//! Who asks for what.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::account::Account;
use super::fault::Fault;
use super::lists::{Query, list};
use super::oauth::{Kind, Tokens};
use super::reply::Reply;
use super::{Call, Host, PASSWORD, USER, ips, servers};

#[derive(Debug)]
pub(super) struct State {
    pub(super) account: Account,
    pub(super) tokens: Tokens,
    pub(super) faults: Vec<Fault>,
    pub(super) calls: Vec<Call>,
    pub(super) write_time: Duration,
    pub(super) password_accepted: bool,
    /// What is being written at the moment.
    pub(super) busy: BTreeSet<String>,
    hosts: [SocketAddr; 2],
}

/// A request, read.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) host: Host,
    pub(super) method: String,
    /// Without the API's prefix where it had that.
    pub(super) path: String,
    pub(super) query: Query,
    /// `user:password` decoded.
    pub(super) basic: Option<String>,
    pub(super) bearer: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Asked {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl State {
    pub(super) fn new(plain: SocketAddr, direct: SocketAddr) -> Self {
        Self {
            account: Account::new(),
            tokens: Tokens::default(),
            faults: Vec::new(),
            calls: Vec::new(),
            write_time: Duration::ZERO,
            password_accepted: true,
            busy: BTreeSet::new(),
            hosts: [plain, direct],
        }
    }

    /// The answer to what is left when faults have struck. `cut` shortens lists, `ignore` keeps the account as it is.
    pub(super) fn answer(&mut self, asked: &Asked, cut: Option<usize>, ignore: bool) -> Reply {
        if asked.path == "locations/" {
            return self.locations(&asked.query, cut);
        }
        let bearer = asked.bearer.as_deref().and_then(|token| self.tokens.kind(token));
        let password = self.password_accepted && asked.basic.as_deref() == Some(&format!("{USER}:{PASSWORD}"));
        match bearer {
            Some(Kind::User) if asked.host == Host::Direct => {}
            // Accepted without a word, and somebody else's account is shown.
            Some(Kind::User | Kind::Account) => return stranger(asked),
            _ if password => {}
            _ => return Reply::unauthorized(),
        }
        if ignore {
            let mut account = self.account.clone();
            std::mem::swap(&mut account, &mut self.account);
            let reply = self.route(asked, cut);
            self.account = account;
            return reply;
        }
        self.route(asked, cut)
    }

    fn route(&mut self, asked: &Asked, cut: Option<usize>) -> Reply {
        let (account, query) = (&mut self.account, &asked.query);
        let parts: Vec<_> = asked.path.trim_end_matches('/').split('/').collect();
        if !asked.path.ends_with('/') {
            return Reply::error(404, "notexist", None, "Not found; resource URLs end in a slash");
        }
        match (asked.method.as_str(), &parts[..]) {
            ("GET", ["profile"]) => Reply::ok(&json!({ "uuid": super::OWNER, "email": USER, "state": "REGULAR" })),
            ("GET", ["ips"]) => list(account.all_ips(), query, Some(ips::SHORT), cut),
            ("GET", ["ips", "detail"]) => list(account.all_ips(), query, None, cut),
            ("GET", ["ips", ip]) => account.ip(ip).map_or_else(|| Reply::not_found(ip), |ip| Reply::ok(&ip)),
            ("PUT", ["ips", ip]) => account.put_ip(ip, &asked.json()),
            ("GET", ["servers"]) => list(account.all_servers(), query, Some(servers::SHORT), cut),
            ("GET", ["servers", "detail"]) => list(account.all_servers(), query, None, cut),
            ("GET", ["servers", "availability_groups"]) => Reply::ok(&json!(account.hosts)),
            ("GET", ["servers", uuid]) => {
                let shown = account.server(uuid);
                account.seen(uuid);
                shown.map_or_else(|| Reply::not_found(uuid), |server| Reply::ok(&server))
            }
            ("PUT", ["servers", uuid]) => account.put_server(uuid, &asked.json()),
            ("POST", ["servers", uuid, "action"]) => {
                account.act(uuid, query.get("do").map(String::as_str).unwrap_or_default())
            }
            ("GET", ["subscriptions"]) => list(account.subscriptions.values().cloned().collect(), query, None, cut),
            ("GET", ["tags"] | ["tags", "detail"]) => list(account.all_tags(), query, None, cut),
            ("POST", ["tags"]) => account.post_tags(&asked.json()),
            ("GET", ["tags", uuid]) => account.tag(uuid).map_or_else(|| Reply::not_found(uuid), |tag| Reply::ok(&tag)),
            ("PUT", ["tags", uuid]) => account.put_tag(uuid, &asked.json()),
            ("DELETE", ["tags", uuid]) => account.delete_tag(uuid),
            ("GET", ["tags", uuid, "ips"]) => {
                let tagged = account.all_ips().into_iter();
                let tagged =
                    tagged.filter(|ip| ip["tags"].as_array().is_some_and(|t| t.iter().any(|t| t["uuid"] == *uuid)));
                list(tagged.collect(), query, None, cut)
            }
            (_, ["ips" | "servers" | "tags" | "subscriptions", ..]) => {
                Reply::error(405, "validation", None, "Method not allowed")
            }
            _ => Reply::not_found(&asked.path),
        }
    }

    fn locations(&self, query: &Query, cut: Option<usize>) -> Reply {
        let [plain, direct] = self.hosts;
        let here = json!({
            "id": "TST", "display_name": "Test", "country_code": "CH",
            "api_endpoint": format!("http://{plain}/api/2.0/"), "upload_url": format!("http://{direct}/api/2.0/"),
            "websocket_url": format!("ws://{plain}/websocket"),
        });
        list(vec![here], query, None, cut)
    }
}

/// The service account's own user has nothing.
fn stranger(asked: &Asked) -> Reply {
    match asked.method.as_str() {
        "GET" if asked.path.split('/').filter(|part| !part.is_empty() && *part != "detail").count() == 1 => {
            list(Vec::new(), &asked.query, None, None)
        }
        "GET" => Reply::not_found(&asked.path),
        _ => Reply::denied("You do not have permission to perform this action"),
    }
}
