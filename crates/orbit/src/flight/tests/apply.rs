//! What is looked at once more before a write, and what is noted after it.

use std::sync::Mutex;

use groundcrew_core::provider::{AddressPair, Device, Listing, SecurityGroup};

use super::super::push::nudge_rule;
use super::super::tests::{HOUR, ago, instance, node, port};
use super::*;

fn begun(refusals: u32) -> NodeRepairStatus {
    let at = Time(Timestamp::UNIX_EPOCH);
    let (why, outcome) = (String::new(), RepairOutcome::Begun);
    NodeRepairStatus { step: RepairStep::HardReboot, at, why, outcome, refusals, refusal: None }
}

#[test]
fn only_an_order_that_the_cloud_took_is_noted_as_ordered() {
    let mut noted = begun(3);
    assert!(conclude(&mut noted, &Ok(())));
    assert_eq!(noted, NodeRepairStatus { outcome: RepairOutcome::Ordered, ..begun(0) });
}

#[test]
fn a_refusal_is_counted_and_kept_in_the_clouds_words() {
    let mut noted = begun(3);
    assert!(conclude(&mut noted, &Err(ProviderError::new(ErrorKind::Conflict, "locked"))));
    let refusal = Some("locked".to_owned());
    assert_eq!(noted, NodeRepairStatus { outcome: RepairOutcome::Refused, refusal, ..begun(4) });
}

#[test]
fn an_answer_that_was_lost_leaves_the_step_begun() {
    let mut noted = begun(3);
    let lost = ProviderError::new(ErrorKind::Unavailable, "503").with_maybe_applied(true);
    assert!(!conclude(&mut noted, &Err(lost)));
    assert_eq!(noted, begun(3));
}

#[test]
fn a_server_that_became_a_node_under_another_name_is_known_by_its_id_or_address() {
    let mut server = instance("a");
    server.addresses = vec!["10.0.0.1".parse().unwrap()];
    let stranger = Node { name: "other".into(), server: None, ..node("b", None) };
    assert!(!may_be(&stranger, &server));
    assert!(may_be(&Node { server: Some("a".into()), ..stranger.clone() }, &server));
    for name in ["name-a", "name-a.example"] {
        assert!(may_be(&Node { name: name.into(), ..stranger.clone() }, &server), "{name}");
    }
    assert!(may_be(&Node { addresses: server.addresses.clone(), ..stranger }, &server));
}

/// A cloud without revisions, in which a port changes between the look and the write.
struct Changing(Mutex<Port>);

impl Ports for Changing {
    async fn ports(&self, _: &[String]) -> Result<Listing<Port>, ProviderError> {
        Ok(Listing::complete(vec![self.0.lock().unwrap().clone()]))
    }

    async fn port(&self, _: &str) -> Result<Port, ProviderError> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn set_port_groups(&self, seen: &Port, groups: &[String], _: &Term) -> Result<Port, ProviderError> {
        let mut port = self.0.lock().unwrap();
        *port = Port { groups: Some(groups.to_vec()), ..seen.clone() };
        Ok(port.clone())
    }

    async fn set_port_pairs(&self, seen: &Port, _: &[AddressPair], _: &Term) -> Result<Port, ProviderError> {
        Ok(seen.clone())
    }
}

/// Adds group `g` to a port that is `now` something else than it was.
async fn add_to(now: Port) -> (Result<(), ApplyError>, Option<Vec<String>>) {
    let seen = Port { revision: None, ..port("p", Device::Server("a".into()), Some(&["default"])) };
    let cloud = Changing(Mutex::new(Port { revision: None, ..now }));
    let added = add_group(&cloud, &seen, "g", &Term::alone("test")).await;
    (added, cloud.0.into_inner().unwrap().groups)
}

#[tokio::test]
async fn a_group_that_came_since_the_look_survives_where_no_revisions_are_counted() {
    let (added, groups) = add_to(port("p", Device::Server("a".into()), Some(&["default", "new"]))).await;
    added.unwrap();
    assert_eq!(groups.unwrap(), ["default", "new", "g"]);
}

#[tokio::test]
async fn a_port_that_got_another_server_or_lost_its_security_since_the_look_is_not_written() {
    let of_a = || port("p", Device::Server("a".into()), Some(&["default"]));
    for now in [
        port("p", Device::Server("b".into()), Some(&["default"])),
        Port { secured: false, ..of_a() },
        Port { network: "other".into(), ..of_a() },
        Port { groups: None, ..of_a() },
    ] {
        let before = now.groups.clone();
        let (added, groups) = add_to(now).await;
        assert!(matches!(added, Err(ApplyError::Changed(_))), "{added:?}");
        assert_eq!(groups, before);
    }
}

#[test]
fn a_server_that_became_a_node_since_the_look_is_not_rebooted_for_being_none() {
    let server = Instance { name: "Web_1".into(), ..instance("a") };
    let became = |node: Node| unchanged(None, &server, &[node]).is_err();
    let new = || Node { server: None, addresses: vec![], ..node("x", None) };
    assert!(became(Node { name: "web-1".into(), ..new() }));
    assert!(became(Node { name: "web-1.example".into(), ..new() }));
    assert!(became(Node { name: "web-1".into(), ..node("b", None) }), "whatever it says of itself");
    assert!(!became(Node { name: "web-10".into(), ..new() }));
}

#[test]
fn a_repair_is_not_ordered_when_the_node_changed_or_another_one_may_be_the_server() {
    let (server, seen) = (instance("a"), node("a", Some(HOUR)));
    let changed = |nodes: &[Node]| unchanged(Some(&seen), &server, nodes).map_err(|error| error.to_string());
    assert_eq!(changed(&[seen.clone(), node("b", None)]), Ok(()));
    for now in [
        Node { uid: "new".into(), ..seen.clone() },
        Node { server: Some("b".into()), ..seen.clone() },
        Node { unready_since: None, ..seen.clone() },
        Node { unready_since: Some(ago(HOUR / 2)), ..seen.clone() },
        Node { paused: true, ..seen.clone() },
        Node { cordoned: true, ..seen.clone() },
    ] {
        assert!(changed(std::slice::from_ref(&now)).is_err(), "{now:?}");
    }
    assert!(changed(&[]).is_err(), "it is gone");
    let renamed = Node { name: "other".into(), ..node("a", None) };
    assert_eq!(changed(&[seen.clone(), renamed]), Err("the server became another Node meanwhile".into()));
}

/// A group to which somebody has added our very rule.
struct Nudged {
    taken: bool,
    deleted: Mutex<Vec<String>>,
}

impl SecurityGroups for Nudged {
    async fn security_groups_named(&self, _: &str) -> Result<Listing<SecurityGroup>, ProviderError> {
        Ok(Listing::complete(vec![]))
    }

    async fn security_group(&self, _: &str) -> Result<SecurityGroup, ProviderError> {
        Err(ProviderError::new(ErrorKind::NotFound, "not asked for"))
    }

    async fn add_rule(&self, _: &str, _: &NewRule, _: &Term) -> Result<Option<String>, ProviderError> {
        Ok((!self.taken).then(|| "new".to_owned()))
    }

    async fn delete_rule(&self, id: &str, _: &Term) -> Result<(), ProviderError> {
        self.deleted.lock().unwrap().push(id.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn a_nudge_that_changed_nothing_is_none_and_somebodys_rule_stays() {
    let rule = nudge_rule().unwrap();
    for (taken, deleted) in [(false, vec!["new"]), (true, vec![])] {
        let cloud = Nudged { taken, deleted: Mutex::default() };
        let nudged = nudge(&cloud, "g", &rule, &Term::alone("test")).await;
        assert_eq!(matches!(nudged, Err(ApplyError::NothingNew)), taken, "{nudged:?}");
        assert_eq!(*cloud.deleted.lock().unwrap(), deleted);
    }
}

/// A cloud that may undo a write, and whose answer may be lost.
struct Forgetful {
    port: Mutex<Port>,
    keeps: bool,
    answers: bool,
}

impl Ports for Forgetful {
    async fn ports(&self, _: &[String]) -> Result<Listing<Port>, ProviderError> {
        Ok(Listing::complete(vec![]))
    }

    async fn port(&self, _: &str) -> Result<Port, ProviderError> {
        Ok(self.port.lock().unwrap().clone())
    }

    async fn set_port_groups(&self, seen: &Port, groups: &[String], _: &Term) -> Result<Port, ProviderError> {
        let now = Port { groups: Some(groups.to_vec()), ..seen.clone() };
        if self.keeps {
            *self.port.lock().unwrap() = now.clone();
        }
        let lost = ProviderError::new(ErrorKind::Unavailable, "the connection was lost").with_maybe_applied(true);
        if self.answers { Ok(now) } else { Err(lost) }
    }

    async fn set_port_pairs(&self, seen: &Port, _: &[AddressPair], _: &Term) -> Result<Port, ProviderError> {
        Ok(seen.clone())
    }
}

#[tokio::test]
async fn what_a_port_shows_after_the_write_is_believed_and_no_answer_is() {
    for (keeps, answers) in [(true, true), (true, false), (false, true), (false, false)] {
        let seen = port("p", Device::Server("a".into()), Some(&["default"]));
        let cloud = Forgetful { port: Mutex::new(seen.clone()), keeps, answers };
        let added = add_group(&cloud, &seen, "g", &Term::alone("test")).await;
        assert_eq!(matches!(added, Err(ApplyError::Undone)), !keeps, "{keeps} {answers}: {added:?}");
    }
}
