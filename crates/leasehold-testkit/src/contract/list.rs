//! The list of cases, by subject: [`store_contract!`](crate::store_contract) and nothing else.

/// Expands to one test per promise, over the backend of the [`Harness`](crate::Harness) given.
///
/// Call it once in a module of its own: it makes a module per subject.
#[macro_export]
macro_rules! store_contract {
    ($harness:ty) => {
        $crate::store_contract! {
            cases of $harness;
            clock {
                the_clock_goes_forward
                every_handle_reads_the_same_clock
                a_duration_without_end_stops_at_the_end_of_the_calendar
            }
            enqueue {
                an_item_is_stored_as_it_was_constructed
                the_extremes_of_every_number_are_stored
                an_item_of_no_attempts_has_one
                an_item_with_no_due_time_is_due_at_the_stores_now
                a_delay_counts_from_the_stores_now
                an_instant_that_is_given_is_kept
                a_batch_is_answered_in_its_order
                an_empty_batch_is_answered_with_nothing
                a_batch_of_a_thousand_is_stored_whole
                the_same_id_again_answers_the_stored_row_untouched
                the_same_key_under_another_id_answers_the_holder_untouched
                a_taken_id_is_reported_before_a_taken_key
                a_key_of_another_org_is_free
                an_id_of_another_org_is_taken_and_shows_nothing
                an_id_of_another_org_is_reported_before_a_taken_key
                a_row_that_is_taken_takes_none_of_its_batch_along
                a_later_row_of_a_batch_sees_the_earlier_ones
                a_batch_asked_again_answers_the_rows_that_landed
                enqueueing_again_never_touches_a_claim
                a_key_stays_taken_whatever_became_of_its_item
                a_key_is_free_once_its_item_was_purged
            }
            claim {
                a_claim_stamps_worker_token_lease_and_attempt
                a_claimed_item_is_not_claimed_again
                finished_items_are_not_claimed
                a_claim_without_lanes_takes_nothing
                a_claim_without_kinds_takes_nothing
                other_lanes_are_left_alone
                other_kinds_are_left_alone
                one_claim_serves_several_lanes_kinds_and_orgs
                a_lane_named_twice_is_claimed_from_once
                an_item_is_not_claimed_before_it_is_due
                items_go_by_priority_then_due_time_then_id
                a_claim_takes_no_more_than_its_limit
                every_row_that_is_marked_is_returned
                a_claim_clears_the_progress_of_the_run_before
                an_item_due_long_ago_is_claimed
                lanes_kinds_and_orgs_are_no_part_of_the_order
                a_delayed_item_hides_nothing_behind_it
            }
            claim_again {
                the_same_token_again_answers_the_same_items
                the_same_token_again_answers_what_it_still_holds
                a_token_that_holds_nothing_claims
                a_claim_is_answered_again_on_a_lane_paused_meanwhile
                each_claim_carries_its_own_token
                the_fencing_number_rises_at_every_claim_and_never_falls
            }
            lanes {
                a_paused_lane_is_passed_over_until_resumed
                other_lanes_of_the_claim_go_on_beside_a_paused_one
                a_pause_takes_enqueues_and_leaves_claims_alone
                paused_lanes_are_listed_with_their_reasons
                only_a_paused_lane_is_resumed
                a_tenant_cap_binds_within_one_claim_and_passes_over_to_others
                a_tenant_cap_counts_the_claims_of_others
                a_tenant_cap_counts_each_lane_by_itself
                a_tenant_cap_keeps_to_the_limit_and_the_order
                a_lower_priority_waits_while_a_higher_one_is_due_and_not_in_a_lane_of_its_own
                a_tenants_one_item_behind_anothers_thousand_starts_first_under_a_cap
                a_capped_claim_is_answered_again_by_its_token
            }
            settle {
                a_completed_item_is_done_and_keeps_its_result
                a_completion_without_a_result_keeps_none
                a_failed_item_is_queued_after_its_delay_with_the_attempt_spent
                a_buried_item_is_a_dead_letter_that_is_owed_an_audit_entry
                a_retry_with_no_attempt_left_is_a_burial
                a_parked_item_is_queued_after_its_delay_with_the_attempt_given_back
                a_released_item_is_queued_after_its_delay_with_the_attempt_given_back
                a_release_without_delay_is_claimable_at_once
                a_spent_attempt_shows_in_the_next_claim
                a_failure_code_of_the_handlers_own_is_kept
                the_newest_errors_are_kept
                a_completion_after_the_lease_passed_is_refused
                a_failure_after_the_lease_passed_is_refused
                a_burial_after_the_lease_passed_is_refused
                a_park_after_the_lease_passed_is_refused
                a_release_after_the_lease_passed_gives_the_attempt_back
                a_completion_just_before_the_end_of_the_lease_is_accepted
                a_token_that_never_was_is_refused
                an_item_that_is_not_there_is_refused
                a_batch_of_settles_is_answered_in_its_order
                an_empty_batch_of_settles_is_answered_with_nothing
                a_batch_of_five_hundred_is_settled_whole
            }
            settle_again {
                a_settle_asked_again_is_already_settled_and_changes_nothing
                a_settle_is_remembered_after_the_lease_would_have_ended
                another_settle_by_the_same_token_changes_nothing
                a_settle_is_remembered_while_a_later_claim_runs
                a_settle_is_forgotten_once_a_later_claim_was_settled
                the_sweep_is_no_settle
                a_settle_is_remembered_after_an_operators_retry
                a_batch_asked_again_counts_each_settle_once
            }
            fence {
                late_calls_of_a_previous_holder_change_no_column
                late_calls_under_the_same_worker_name_change_no_column
                a_swept_claim_is_refused_everything_even_a_release
                the_sweep_takes_what_expired_and_nothing_that_moved_on
                a_claim_renewed_just_in_time_is_left_alone
                a_hold_lasts_as_long_as_it_is_renewed_through_any_handle
            }
            renew {
                a_renewal_moves_the_end_of_the_lease_and_nothing_else
                the_lease_ends_when_the_last_renewal_says
                a_renewed_claim_outlives_its_first_lease
                a_renewal_after_the_lease_passed_is_refused
                a_renewal_with_a_token_that_never_was_is_refused
                a_renewal_of_a_settled_claim_is_refused
                a_renewal_may_be_repeated
                a_renewal_stores_progress
                a_renewal_learns_of_a_requested_cancel_and_extends
                a_batch_of_renewals_is_answered_in_its_order
                an_empty_batch_of_renewals_is_answered_with_nothing
                a_batch_of_five_hundred_is_renewed_whole
            }
            attempts {
                deferrals_without_number_spend_no_attempt
                releases_without_number_spend_no_attempt
            }
            sweep {
                an_expired_claim_is_queued_again_with_the_attempt_spent
                a_live_lease_is_left_alone
                what_is_not_claimed_is_left_alone
                an_exhausted_item_becomes_a_dead_letter_that_is_returned
                a_dead_letter_whose_answer_was_lost_is_found_as_unaudited
                a_poison_item_ends_after_its_attempts
                an_expired_run_that_was_cancelled_ends_as_cancelled
                one_sweep_tells_its_findings_apart
                a_sweep_takes_no_more_than_its_limit_and_the_lowest_ids_first
                recovered_items_are_spread_by_position
                a_large_batch_is_recovered_whole
                only_the_named_org_is_swept
            }
            audit {
                dead_letters_are_owed_an_audit_entry_lowest_id_first
                a_marked_dead_letter_is_owed_nothing
                several_dead_letters_are_marked_at_once
                a_mark_for_another_claim_is_not_taken
                a_mark_that_comes_after_a_retry_is_not_taken
                what_is_not_failed_is_not_marked
                cancelled_and_orphaned_items_are_owed_nothing
                orgs_with_something_due_are_named_once_in_order
                an_org_is_not_named_once_its_maintenance_was_done
                a_claimed_item_whose_org_is_gone_is_failed_as_an_orphan
                only_the_token_that_holds_an_item_may_fail_it_as_an_orphan
                expired_claims_of_an_org_that_is_gone_are_failed_as_orphans
                orphans_do_not_outlast_retention
            }
            cancel {
                a_queued_item_that_is_cancelled_has_ended
                a_running_item_that_is_cancelled_goes_on_until_its_holder_learns
                a_cancel_is_requested_once
                a_finished_item_is_not_cancelled
                a_cancel_may_be_repeated
                an_unknown_item_is_not_cancelled
                a_cancelled_run_that_fails_ends_as_cancelled
                a_cancelled_run_that_parks_ends_as_cancelled
                a_cancelled_run_that_is_released_ends_as_cancelled
                a_cancelled_run_released_after_its_lease_ends_as_cancelled
                done_beats_a_requested_cancel
                a_dead_letter_beats_a_requested_cancel
                a_retry_puts_a_dead_letter_back_as_if_it_were_new
                a_retry_clears_the_cancel_request
                a_cancelled_item_can_be_retried
                what_has_not_failed_is_not_retried
                a_retry_may_be_repeated
                a_retried_item_that_dies_again_is_owed_an_entry_again
            }
            reading {
                an_item_is_found_by_its_id_and_by_its_key
                an_item_that_is_not_there_is_not_found
                a_list_shows_the_highest_ids_first_and_whole_rows
                a_list_is_read_page_by_page
                pages_join_to_the_whole_however_rare_what_passes
                a_list_goes_on_while_items_move
                a_list_is_bounded_whatever_is_asked
                a_list_shows_one_status
                a_list_shows_one_lane_and_one_kind
                a_list_shows_one_org
                what_one_handle_writes_the_other_reads
            }
            gauges {
                an_empty_store_gauges_nothing
                each_lane_counts_what_is_ready_delayed_and_claimed_in_every_org
                finished_items_are_not_waiting
                the_oldest_ready_item_is_aged_from_when_it_was_due
                parked_and_failed_items_are_delayed_and_not_ready
                dead_letters_count_and_cancelled_or_orphaned_items_do_not
                claims_whose_lease_is_over_are_counted
                gauges_change_nothing
                counts_stop_at_their_bound
            }
            purge {
                finished_items_go_after_retention_in_every_org
                queued_and_claimed_items_stay_however_old
                retention_counts_from_the_last_write
                a_dead_letter_stays_until_its_audit_entry_is_written
                cancelled_and_orphaned_items_go_after_retention
                a_purge_deletes_no_more_than_its_limit
            }
            hints {
                a_hint_is_remembered_since_the_subscription
                a_hint_reaches_who_waits_for_it
                a_hint_stays_when_the_wait_for_it_is_dropped
                any_number_of_hints_count_as_one
                a_hint_is_of_its_lane
                each_lane_of_a_batch_is_hinted
                an_item_that_exists_hints_nobody
                only_the_lanes_that_gained_an_item_are_hinted
                an_item_settled_back_without_delay_hints_its_lane
                an_item_that_is_not_due_after_its_settle_hints_nobody
                a_recovered_item_that_is_due_hints_its_lane
                a_retried_item_hints_its_lane
                a_resumed_lane_is_hinted
            }
            text {
                a_payload_comes_back_byte_for_byte
                a_result_comes_back_byte_for_byte
                a_note_comes_back_byte_for_byte
                a_failure_comes_back_byte_for_byte
                a_progress_note_comes_back_byte_for_byte
                a_pause_reason_comes_back_byte_for_byte
                names_of_full_length_come_back
                a_traceparent_comes_back_or_stays_absent
            }
            tenants {
                enqueue_keeps_to_its_org
                get_keeps_to_its_org
                get_by_key_keeps_to_its_org
                list_keeps_to_its_org
                cancel_keeps_to_its_org
                retry_keeps_to_its_org
                requeue_stale_keeps_to_its_org
                orphan_stale_keeps_to_its_org
                unaudited_keeps_to_its_org
                mark_audited_keeps_to_its_org
                a_settle_with_the_right_token_and_the_wrong_org_is_refused
                the_wrong_org_is_refused_beside_the_right_one
                a_settle_asked_again_with_the_wrong_org_is_refused
                a_renewal_with_the_right_token_and_the_wrong_org_is_refused
                events_keep_to_their_org
                an_outbox_row_stays_with_its_first_org
                markers_keep_to_their_org
                schedules_keep_to_their_org
                sessions_keep_to_their_org
                a_ticket_opens_its_org
            }
            events {
                entries_are_numbered_from_one_without_gaps
                an_entry_comes_back_as_it_was_appended
                appending_again_takes_no_number_and_changes_nothing
                entries_are_read_in_order_from_a_number_on
            }
            markers {
                the_first_attempt_enters_and_keeps_others_out
                the_same_attempt_enters_again
                an_attempt_is_taken_over_after_its_lease_under_the_first_target
                an_attempt_that_was_taken_over_ends_nothing
                a_finished_request_is_answered_from_its_record
                a_released_request_is_entered_at_once_under_the_first_target
                a_marker_that_is_not_there_is_not_ended
                a_key_used_for_another_request_is_refused
                a_marker_is_of_its_org_user_and_key
                markers_go_after_retention_and_not_after_their_lease
                a_purge_of_markers_deletes_no_more_than_its_limit
                a_key_is_refused_beyond_its_limit_of_bytes
            }
            outbox {
                a_row_comes_back_as_it_was_appended
                appending_again_leaves_the_row_alone
                the_oldest_ids_go_first_up_to_the_limit
                a_row_younger_than_the_grace_is_left_to_its_writer
                a_row_is_handed_out_again_after_a_growing_wait
                a_done_row_is_handed_out_no_more
                a_row_that_fails_is_tried_again_until_it_is_dead
                a_done_row_does_not_fail
                a_row_committed_late_is_not_skipped
                the_lag_is_the_age_of_the_oldest_pending_row
                rows_go_after_retention_from_when_they_ended
            }
            schedules {
                a_schedule_comes_back_as_it_was_put
                putting_again_replaces_the_definition_and_keeps_how_far_it_came
                a_new_timing_begins_with_the_tick_that_it_is_given
                a_name_is_of_one_schedule_of_the_org
                schedules_are_listed_in_id_order_up_to_the_limit
                what_is_due_is_read_across_all_orgs_page_by_page
                what_is_not_due_says_when_the_first_of_it_is
                a_removed_schedule_is_gone_and_its_items_stay
                a_tick_moves_the_schedule_and_enqueues_its_items
                a_tick_that_somebody_else_made_writes_nothing
                no_tick_is_made_of_a_definition_that_has_changed_meanwhile
                a_schedule_that_is_not_there_makes_no_item
                an_item_of_a_tick_that_exists_is_left_alone
                a_tick_is_not_made_again_once_its_item_has_finished
                ticks_without_items_move_the_schedule_alone
                a_tick_over_an_unfinished_item_makes_none_where_that_is_asked_for
                a_tick_over_an_unfinished_item_makes_one_otherwise
                an_item_beside_the_ticks_moves_none_of_them
                a_paused_schedule_makes_no_tick_until_resumed
                a_pause_keeps_its_beginning_and_takes_a_new_reason
                an_item_beside_the_ticks_is_made_in_a_pause_as_well
                what_is_not_declared_any_more_is_marked_once_and_goes_on
                a_tick_hints_the_lanes_of_its_items
            }
            workers {
                eight_workers_make_one_item_of_each_tick
            }
            liveness {
                a_beat_comes_back_as_it_was_published
                a_beat_replaces_the_last_one
                a_worker_that_is_silent_for_too_long_is_not_live
                a_removed_worker_is_not_live
                live_workers_are_listed_by_id_up_to_the_limit
            }
            orgs {
                an_org_comes_back_as_it_was_created
                an_org_is_created_once
                a_deleted_org_is_marked_once_and_can_still_be_read
                an_org_that_is_not_there_is_not_deleted
                live_orgs_are_read_in_id_order_page_by_page
                the_items_of_a_deleted_org_stay
                a_membership_is_of_its_org_and_user
                a_membership_is_replaced_by_the_next_one
                a_membership_ends_once_and_may_begin_again
            }
            credentials {
                a_session_is_found_by_its_secret_until_it_ends
                a_session_that_is_created_again_stays_as_it_was
                a_session_that_nobody_uses_for_too_long_is_over
                a_session_in_use_is_over_when_its_time_is
                a_session_is_noted_as_seen_once_a_minute_at_most
                a_session_read_by_its_id_is_not_used
                the_sessions_of_a_user_in_an_org_end_together
                sessions_that_are_over_are_purged_and_living_ones_stay
                a_purge_of_sessions_deletes_no_more_than_its_limit
                a_ticket_is_redeemed_once
                of_many_who_redeem_a_ticket_one_does
                a_ticket_is_worthless_after_its_time
                tickets_that_are_over_are_purged_and_others_stay
                a_purge_of_tickets_deletes_no_more_than_its_limit
            }
            races {
                of_two_claimers_of_one_item_one_wins
                claimers_in_numbers_take_each_item_once_and_keep_to_their_limits
                claimers_at_once_stay_under_the_tenant_cap
                a_cancel_and_a_claim_agree
                a_hundred_producers_of_one_key_make_one_item
                producers_of_one_id_make_one_item
                one_token_asked_for_twice_at_once_claims_once
                two_orgs_that_enqueue_one_id_make_one_item
            }
            races_settle {
                a_completion_and_its_expiry_have_one_outcome
                a_last_failure_and_its_expiry_make_one_dead_letter
                a_completion_and_a_release_have_one_outcome
                a_renewal_and_the_sweep_agree
                a_cancel_and_a_completion_agree
                two_sweeps_at_once_move_each_item_once
                batches_in_opposite_orders_do_not_block_each_other
            }
            races_beside {
                of_ten_attempts_at_once_one_enters
                entries_appended_at_once_are_numbered_without_gaps
                relays_at_once_take_each_row_once
                of_eight_that_make_one_tick_one_does
            }
        }
    };
    (cases of $harness:ty; $($subject:ident { $($case:ident)* })*) => {
        type ContractHarness = $harness;
        $(
            mod $subject {
                $(
                    #[test]
                    fn $case() {
                        $crate::contract::run::<super::ContractHarness>(
                            $crate::contract::$subject::$case,
                        );
                    }
                )*
            }
        )*
    };
}
