//! Whether a node should be deleted because its server is. Pure.
//!
//! A wrong account, a wrong region or a broken proxy all look like servers that are gone. So a node goes only where this
//! account had its server, and shows the servers of other nodes.

use std::collections::{BTreeMap, BTreeSet};

/// What is known of a node with a server of this cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) ready: bool,
    pub(crate) server: String,
    /// The API answered 404 for this very server.
    pub(crate) answered_gone: bool,
    /// The server was seen in this account before.
    pub(crate) was_here: bool,
    /// The node's uid and resourceVersion, in which all this was found.
    pub(crate) seen: (Option<String>, Option<String>),
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Names of nodes to delete.
    pub(crate) delete: Vec<String>,
    /// Nodes that would go, and why none of them does.
    pub(crate) held: Option<(Vec<String>, &'static str)>,
}

/// `servers` is the list of all servers, where it is whole. At most `limit` nodes go, those that went a moment ago among
/// them: nodes become unready one by one, so that many that are lost together are few at every look.
pub(crate) fn verdict(
    nodes: &BTreeMap<String, Evidence>,
    servers: Option<&BTreeSet<String>>,
    limit: usize,
    went: usize,
) -> Verdict {
    let Some(servers) = servers else { return Verdict::default() };
    let gone: Vec<_> = nodes
        .iter()
        .filter(|(_, node)| !node.ready && node.was_here && node.answered_gone && !servers.contains(&node.server))
        .map(|(name, _)| name.clone())
        .collect();
    if gone.is_empty() {
        return Verdict::default();
    }
    let other = nodes.values().any(|node| servers.contains(&node.server));
    let held = if !other {
        Some("the account shows no server of any node: is it the right one?")
    } else if gone.len() + went > limit {
        Some("too many in ten minutes (--node-delete-limit)")
    } else {
        None
    };
    match held {
        Some(why) => Verdict { delete: Vec::new(), held: Some((gone, why)) },
        None => Verdict { delete: gone, held: None },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(server: &str, ready: bool, answered_gone: bool) -> Evidence {
        Evidence { ready, server: server.to_owned(), answered_gone, was_here: true, seen: (None, None) }
    }

    fn nodes(list: &[(&str, Evidence)]) -> BTreeMap<String, Evidence> {
        list.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect()
    }

    fn servers(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|server| (*server).to_owned()).collect()
    }

    #[test]
    fn a_node_goes_when_everything_says_that_its_server_is_gone() {
        let nodes = nodes(&[("a", node("s1", true, false)), ("b", node("s2", false, true))]);
        assert_eq!(verdict(&nodes, Some(&servers(&["s1"])), 3, 0).delete, ["b"]);
    }

    #[test]
    fn a_wrong_account_deletes_nothing() {
        let nodes = nodes(&[("a", node("s1", false, true)), ("b", node("s2", false, true))]);
        let verdict = verdict(&nodes, Some(&servers(&["somebody-elses"])), 3, 0);
        assert_eq!(verdict.delete, [""; 0]);
        assert!(verdict.held.unwrap().1.contains("right one"));
    }

    #[test]
    fn a_node_of_another_account_or_location_is_not_missed_here() {
        let elsewhere = Evidence { was_here: false, ..node("s2", false, true) };
        let nodes = nodes(&[("a", node("s1", true, false)), ("b", elsewhere)]);
        assert_eq!(verdict(&nodes, Some(&servers(&["s1"])), 3, 0), Verdict::default());
    }

    #[test]
    fn too_many_at_once_are_held() {
        let mut list: Vec<_> = ["b", "c", "d"].iter().map(|name| (*name, node(name, false, true))).collect();
        list.push(("a", node("s1", true, false)));
        let nodes = nodes(&list);
        assert_eq!(verdict(&nodes, Some(&servers(&["s1"])), 2, 0).delete, [""; 0]);
        assert_eq!(verdict(&nodes, Some(&servers(&["s1"])), 3, 0).delete.len(), 3);
        assert_eq!(verdict(&nodes, Some(&servers(&["s1"])), 3, 1).delete, [""; 0], "one went a moment ago");
    }

    prop_compose! {
        fn any_nodes()(list in prop::collection::btree_map("[a-d]", ("[s-v]", any::<[bool; 3]>()), 0..5)) -> BTreeMap<String, Evidence> {
            list.into_iter().map(|(name, (server, [ready, gone, was_here]))| (name, Evidence { was_here, ..node(&server, ready, gone) })).collect()
        }
    }

    proptest! {
        #[test]
        fn nothing_goes_without_proof(
            nodes in any_nodes(), servers in prop::option::of(prop::collection::btree_set("[s-v]", 0..4)),
            limit in 0usize..3, went in 0usize..3,
        ) {
            let verdict = verdict(&nodes, servers.as_ref(), limit, went);
            prop_assert!(verdict.delete.is_empty() || verdict.delete.len() + went <= limit);
            for name in verdict.delete {
                let servers = servers.as_ref().unwrap();
                prop_assert!(!nodes[&name].ready && nodes[&name].was_here && nodes[&name].answered_gone);
                prop_assert!(!servers.contains(&nodes[&name].server));
                prop_assert!(nodes.values().any(|node| servers.contains(&node.server)));
            }
        }
    }
}
