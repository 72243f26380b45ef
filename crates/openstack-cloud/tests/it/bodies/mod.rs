//! Test bodies for both clouds. `e2e/tests/openstack` has them too.

pub(crate) mod balancers;
pub(crate) mod servers;
pub(crate) mod storage;

use std::time::Duration;

use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::eventually;
use openstack_client::{Client, Error, Kind};
use serde_json::Value;

/// A project, and what somebody else does in it.
pub(crate) trait Place {
    /// The provider.
    fn openstack(&self) -> &OpenStack;
    /// What it is made of.
    fn client(&self) -> &Client;

    /// A server that runs. Gives its id.
    async fn boot(&self, name: &str) -> String;
    /// One of another project.
    async fn boot_elsewhere(&self) -> String;
    /// Has the cloud give a server up.
    async fn fail(&self, server: &str);
    /// Has somebody lock a server.
    async fn lock(&self, server: &str);
    /// Has the cell of a server go down.
    async fn lose(&self, server: &str);
    /// Ends that.
    async fn find(&self, server: &str);

    /// A volume that can be used.
    async fn volume(&self, name: &str, metadata: Value) -> String;
    /// A snapshot of it.
    async fn snapshot(&self, volume: &str) -> String;

    /// A load balancer that works.
    async fn balancer(&self, name: &str, tags: &[&str]) -> String;
    /// One that nobody finishes.
    async fn stuck_balancer(&self, name: &str) -> String;
}

/// What a real service may take on a busy machine.
const SOON: Duration = Duration::from_mins(2);

/// Waits until the cloud says that it has no such thing.
async fn gone<T: std::fmt::Debug>(what: &str, look: impl AsyncFn() -> Result<T, Error>) {
    let gone = eventually(what, SOON, async || match look().await {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        other => Err(format!("{other:?}")),
    });
    gone.await.unwrap();
}

/// Runs bodies as tests of their own names, each in a place of its own.
macro_rules! on {
    ($place:expr; $($module:ident: $($body:ident),*;)*) => {
        $($(#[tokio::test] async fn $body() {
            $crate::bodies::$module::$body(&$place(stringify!($body)).await).await;
        })*)*
    };
}
pub(crate) use on;

/// All of them.
macro_rules! all_bodies {
    ($place:expr) => {
        $crate::bodies::on! { $place;
            servers:
                a_server_is_listed_rebooted_both_ways_and_deleted,
                a_failed_server_refuses_a_soft_reboot_and_takes_a_hard_one,
                a_locked_server_says_so_and_refuses,
                a_server_of_another_project_is_neither_listed_nor_found,
                a_cell_that_is_down_makes_the_list_incomplete_and_its_server_unknown,
                tags_and_metadata_are_added_to_what_is_there;
            storage:
                volumes_are_found_by_the_cluster_that_their_metadata_names,
                a_volume_with_a_snapshot_stays_until_that_is_gone;
            balancers:
                load_balancers_are_found_by_their_whole_tag_and_deleted,
                a_load_balancer_that_is_pending_refuses_and_stays;
        }
    };
}
pub(crate) use all_bodies;
