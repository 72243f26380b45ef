//! `groundcrew deorbit-controller` on a real kube-apiserver and kube-controller-manager. The cloud is a model, for faults on
//! order; what a cloud controller manager, a Cinder driver and a snapshot controller do is done by stand-ins. `e2e` runs the
//! same bodies on the services themselves, so that the model cannot lie.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers are tests too")]

mod abort;
mod bodies;
mod caution;
mod churn;
mod clean;
mod edits;
mod ends;
mod faults;
mod lab;
mod marks;
mod place;
mod silence;
mod standins;

use lab::Lab;

bodies::on_both!([#[ignore = "run by make e2e-deorbit"]] |_: &str| Lab::model());

// What the services do not do on order, and what they have no part in.
bodies::on! { [] |_: &str| Lab::model();
    caution:
        on_half_a_list_nothing_is_removed_and_nothing_is_called_clean;
    churn:
        a_cluster_that_somebody_protects_is_refused;
    ends:
        what_cannot_be_stopped_puts_everything_back_and_the_next_run_is_free_to_go,
        a_report_that_cannot_be_written_does_not_hold_up_the_end;
}
bodies::on! { [#[ignore = "run by make e2e-deorbit"]] |_: &str| Lab::model();
    churn:
        without_snapshots_and_gateways_in_the_cluster_there_are_none_of_them;
    faults:
        a_password_that_is_wrong_from_the_start_is_told_at_once,
        a_password_that_is_revoked_midway_ends_as_unknown_and_not_as_clean,
        a_volume_that_a_server_has_is_never_detached;
    marks:
        a_router_that_somebody_removes_meanwhile_has_no_routes,
        backups_go_stay_or_are_told_as_their_policy_says_and_a_neighbour_s_stay;
    edits:
        a_policy_that_somebody_changes_to_keep_holds_for_all_that_is_still_there,
        a_run_whose_confirmation_is_taken_away_stops_until_it_is_there_again,
        a_namespace_that_somebody_protects_meanwhile_is_not_blocked_any_more;
    abort:
        an_abort_that_cannot_put_everything_back_says_so_until_it_can;
    ends:
        when_the_time_is_up_the_report_comes_first_and_then_the_cluster_may_go_or_is_held,
        without_the_right_to_look_it_is_refused_and_midway_it_ends_as_unknown,
        a_second_deorbit_says_for_whom_it_waits_and_a_budget_that_breaks_midway_refuses_nothing,
        every_line_of_a_long_report_is_in_the_file_and_in_the_config_map,
        the_block_is_proven_where_the_place_of_the_probe_is_protected_and_holds_for_every_kind,
        a_plan_becomes_a_run_when_it_is_no_dry_run_any_more;
    silence:
        an_api_server_that_refuses_connections_until_the_time_is_up,
        an_api_server_that_says_nothing_until_the_time_is_up,
        an_api_server_whose_certificate_cannot_be_trusted_until_the_time_is_up,
        an_api_server_that_knows_us_no_longer_until_the_time_is_up,
        a_silent_api_server_does_not_hold_a_cluster_that_may_go;
}
