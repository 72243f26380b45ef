use super::*;
use crate::northbound::Northbound;
use crate::testing::{row, served, service, site, slice, update, uuid};
use crate::verify::verify;
use crate::wanted::wanted;
use serde_json::{Value, json};

const PATIENCE: Patience = Patience { settle: Duration::from_secs(5), repair: Duration::from_secs(30) };

/// One Service, its endpoints, OVN, and the time.
struct Scene {
    book: Book,
    service: Service,
    ready: Vec<&'static str>,
    nb: Northbound,
    now: Moment,
    round: u64,
}

impl Scene {
    fn new(nb: Northbound) -> Self {
        Self {
            book: Book::new(PATIENCE),
            service: service("shop", "web"),
            ready: vec!["10.1.0.41", "10.1.0.42"],
            nb,
            now: Moment::now(),
            round: 0,
        }
    }

    /// Everything is as it should be, and was seen so.
    fn settled() -> Self {
        let mut scene = Self::new(served());
        assert_eq!(scene.look(), "fine");
        scene
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn change(&mut self, change: &Value) {
        update(&mut self.nb, change);
        self.round += 1;
        let taken = change.to_string().contains("delete");
        self.book.touch(&self.service.key, Touch { seen: self.now, round: self.round }, taken);
    }

    /// Before anybody watched.
    fn update_silently(&mut self, change: &Value) {
        update(&mut self.nb, change);
    }

    fn judge(&mut self) -> Judgement {
        let slice = slice(&self.ready);
        let wanted = wanted(&self.service, &[&slice], &site());
        self.book.judge(&self.service, &wanted, verify(&wanted, &self.nb), self.now)
    }

    /// The judgement in words.
    fn look(&mut self) -> String {
        let kinds = |findings: &[Finding]| findings.iter().map(|f| f.kind.label()).collect::<Vec<_>>().join(" ");
        match self.judge() {
            Judgement::NotOurs => "not ours".into(),
            Judgement::Fine { repaired: None } => "fine".into(),
            Judgement::Fine { repaired: Some(repaired) } => format!("repaired in {} s", repaired.took.as_secs()),
            Judgement::Settling(left) | Judgement::Asked(left) => format!("wait {} s", left.as_secs()),
            Judgement::Drift(alarm) => format!("drift {}", kinds(&alarm.findings)),
            Judgement::Odd(findings) => format!("odd {}", kinds(&findings)),
        }
    }

    fn ask(&mut self) {
        self.tell(Some("now"));
        self.service.resync = Some("now".into());
    }

    /// As the leader does it. Returns what is counted as found.
    fn tell(&mut self, with: Option<&str>) -> Vec<Kind> {
        let Judgement::Drift(alarm) = self.judge() else { panic!("no drift") };
        let key = &self.service.key;
        self.book.blame(key, &alarm.cause.clone().unwrap_or_else(Cause::unknown));
        self.book.asked(key, with, &alarm, self.now)
    }

    /// What is counted as repaired.
    fn closed(&mut self) -> Vec<Kind> {
        self.book.take_closed().into_iter().map(|(kind, _)| kind).collect()
    }
}

fn gone() -> Value {
    json!({ "Load_Balancer": { uuid(1).to_string(): { "delete": null } } })
}

/// The manager has made the row again, and it is where it belongs.
fn back() -> Value {
    let member = json!({ "modify": { "load_balancer": ["uuid", uuid(1)] } });
    json!({
        "Load_Balancer": { uuid(1).to_string(): row("shop-web-tcp") },
        "Logical_Router": { uuid(5).to_string(): member },
        "Logical_Switch": { uuid(6).to_string(): member },
    })
}

fn toggle_member(table: &str, place: u128) -> Value {
    json!({ table: { uuid(place).to_string(): { "modify": { "load_balancer": ["uuid", uuid(1)] } } } })
}

fn vips(backends: &str) -> Value {
    json!({ "Load_Balancer": { uuid(1).to_string(): { "modify": { "vips": ["map", [["192.0.2.7:80", backends]]] } } } })
}

/// As the server does it: weak references go with the row.
fn taken() -> Value {
    let member = json!({ "modify": { "load_balancer": ["uuid", uuid(1)] } });
    let mut change = gone();
    change["Logical_Router"] = json!({ uuid(5).to_string(): member });
    change["Logical_Switch"] = json!({ uuid(6).to_string(): member });
    change
}

#[test]
fn what_nothing_in_kubernetes_explains_is_drift_at_once() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing");
    assert_eq!(scene.look(), "drift row_missing", "until somebody was asked");
    scene.ask();
    scene.wait(2);
    assert_eq!(scene.look(), "wait 28 s");
    scene.change(&back());
    assert_eq!(scene.look(), "repaired in 2 s");
    assert_eq!((scene.look(), scene.book.open_count()), ("fine".into(), 0));
}

#[test]
fn what_kubernetes_changed_a_moment_ago_gets_time_to_settle() {
    let mut scene = Scene::settled();
    scene.service.ports[0].port = 81;
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(4);
    assert_eq!(scene.look(), "wait 1 s");
    scene.wait(1);
    assert_eq!(scene.look(), "drift vip_missing");
}

#[test]
fn pods_that_come_and_go_do_not_delay_the_repair_of_a_lost_row() {
    let mut scene = Scene::settled();
    scene.ready = vec!["10.1.0.41", "10.1.0.43"];
    assert_eq!(scene.look(), "wait 5 s");
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing");
}

#[test]
fn a_row_that_is_taken_again_while_it_is_made_is_asked_for_at_once() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    scene.look();
    scene.ask();
    scene.wait(1);
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): row("shop-web-tcp") } }));
    assert_eq!(scene.look(), "wait 29 s", "it is there, but not attached");
    scene.wait(1);
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } }));
    assert_eq!(scene.look(), "drift row_missing");
    scene.ask();
    scene.wait(1);
    // Made and taken between two looks.
    scene.change(&json!({ "Load_Balancer": { uuid(3).to_string(): row("shop-web-tcp") } }));
    scene.change(&json!({ "Load_Balancer": { uuid(3).to_string(): { "delete": null } } }));
    assert_eq!(scene.look(), "drift row_missing");
}

#[test]
fn without_an_answer_it_is_asked_again_later_and_later() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    let mut asked = 0;
    for _ in 0..3_600 {
        if scene.look().starts_with("drift") {
            scene.ask();
            asked += 1;
        }
        scene.wait(1);
    }
    assert!((8..=12).contains(&asked), "{asked} times in an hour");
}

#[test]
fn while_the_router_is_away_nobody_can_repair_and_when_it_is_back_somebody_is_asked() {
    let mut scene = Scene::settled();
    scene.change(&json!({ "Logical_Router": { uuid(5).to_string(): { "delete": null } } }));
    let Judgement::Drift(alarm) = scene.judge() else { panic!("no drift") };
    assert!(!alarm.is_repairable());
    scene.ask();
    scene.wait(3);
    scene.change(&json!({ "Logical_Router": { uuid(7).to_string(): crate::testing::place("shop", &[]) } }));
    assert_eq!(scene.look(), "drift router_detached");
}

#[test]
fn a_row_that_went_with_its_router_is_asked_for_again_as_soon_as_the_router_is_back() {
    let emptied = json!({
        "Load_Balancer": { uuid(1).to_string(): { "delete": null } },
        "Logical_Router": { uuid(5).to_string(): { "delete": null } },
        "Logical_Switch": { uuid(6).to_string(): { "modify": { "load_balancer": ["uuid", uuid(1)] } } },
    });
    let again = json!({ "Logical_Router": { uuid(7).to_string(): crate::testing::place("shop", &[]) } });
    let mut before_we_came = served();
    update(&mut before_we_came, &emptied);
    let mut came_late = Scene::new(before_we_came);
    came_late.service.finalizer = true;
    came_late.look();
    came_late.wait(5);
    let mut seen = Scene::settled();
    seen.change(&emptied);
    for mut scene in [seen, came_late] {
        let Judgement::Drift(alarm) = scene.judge() else { panic!("no drift") };
        assert_eq!(alarm.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::RowMissing, Kind::RouterMissing]);
        assert!(alarm.is_repairable() && alarm.is_hindered());
        scene.ask();
        scene.wait(3);
        scene.change(&again);
        assert_eq!(scene.look(), "drift row_missing", "at once");
    }
}

#[test]
fn a_second_row_of_the_name_is_told_and_nobody_is_asked_until_it_is_gone() {
    let mut scene = Scene::settled();
    scene.change(&json!({
        "Load_Balancer": { uuid(2).to_string(): row("shop-web-tcp") },
        "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer": ["uuid", uuid(1)] } } },
    }));
    let Judgement::Drift(alarm) = scene.judge() else { panic!("not told") };
    assert!(!alarm.is_repairable());
    assert_eq!(scene.tell(None), [Kind::RowDuplicate]);
    scene.wait(5);
    assert_eq!(scene.look(), "wait 25 s");
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } }));
    let Judgement::Drift(alarm) = scene.judge() else { panic!("not asked for what is left") };
    assert!(alarm.is_repairable() && !alarm.told);
    assert_eq!(scene.look(), "drift router_detached");
}

#[test]
fn backends_that_were_right_and_are_changed_are_drift_once_they_have_settled() {
    let mut scene = Scene::settled();
    scene.change(&vips("10.9.9.9:1"));
    assert_eq!(scene.look(), "wait 5 s", "endpoints may follow");
    scene.wait(5);
    assert_eq!(scene.look(), "drift backends");
    scene.ask();
    scene.wait(30);
    assert_eq!(scene.look(), "odd backends", "the manager was asked and left it so");
    scene.wait(3_600);
    assert_eq!(scene.look(), "fine", "no endless alarm");
}

#[test]
fn backends_that_never_were_as_we_compute_them_are_told_once() {
    let mut scene = Scene::new(served());
    scene.ready = vec!["10.1.0.99"];
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(5);
    assert_eq!(scene.look(), "odd backends");
    scene.wait(3_600);
    assert_eq!(scene.look(), "fine");
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing", "a lost row is another matter");
}

#[test]
fn a_row_without_endpoints_that_was_there_and_is_gone_is_drift() {
    let mut scene = Scene::new(served());
    scene.ready.clear();
    scene.look();
    scene.wait(5);
    assert_eq!(scene.look(), "odd backends");
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing");
}

/// A manager that keeps no row without backends, and makes it step by step when there are some.
#[test]
fn a_row_that_comes_and_goes_with_its_endpoints_is_no_drift() {
    let mut scene = Scene::settled();
    scene.ready.clear();
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(1);
    scene.change(&taken());
    assert_eq!(scene.look(), "wait 4 s");
    scene.wait(4);
    assert!(["odd row_missing", "fine"].contains(&&*scene.look()), "its way of seeing things");
    scene.wait(60);
    assert_eq!(scene.look(), "fine");

    scene.ready = vec!["10.1.0.41", "10.1.0.42"];
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(1);
    scene.change(&json!({ "Load_Balancer": { uuid(1).to_string(): row("shop-web-tcp") } }));
    assert_eq!(scene.look(), "wait 4 s", "it is there, but not attached");
    scene.change(&toggle_member("Logical_Router", 5));
    scene.change(&toggle_member("Logical_Switch", 6));
    assert_eq!(scene.look(), "fine");
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing", "nothing explains this one");
}

#[test]
fn a_row_that_does_not_come_with_its_endpoints_is_drift_once_that_has_settled() {
    let mut nb = served();
    update(&mut nb, &taken());
    let mut scene = Scene::new(nb);
    scene.ready.clear();
    scene.look();
    scene.wait(5);
    assert_eq!(scene.look(), "odd row_missing");
    scene.wait(60);
    scene.ready = vec!["10.1.0.41"];
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(5);
    assert_eq!(scene.look(), "drift row_missing");
}

#[test]
fn an_address_that_comes_and_goes_with_its_endpoints_is_no_drift() {
    let mut scene = Scene::settled();
    let toggle = json!({ "Load_Balancer": { uuid(1).to_string(): { "modify": { "vips": ["map", [["192.0.2.7:80", "10.1.0.41:8080,10.1.0.42:8080"]]] } } } });
    scene.ready.clear();
    scene.look();
    scene.change(&toggle);
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(5);
    assert_eq!(scene.look(), "fine");
    scene.ready = vec!["10.1.0.41", "10.1.0.42"];
    assert_eq!(scene.look(), "wait 5 s");
    scene.change(&toggle);
    assert_eq!(scene.look(), "wait 5 s");
    scene.wait(5);
    assert_eq!(scene.look(), "fine");
}

#[test]
fn a_lost_row_is_not_awaited_any_more_once_its_endpoints_are_gone_as_well() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    scene.ask();
    scene.ready.clear();
    assert_eq!(scene.look(), "wait 30 s");
    scene.wait(30);
    assert_eq!(scene.look(), "repaired in 30 s", "a manager that keeps none without has nothing to do");
    scene.ready = vec!["10.1.0.41"];
    scene.look();
    scene.wait(5);
    assert_eq!(scene.look(), "drift row_missing");
}

#[test]
fn endpoints_that_come_and_go_delay_nothing_that_they_do_not_explain() {
    let mut scene = Scene::settled();
    scene.ready.clear();
    assert_eq!(scene.look(), "wait 5 s");
    scene.change(&toggle_member("Logical_Router", 5));
    assert_eq!(scene.look(), "drift router_detached");
}

#[test]
fn a_row_that_was_seen_to_go_is_drift_however_little_is_known() {
    let mut scene = Scene::new(served());
    scene.ready.clear();
    scene.update_silently(&toggle_member("Logical_Router", 5));
    assert_eq!(scene.look(), "wait 5 s", "just come, and nothing has settled");
    scene.change(&gone());
    assert_eq!(scene.look(), "drift row_missing");
    assert_eq!(scene.look(), "drift row_missing", "it stays so");
}

#[test]
fn who_is_not_kube_dcs_is_not_verified() {
    let empty = Northbound::default;
    assert_eq!(Scene::new(empty()).look(), "not ours", "no project");
    let mut with_finalizer = Scene::new(empty());
    with_finalizer.service.finalizer = true;
    assert_eq!(with_finalizer.look(), "wait 5 s");
    let mut nb = served();
    update(&mut nb, &taken());
    let mut of_another_class = Scene::new(nb.clone());
    of_another_class.service.class = true;
    assert_eq!(of_another_class.look(), "not ours");
    assert_eq!(Scene::new(nb).look(), "wait 5 s");
    let mut of_another_class_with_a_row_of_its_name = Scene::new(served());
    of_another_class_with_a_row_of_its_name.service.class = true;
    assert_eq!(of_another_class_with_a_row_of_its_name.look(), "not ours");
    let mut seen_before = Scene::settled();
    seen_before.nb = empty();
    assert!(seen_before.look().starts_with("drift row_missing"), "an emptied database does not make it a stranger");
}

#[test]
fn a_service_made_again_under_its_name_is_another_one() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing");
    scene.service.uid = "another".into();
    assert_eq!(scene.look(), "wait 5 s", "its row is yet to be made");
    assert_eq!((scene.book.len(), scene.book.open_count()), (1, 0));
}

#[test]
fn a_request_of_another_copy_of_us_counts_as_ours() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing");
    scene.service.resync = Some("by the leader".into());
    scene.wait(1);
    let Judgement::Drift(alarm) = scene.judge() else { panic!("not told") };
    assert!(alarm.under_way);
    scene.book.told_elsewhere(&scene.service.key, false);
    assert_eq!(scene.look(), "wait 30 s");
    scene.change(&back());
    let Judgement::Fine { repaired: Some(repaired) } = scene.judge() else { panic!("not repaired") };
    assert!(repaired.told && !repaired.found, "who found it counts it");
    assert_eq!(scene.closed(), []);
}

#[test]
fn a_request_that_got_no_answer_and_was_heard_is_told_and_not_made_again() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    assert_eq!(scene.look(), "drift row_missing");
    scene.service.resync = Some("ours, but we do not know".into());
    assert_eq!(scene.look(), "drift row_missing");
    assert_eq!(scene.tell(None), [Kind::RowMissing], "it is counted as found");
    assert_eq!(scene.look(), "wait 30 s");
    scene.change(&back());
    assert_eq!(scene.look(), "repaired in 0 s");
    assert_eq!(scene.closed(), [Kind::RowMissing]);
}

#[test]
fn what_was_found_is_repaired_just_as_often_whatever_is_seen_between() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    assert_eq!(scene.tell(Some("1")), [Kind::RowMissing]);
    // The manager goes step by step.
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): row("shop-web-tcp") } }));
    assert_eq!(scene.look(), "wait 30 s", "not attached yet");
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } }));
    assert_eq!(scene.look(), "drift row_missing", "gone again");
    assert_eq!(scene.closed(), [Kind::RowMissing], "it had been there");
    assert_eq!(scene.tell(Some("2")), [Kind::RowMissing]);
    scene.wait(30);
    assert_eq!(scene.tell(Some("3")), [], "the same still");
    assert_eq!(scene.closed(), []);
    scene.change(&back());
    assert_eq!(scene.look(), "repaired in 30 s");
    assert_eq!(scene.closed(), [Kind::RowMissing]);

    scene.change(&taken());
    assert_eq!(scene.tell(Some("4")), [Kind::RowMissing]);
    scene.book.forget(&scene.service.key.clone());
    assert_eq!(scene.closed(), [Kind::RowMissing], "nobody waits for it any more");
}

#[test]
fn who_did_it_is_decided_once() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    let Judgement::Drift(alarm) = scene.judge() else { panic!("no drift") };
    assert_eq!(alarm.cause, None);
    let cause = Cause { label: "manual_delete", ..Cause::unknown() };
    scene.book.blame(&scene.service.key, &cause);
    scene.ask();
    scene.wait(30);
    let Judgement::Drift(alarm) = scene.judge() else { panic!("no drift") };
    assert_eq!((alarm.attempts, alarm.cause), (1, Some(cause)), "when it is asked for again");
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): row("shop-web-tcp") } }));
    scene.look();
    scene.change(&json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } }));
    let Judgement::Drift(alarm) = scene.judge() else { panic!("no drift") };
    assert_eq!(alarm.cause, None, "somebody has deleted it anew");
}

#[test]
fn our_own_request_is_not_taken_for_news_when_the_service_shows_it() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    scene.look();
    scene.tell(Some("ours"));
    scene.wait(2);
    assert_eq!(scene.look(), "wait 28 s", "the watch is slow");
    scene.service.resync = Some("ours".into());
    assert_eq!(scene.look(), "wait 28 s");
}

#[test]
fn changed_options_are_told_once_and_then_how_it_is() {
    let mut scene = Scene::settled();
    let options = json!({ "modify": { "options": ["map", [["reject", "true"]]] } });
    scene.change(&json!({ "Load_Balancer": { uuid(1).to_string(): options } }));
    assert_eq!(scene.look(), "odd options");
    assert_eq!(scene.look(), "fine");
}

#[test]
fn one_of_a_crowd_is_silent_to_its_end() {
    let mut scene = Scene::settled();
    scene.change(&taken());
    let key = scene.service.key.clone();
    scene.tell(Some("ours"));
    scene.book.is_in_a_crowd(&key);
    scene.wait(30);
    let Judgement::Drift(alarm) = scene.judge() else { panic!("not overdue") };
    assert!(alarm.told && alarm.in_a_crowd);
    scene.change(&back());
    let Judgement::Fine { repaired: Some(repaired) } = scene.judge() else { panic!("not repaired") };
    assert!(repaired.in_a_crowd);
}
