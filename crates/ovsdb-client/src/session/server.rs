//! What a server says about itself and its databases in `_Server`.

use uuid::Uuid;

use crate::config::Config;
use crate::error::Cause;

crate::table! {
    /// A database that the server serves.
    pub(crate) struct ServedDatabase = "Database" {
        pub(crate) name: Box<str>,
        pub(crate) model: Box<str>,
        pub(crate) connected: bool,
        pub(crate) leader: bool,
        pub(crate) cid: Option<Uuid>,
        // Moves with each commit, before the commit is answered: so it tells of a member that has not come to it.
        pub(crate) index: Option<i64>,
    }
}

crate::database! {
    /// The server's account of itself.
    pub(crate) struct Server = "_Server" {
        pub(crate) databases: ServedDatabase,
    }
}

/// How far a cluster was seen to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) cid: Option<Uuid>,
    pub(crate) index: i64,
}

impl Server {
    pub(crate) const COLUMNS: [&str; 6] = ["name", "model", "connected", "leader", "cid", "index"];

    fn database(&self, name: &str) -> Option<&ServedDatabase> {
        self.databases.iter().map(|(_, row)| row.as_ref()).find(|row| &*row.name == name)
    }

    /// Whether the server may be used for a database, and how far it is.
    pub(crate) fn judge(&self, name: &str, config: &Config, seen: Progress) -> Result<Progress, Cause> {
        let Some(row) = self.database(name) else {
            let known: Vec<_> = self.databases.iter().map(|(_, row)| row.name.as_ref()).collect();
            return Err(Cause::NoDatabase { database: name.into(), known: known.join(", ") });
        };
        let here = Progress { cid: row.cid, index: row.index.unwrap_or(0) };
        if let Some(wanted) = config.cluster.filter(|wanted| row.cid != Some(*wanted)) {
            return Err(Cause::OtherCluster { wanted, found: row.cid });
        }
        match &*row.model {
            "clustered" => {}
            // It answers from what it has when it has lost the server that it relays, and writes nothing.
            "relay" if !row.connected => return Err(Cause::NotConnected),
            _ => return Ok(here),
        }
        if !row.connected {
            return Err(Cause::NotConnected);
        }
        if config.leader_only && !row.leader {
            return Err(Cause::NotLeader);
        }
        // A leader too: it calls itself so before it has applied all that was committed under the one before it.
        if here.cid == seen.cid && here.index < seen.index {
            return Err(Cause::Stale { index: here.index, seen: seen.index });
        }
        Ok(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(leader: bool, connected: bool, index: i64) -> Server {
        let mut server = Server::default();
        let row = ServedDatabase {
            name: "db".into(),
            model: "clustered".into(),
            connected,
            leader,
            cid: Some(Uuid::from_u128(1)),
            index: Some(index),
        };
        server.databases.put(Uuid::from_u128(2), row);
        server
    }

    #[test]
    fn a_member_is_judged_as_the_ovs_client_library_does() {
        let leader_only = Config::new([]);
        let any = Config::new([]).any_member();
        let seen = Progress { cid: Some(Uuid::from_u128(1)), index: 5 };
        assert!(member(true, true, 5).judge("db", &leader_only, seen).is_ok());
        assert!(matches!(member(false, true, 5).judge("db", &leader_only, seen), Err(Cause::NotLeader)));
        assert!(member(false, true, 5).judge("db", &any, seen).is_ok());
        assert!(matches!(member(true, false, 5).judge("db", &any, seen), Err(Cause::NotConnected)));
        for (member, config) in [(member(false, true, 4), &any), (member(true, true, 4), &leader_only)] {
            assert!(matches!(member.judge("db", config, seen), Err(Cause::Stale { index: 4, seen: 5 })));
        }
        assert!(matches!(member(true, true, 5).judge("other", &any, seen), Err(Cause::NoDatabase { .. })));
        let pinned = Config::new([]).cluster(Uuid::from_u128(9));
        assert!(matches!(member(true, true, 5).judge("db", &pinned, seen), Err(Cause::OtherCluster { .. })));
    }

    #[test]
    fn a_relay_is_used_while_it_has_its_source() {
        let relay = |connected| {
            let mut server = member(false, connected, 0);
            server.databases.put(
                Uuid::from_u128(2),
                ServedDatabase {
                    model: "relay".into(),
                    cid: None,
                    ..(*server.databases.get(Uuid::from_u128(2)).unwrap().as_ref()).clone()
                },
            );
            server
        };
        let judge = |server: &Server| server.judge("db", &Config::new([]), Progress::default());
        assert!(judge(&relay(true)).is_ok());
        assert!(matches!(judge(&relay(false)), Err(Cause::NotConnected)));
    }

    #[test]
    fn another_cluster_starts_at_its_own_index() {
        let seen = Progress { cid: Some(Uuid::from_u128(77)), index: 500 };
        for config in [Config::new([]), Config::new([]).any_member()] {
            let here = member(true, true, 4).judge("db", &config, seen).unwrap();
            assert_eq!(here, Progress { cid: Some(Uuid::from_u128(1)), index: 4 });
        }
    }

    #[test]
    fn a_server_of_its_own_has_no_index_to_be_behind_with() {
        let mut server = Server::default();
        let row = ServedDatabase {
            name: "db".into(),
            model: "standalone".into(),
            connected: true,
            leader: true,
            cid: None,
            index: None,
        };
        server.databases.put(Uuid::from_u128(2), row);
        for seen in [Progress::default(), Progress { cid: Some(Uuid::from_u128(1)), index: 500 }] {
            assert_eq!(server.judge("db", &Config::new([]), seen).unwrap(), Progress::default());
        }
    }
}
