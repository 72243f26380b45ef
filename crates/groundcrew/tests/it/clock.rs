//! A wall clock that jumps under a running controller.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use groundcrew_api::address_pool::AddressPool;
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::lab::{Lab, SOON};

const HOUR: i64 = 3_600;

/// What a program is told that it is loaded into and that asks for the wall clock: the time, and what a file adds to it.
/// No other clock is touched.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void find(void) {
    const char *path = getenv("WALL_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) ahead = map;
    if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && clock == CLOCK_REALTIME && ahead) now->tv_sec += *ahead;
    return done;
}
"#;

struct Clock {
    dir: Scratch,
}

impl Clock {
    fn new() -> Self {
        let dir = Scratch::new("clock").unwrap();
        fs::write(dir.join("clock.c"), CLOCK).unwrap();
        fs::write(dir.join("ahead"), 0_i64.to_ne_bytes()).unwrap();
        // There is one wherever Rust is linked.
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o", "clock.so", "clock.c"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Self { dir }
    }

    /// Has a program go by it.
    fn drives<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", self.dir.join("clock.so")).env("WALL_CLOCK", self.dir.join("ahead"))
    }

    fn set_ahead(&self, seconds: i64) {
        let file = OpenOptions::new().write(true).open(self.dir.join("ahead")).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

/// Waits until the Lease was renewed twice by a clock that is so far ahead.
async fn until_renewed(lab: &Lab, ahead: i64) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let mut last = LeaseSpec::default();
    for _ in 0..2 {
        let spec = eventually(&format!("it is renewed {ahead} s ahead"), SOON, async || {
            let spec = leases.get("groundcrew-ovn-lb").await?.spec.unwrap_or_default();
            let renewed = spec.renew_time.as_ref().map(|time| time.0.as_second()).unwrap_or_default();
            let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
            ensure!(spec.renew_time != last.renew_time, "not since {renewed}");
            ensure!((renewed - now - ahead).abs() < HOUR / 2, "renewed at {renewed}, and it is {now}");
            anyhow::Ok(spec)
        })
        .await
        .unwrap();
        last = spec;
    }
    last
}

async fn until_reason(lab: &Lab, name: &str, reason: &str) {
    eventually(&format!("{name} says {reason}"), SOON, async || {
        let status = lab.services().get(name).await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(conditions.iter().any(|condition| condition.reason == reason), "{conditions:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_wall_clock_that_jumps_by_an_hour_ends_no_term_no_rest_and_no_age_and_drift_is_put_right() {
    let (lab, clock) = (Lab::new("jumps").await, Clock::new());
    // Longer than the test, and shorter than a jump.
    let flags = ["--scan-interval", "200ms", "--address-rest", "30m", "--orphan-age", "30m"];
    let leader = lab.spawn("leader", |command| clock.drives(command).args(flags));
    lab.until_leads(&leader).await;
    let follower = lab.start("follower").await;
    for name in ["web", "goes"] {
        lab.create(name).await;
        lab.until_served(name).await;
    }
    // Nothing else is left.
    let mut left = Vec::new();
    for name in ["web", "goes"] {
        let address = lab.address(name).await;
        left.push(format!("{address}-{address}"));
    }
    let spec = json!({ "spec": { "addresses": left } });
    let pools: Api<AddressPool> = Api::all(lab.client.clone());
    pools.patch(&lab.namespace, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    lab.services().delete("goes", &DeleteParams::default()).await.unwrap();
    eventually("the Service is gone", SOON, async || {
        ensure!(lab.services().get_opt("goes").await?.is_none(), "not yet");
        Ok(())
    })
    .await
    .unwrap();
    let mark = |key: &str, value: &str| format!("external_ids:groundcrew-{key}={value}");
    let marks = [
        mark("cluster", &lab.namespace),
        mark("namespace", &lab.namespace),
        mark("service", "gone"),
        mark("uid", "8f14e45f-ceea-467f-a0e6-1d2c3b4a5968"),
    ];
    let orphan = ["lb-add", "orphan", "203.0.113.1:80", "10.9.9.9:80", "--", "set", "load_balancer", "orphan"];
    lab.northbound().nbctl(orphan.iter().copied().chain(marks.iter().map(String::as_str))).await.unwrap();
    leader.until_metric("groundcrew_service_orphans", SOON, |orphans| orphans > 0.5).await.unwrap();
    let (before, led) = (lab.rows().await, until_renewed(&lab, 0).await);

    for (nth, ahead) in [HOUR, -HOUR].into_iter().enumerate() {
        clock.set_ahead(ahead);
        let renewed = until_renewed(&lab, ahead).await;
        assert_eq!(
            (&renewed.holder_identity, renewed.lease_transitions, &renewed.acquire_time),
            (&led.holder_identity, led.lease_transitions, &led.acquire_time),
            "the same term"
        );
        let scans = leader.metric("groundcrew_service_full_scans_total").await.unwrap();
        leader.until_metric("groundcrew_service_full_scans_total", SOON, |now| now > scans + 3.0).await.unwrap();
        let row = before.iter().find(|name| *name != "orphan").unwrap();
        lab.northbound().nbctl(["lb-del", row]).await.unwrap();
        eventually("the row is back, and the orphan is left", SOON, async || {
            let now = lab.rows().await;
            ensure!(now == before, "{now:?}");
            Ok(())
        })
        .await
        .unwrap();
        let wants = format!("wants-{nth}");
        lab.create(&wants).await;
        until_reason(&lab, &wants, "PoolEmpty").await;
    }
    assert!(follower.metric("groundcrew_leader_leading_bool").await.unwrap() < 0.5);
}
