//! Which tests run where.

macro_rules! test {
    ([$($attribute:tt)*], $lab:expr, $module:ident, $body:ident) => {
        #[tokio::test]
        $($attribute)*
        async fn $body() {
            let lab = $lab;
            $crate::$module::$body(&lab(stringify!($body)).await).await;
        }
    };
}
pub(crate) use test;

/// Runs bodies as tests of their own names, each in a project of its own, with these attributes.
macro_rules! on {
    ($attributes:tt $lab:expr; $($module:ident: $($body:ident),*;)*) => {
        $($($crate::bodies::test!($attributes, $lab, $module, $body);)*)*
    };
}
pub(crate) use on;

/// Those for both clouds; the attributes are for those that take long.
macro_rules! on_both {
    ($attributes:tt $lab:expr) => {
        $crate::bodies::on! { [] $lab;
            clean:
                a_cluster_with_all_kinds_goes_and_only_its_neighbour_is_left,
                a_dry_run_shows_everything_and_touches_nothing;
            abort:
                an_abort_puts_replicas_back_and_lifts_the_block,
                a_delete_that_a_policy_denies_is_told_and_stopping_after_it_brings_no_workload_back;
            caution:
                without_the_uid_of_this_cluster_nothing_is_done,
                a_retained_volume_and_a_kept_claim_stay_although_everything_may_be_deleted,
                claims_of_other_drivers_and_services_of_other_classes_stay,
                under_a_default_name_nothing_is_removed_by_the_cloud_s_api,
                snapshots_that_are_retained_kept_or_another_driver_s_stay,
                a_shared_load_balancer_stays_while_one_of_its_users_does,
                a_cloud_that_shows_nothing_of_what_the_cluster_has_is_refused,
                a_volume_that_was_just_made_is_not_taken_for_an_orphan,
                past_the_brake_nothing_is_removed,
                an_address_that_a_user_wants_to_keep_survives_its_service,
                an_address_that_a_user_wants_to_keep_survives_its_ingress;
            marks:
                a_volume_without_the_mark_that_a_pv_named_is_not_called_gone,
                routes_to_nodes_that_leave_meanwhile_go_after_a_restart_too;
        }
        $crate::bodies::on! { $attributes $lab;
            marks:
                a_retained_volume_is_told_without_its_mark_too_and_goes_with_its_object_if_that_was_asked_for,
                snapshots_without_a_content_and_contents_without_a_snapshot_go,
                what_an_ingress_had_that_is_gone_goes_by_the_cloud_s_api;
            churn:
                an_operator_that_makes_everything_again_is_held_off,
                a_gateway_goes_before_its_services_and_one_that_is_kept_keeps_them,
                a_namespace_that_is_already_going_does_not_hold_it_up,
                a_claim_that_waits_for_its_first_pod_goes_before_it_gets_a_volume,
                a_stale_attachment_is_let_go_when_its_volume_is_gone;
            faults:
                with_a_dead_cloud_controller_it_refuses_or_removes_by_itself_as_it_was_told,
                with_a_dead_volume_driver_volumes_go_by_the_cloud_s_api_and_then_their_objects,
                with_a_dead_snapshot_controller_snapshots_go_by_the_cloud_s_api_and_then_their_objects,
                a_finalizer_stays_while_its_load_balancer_is_stuck_and_the_report_says_so,
                a_volume_that_cinder_cannot_delete_is_left_with_its_state,
                what_a_webhook_does_not_let_us_delete_is_left_with_its_words,
                killed_again_and_again_it_goes_on_where_it_was_and_touches_nobody_else;
        }
    };
}
pub(crate) use on_both;
