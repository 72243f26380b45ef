//! Writers that are quicker, answers that are lost, clouds that cannot.

use groundcrew_core::provider::{AddressPair, Device, Port, RouteLimit};

use super::cloud::{Fate, MemoryCloud};
use super::*;
use crate::routegc::apply::{ApplyError, apply};
use crate::routegc::conditions::{Condition, conditions};

fn with_an_orphan() -> (MemoryCloud, Vec<Node>) {
    let cloud = MemoryCloud::new(1..=4).with_routes((1..=4).chain([9]).map(own));
    (cloud, (1..=4).map(node).collect())
}

fn without_single_routes() -> (MemoryCloud, Vec<Node>, Passes) {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().single = false;
    (cloud, nodes, Passes::new(Rules { whole_lists: true, ..rules() }))
}

/// Up to the pass that removes.
async fn ripen(passes: &mut Passes, cloud: &MemoryCloud, nodes: &[Node]) {
    for _ in 1..passes.rules.sightings {
        passes.pass(cloud, nodes).await;
    }
}

#[tokio::test]
async fn a_removal_whose_answer_is_lost_is_found_done() {
    let (cloud, nodes) = with_an_orphan();
    let mut passes = Passes::new(rules());
    ripen(&mut passes, &cloud, &nodes).await;
    cloud.lock().fate = Some(Fate::DoneUnheard);
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!((applied.removed.len(), applied.failures.len()), (1, 0));
}

#[tokio::test]
async fn a_removal_that_was_lost_is_not_counted_and_made_in_the_next_pass() {
    let (cloud, nodes) = with_an_orphan();
    let mut passes = Passes::new(rules());
    ripen(&mut passes, &cloud, &nodes).await;
    cloud.lock().fate = Some(Fate::LostUnheard);
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!((applied.removed.len(), applied.failures.len()), (0, 1));
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!(applied.removed.len(), 1);
}

#[tokio::test]
async fn a_refusal_for_a_foreign_route_is_told_with_the_clouds_words() {
    let (cloud, nodes) = with_an_orphan();
    let mut passes = Passes::new(rules());
    ripen(&mut passes, &cloud, &nodes).await;
    cloud.lock().fate = Some(Fate::Refused);
    let (found, plan, applied) = passes.pass(&cloud, &nodes).await;
    let told = conditions(&found, &plan, Some(&applied));
    assert!(told[&Condition::WriteFailed].contains("the nexthop is not connected"), "{told:?}");
}

#[tokio::test]
async fn a_route_that_comes_between_read_and_write_survives_a_single_removal() {
    let (cloud, nodes) = with_an_orphan();
    let mut passes = Passes::new(rules());
    ripen(&mut passes, &cloud, &nodes).await;
    cloud.lock().meanwhile = Some(Box::new(|routes| routes.push(own(50))));
    passes.pass(&cloud, &nodes).await;
    assert_eq!(cloud.routes(), (1..=4).chain([50]).map(own).collect());
}

#[tokio::test]
async fn without_single_routes_nothing_is_written_unless_allowed() {
    let (cloud, nodes, _) = without_single_routes();
    let mut passes = Passes::new(rules());
    let applied = passes.settle(&cloud, &nodes).await;
    assert!(matches!(applied.failures[0].error, ApplyError::WholeListsOnly));
    assert!(!cloud.lock().calls.iter().any(|call| ["replace", "remove"].contains(call)));
    let (found, plan, applied) = passes.pass(&cloud, &nodes).await;
    let told = conditions(&found, &plan, Some(&applied));
    assert!(told[&Condition::WholeListsOnly].contains("--allow-whole-list-writes"), "{told:?}");
}

#[tokio::test]
async fn no_atomic_and_no_if_match_writes_nothing_unless_allowed() {
    let (cloud, nodes, mut allowed) = without_single_routes();
    cloud.lock().compares = false;
    let refused = Passes::new(rules()).settle(&cloud, &nodes).await;
    assert!(matches!(refused.failures[0].error, ApplyError::WholeListsOnly));
    assert_eq!(cloud.routes(), (1..=4).chain([9]).map(own).collect());
    assert_eq!(allowed.settle(&cloud, &nodes).await.removed.len(), 1);
    assert_eq!(cloud.routes(), (1..=4).map(own).collect());
}

#[tokio::test]
async fn a_whole_list_that_another_writer_beat_is_made_anew() {
    let (cloud, nodes, mut passes) = without_single_routes();
    ripen(&mut passes, &cloud, &nodes).await;
    // The first read is the look itself; the second belongs to the write.
    let (_, plan) = passes.look(&cloud, &nodes).await;
    cloud.lock().meanwhile = Some(Box::new(|routes| routes.push(own(50))));
    let applied = apply(&plan, &cloud, &Term::alone("test"), &passes.rules).await;
    assert_eq!(applied.removed.len(), 1);
    assert_eq!(cloud.routes(), (1..=4).chain([50]).map(own).collect());
    assert_eq!(cloud.lock().calls.iter().filter(|call| **call == "replace").count(), 2);
}

#[tokio::test]
async fn a_nodes_route_that_a_whole_list_cost_is_put_back_in_the_next_pass() {
    let (cloud, nodes, mut passes) = cost_a_route().await;
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!(applied.put_back, 1);
    assert_eq!(cloud.routes(), (1..=5).map(own).collect());
    let (_, plan, _) = passes.pass(&cloud, &nodes).await;
    assert_eq!(plan.steps, [], "and that is all");
}

#[tokio::test]
async fn missing_routes_are_not_ours_to_make_where_we_overwrote_nothing() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(2));
    let mut passes = Passes::new(rules());
    let applied = passes.settle(&cloud, &nodes).await;
    assert_eq!((applied.removed.len(), applied.put_back), (1, 0));
    assert_eq!(passes.look(&cloud, &nodes).await.0.routers[0].missing, [own(2)]);
}

#[tokio::test]
async fn a_pass_with_nothing_to_do_makes_as_many_calls_for_a_hundred_nodes_as_for_one() {
    let mut calls = Vec::new();
    for n in [1, 100] {
        let cloud = MemoryCloud::new(1..=n).with_routes((1..=n).map(own));
        let nodes: Vec<_> = (1..=n).map(node).collect();
        Passes::new(rules()).pass(&cloud, &nodes).await;
        calls.push(cloud.lock().calls.clone());
    }
    assert_eq!(calls[0], ["subnets", "ports", "router", "servers"]);
    assert_eq!(calls[0], calls[1]);
}

#[tokio::test]
async fn a_router_that_is_nearly_full_is_told_before_a_node_fails() {
    let cloud = MemoryCloud::new(1..=29).with_routes((1..=28).map(own));
    cloud.lock().limit = RouteLimit::Untold;
    let nodes: Vec<_> = (1..=29).map(node).collect();
    let (found, plan) = Passes::new(rules()).look(&cloud, &nodes).await;
    let told = conditions(&found, &plan, None);
    assert!(told[&Condition::RouteQuotaNearLimit].contains("28 routes and needs 1 more, of 31"), "{told:?}");
    cloud.lock().limit = RouteLimit::Unlimited;
    let (found, plan) = Passes::new(rules()).look(&cloud, &nodes).await;
    assert!(conditions(&found, &plan, None).is_empty());
}

/// Passes in which a whole list costs n5 its route, which came between read and write.
async fn cost_a_route() -> (MemoryCloud, Vec<Node>, Passes) {
    let (cloud, mut nodes, mut passes) = without_single_routes();
    // As Neutron was seen to do: the revision does not protect.
    cloud.lock().compares = false;
    ripen(&mut passes, &cloud, &nodes).await;
    let (_, plan) = passes.look(&cloud, &nodes).await;
    cloud.boot(5);
    nodes.push(node(5));
    cloud.lock().meanwhile = Some(Box::new(|routes| routes.push(own(5))));
    let applied = apply(&plan, &cloud, &Term::alone("test"), &passes.rules).await;
    assert!(!cloud.routes().contains(&own(5)), "it was lost");
    *passes.overwritten() = applied.overwritten;
    (cloud, nodes, passes)
}

#[tokio::test]
async fn what_a_whole_list_cost_is_not_forgotten_while_not_everything_is_shown() {
    let (cloud, nodes, mut passes) = cost_a_route().await;
    cloud.lock().incomplete.insert("servers");
    for _ in 0..2 {
        let (found, plan, _) = passes.pass(&cloud, &nodes).await;
        assert!(found.lock.is_some() && plan.steps.is_empty());
        assert!(passes.collector.as_ref().unwrap().owes(), "and the next look comes soon");
    }
    cloud.lock().incomplete.clear();
    assert_eq!(passes.pass(&cloud, &nodes).await.2.put_back, 1);
    assert_eq!(cloud.routes(), (1..=5).map(own).collect());
}

#[tokio::test]
async fn what_could_not_be_put_back_is_put_back_later() {
    let (cloud, nodes, mut passes) = cost_a_route().await;
    cloud.lock().fate = Some(Fate::Refused);
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!((applied.put_back, applied.failures.len()), (0, 1));
    // Not even the question how to write was answered.
    cloud.lock().deaf = true;
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!((applied.put_back, applied.failures.len()), (0, 1));
    cloud.lock().deaf = false;
    assert_eq!(passes.pass(&cloud, &nodes).await.2.put_back, 1);
    passes.pass(&cloud, &nodes).await;
    assert!(!passes.collector.as_ref().unwrap().owes(), "that was all");
}

#[tokio::test]
async fn many_removals_from_one_router_cost_one_write() {
    let cloud = MemoryCloud::new(1..=9).with_routes((1..=18).map(own));
    let nodes: Vec<_> = (1..=9).map(node).collect();
    let applied = Passes::new(rules()).settle(&cloud, &nodes).await;
    assert_eq!(applied.removed.len(), 9);
    assert_eq!(cloud.lock().calls.iter().filter(|call| **call == "remove").count(), 1);
}

/// A plan to take n9's range from n1's port, which `change`s before the plan is carried out.
async fn strip_a_port_that_changed(revision: Option<i64>, change: impl FnOnce(&mut Port)) -> (MemoryCloud, Applied) {
    let (cloud, nodes) = (MemoryCloud::new(1..=2).with_routes([own(1), own(2)]), [node(1), node(2)]);
    let at = |port: &Port| port.id == "port-1";
    cloud.lock().ports.iter_mut().find(|port| at(port)).unwrap().revision = revision;
    cloud.allow("port-1", &["100.100.9.0/24", "192.168.0.0/24"]);
    let mut passes = Passes::new(rules());
    ripen(&mut passes, &cloud, &nodes).await;
    let (_, plan) = passes.look(&cloud, &nodes).await;
    assert_eq!(plan.steps.len(), 1, "{plan:?}");
    change(cloud.lock().ports.iter_mut().find(|port| at(port)).unwrap());
    let applied = apply(&plan, &cloud, &Term::alone("test"), &passes.rules).await;
    (cloud, applied)
}

fn pair(range: &str) -> AddressPair {
    AddressPair { range: range.into(), mac: None }
}

#[tokio::test]
async fn a_pair_that_came_since_the_look_survives_with_and_without_revisions() {
    for revision in [None, Some(1)] {
        let add = |port: &mut Port| port.pairs.get_or_insert_default().push(pair("192.168.7.0/24"));
        let (cloud, applied) = strip_a_port_that_changed(revision, add).await;
        assert_eq!((applied.stripped, applied.failures.len()), (1, 0));
        assert_eq!(cloud.allowed("port-1"), ["192.168.0.0/24", "192.168.7.0/24"]);
    }
}

#[tokio::test]
async fn a_nodes_own_pair_that_came_between_read_and_write_is_back_in_the_next_pass() {
    let (cloud, nodes) = (MemoryCloud::new(1..=2).with_routes([own(1), own(2)]), [node(1), node(2)]);
    cloud.allow("port-1", &["100.100.9.0/24"]);
    let mut passes = Passes::new(rules());
    ripen(&mut passes, &cloud, &nodes).await;
    let come = |ports: &mut Vec<Port>| {
        let port = ports.iter_mut().find(|port| port.id == "port-1").unwrap();
        port.pairs.get_or_insert_default().push(pair("100.100.1.0/24"));
    };
    cloud.lock().meanwhile_ports = Some(Box::new(come));
    let (_, _, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!((applied.stripped, cloud.allowed("port-1")), (1, vec![]), "it was lost");
    let (_, plan, applied) = passes.pass(&cloud, &nodes).await;
    assert_eq!(plan.steps[0].to_string(), "port port-1 of Node n1: allow 100.100.1.0/24 again");
    assert_eq!((applied.allowed, cloud.allowed("port-1")), (1, vec!["100.100.1.0/24".to_owned()]));
    passes.pass(&cloud, &nodes).await;
    let (_, plan, _) = passes.pass(&cloud, &nodes).await;
    assert_eq!(plan.steps, [], "and n2, whose port we never wrote to, gets none from us");
    assert_eq!(cloud.allowed("port-2"), [""; 0]);
}

#[tokio::test]
async fn a_port_that_got_another_server_since_the_look_keeps_its_pairs() {
    let other = |port: &mut Port| port.device = Device::Server("other".into());
    let (cloud, applied) = strip_a_port_that_changed(Some(1), other).await;
    assert!(matches!(&applied.failures[0].error, ApplyError::PortChanged(id) if id == "port-1"), "{applied:?}");
    assert_eq!(applied.stripped, 0);
    assert_eq!(cloud.allowed("port-1"), ["100.100.9.0/24", "192.168.0.0/24"]);
}

#[tokio::test]
async fn a_port_whose_pairs_are_no_longer_told_is_not_written() {
    let (cloud, applied) = strip_a_port_that_changed(Some(1), |port| port.pairs = None).await;
    assert!(matches!(applied.failures[0].error, ApplyError::PortChanged(_)), "{applied:?}");
    assert!(!cloud.lock().calls.contains(&"pairs"));
}
