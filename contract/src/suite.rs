//! The lists of promises.

/// Makes each promise a test. `$make` is the path, from `crate` on, of an async function that makes a
/// [`Fixture`](crate::Fixture) over a fresh, empty store.
#[macro_export]
macro_rules! suite {
    ($make:path) => {
        $crate::promises! { $make;
            checks: all_or_nothing, mixed_algorithms, equal_charges_are_summed,
                equal_charges_beyond_the_limit_are_one_refusal, a_shadow_never_binds,
                a_refused_shadow_holds_up_nothing,
                a_shadow_is_charged_if_it_passes_and_the_check_is_admitted,
                a_shadow_is_judged_after_its_own_charge, cost_0_reads, over_capacity,
                peek_spends_nothing, a_denial_spends_nothing, up_to_takes_what_is_free,
                policies_and_keys_are_apart, the_widest_and_largest_quota,
                a_log_above_10_000_rounds_times_up, short_windows_are_never_rounded;
            trials: a_trial_never_binds, a_trial_is_charged_whatever_the_live_charges_decide,
                a_trial_shows_what_a_shadow_cannot, a_trial_is_judged_after_its_own_charge,
                a_peek_spends_no_trial, a_trial_is_refunded_and_settled_with_its_check,
                a_blocked_trial_is_refused_and_denies_nothing,
                trials_of_several_keys_are_spent_also_if_a_later_key_denies,
                a_trial_in_flight_is_a_shadow;
            refunds: a_refund_gives_back_what_still_weighs, a_late_refund_gives_nothing,
            a_refund_takes_nothing_of_charges_after_the_window_changed_and_changed_back,
            a_refund_finds_charges_of_later_periods_after_a_change,
            a_refund_tells_changes_within_one_microsecond_apart,
                a_log_gives_back_the_very_request, a_bucket_gives_back_what_is_unpaid,
                a_counter_gives_back_to_the_period_before, settle_down, settle_up,
                a_settlement_refunds_before_it_charges, settle_far_beyond_the_limit,
                a_log_of_10_000_records_rounds_times_up,
                a_kept_reservation_stays_charged, reset_forgets,
                a_refund_from_before_a_reset_gives_back_at_most_its_charge;
            concurrent: units_in_flight_are_bounded, a_lost_unit_expires,
                a_late_release_frees_no_other_unit, a_longer_expiry_is_for_new_units,
                a_rounded_unit_is_released_until_it_expires, in_flight_and_rate_are_one_check,
                a_raised_concurrency_acts_at_once, a_lowered_concurrency_lets_work_end,
                a_renewal_keeps_its_unit, an_old_unit_stays_among_many_released,
                a_unit_is_released_behind_a_block;
            blocks: a_penalty_spends_beyond_the_limit, a_penalty_can_be_refunded,
                a_penalty_of_a_bucket_is_at_most_a_burst_and_a_limit,
                a_block_refuses_until_it_ends, a_block_of_a_key_that_has_spent_nothing,
                a_block_waits_for_the_later_of_its_end_and_the_algorithm,
                a_block_is_one_of_a_policy_and_a_key, the_later_of_two_blocks_ends,
                unblock_lifts_a_block_and_keeps_the_units, reset_lifts_a_block,
                the_keys_that_were_found_are_counted,
                several_keys_are_blocked_in_one_call, a_blocked_charge_denies_its_check,
                a_blocked_shadow_is_refused_and_denies_nothing, cost_0_passes_a_block,
                a_block_keeps_over_capacity, forced_units_and_refunds_count_behind_a_block,
                a_long_log_is_kept_behind_a_block, a_change_of_the_quota_keeps_a_block,
                a_clock_set_back_does_not_lengthen_a_block, a_block_outlasts_every_window,
                the_duration_of_a_block_is_bounded;
            changes: a_raised_limit_denies_nothing, a_lowered_limit_acts_at_once,
                a_limit_that_crosses_10_000_keeps_what_is_spent,
                a_wider_window_keeps_no_old_unit_longer, a_narrower_window_lets_go_sooner,
                a_window_below_both_lives_lets_go_sooner,
                a_narrower_period_forgets_nothing, a_wider_period_counts_new_units_to_its_end,
                units_of_two_earlier_windows_leave_with_the_later_one, many_windows_forget_nothing,
                a_charge_from_before_a_change_of_the_window_gives_back_nothing,
                an_open_bucket_ends_under_the_new_window,
                an_open_bucket_ends_under_a_wider_window,
                a_refund_after_an_open_bucket_has_ended_finds_its_own_units,
                a_refund_under_another_window_closes_no_bucket,
                a_period_refunded_to_nothing_forgets_nothing,
                what_has_refilled_is_kept, a_faster_rate_acts_at_once,
                a_burst_that_jumps_moves_no_debt, a_debt_ends_when_its_own_rule_has_paid_it,
                a_forced_charge_forgives_no_debt,
                a_lowered_burst_keeps_the_debt, windows_that_alternate_add_nothing;
            own_quotas: each_key_has_its_own_limit, a_changed_row_keeps_what_is_spent,
                equal_charges_need_one_quota, a_wait_follows_its_own_quota,
                a_refund_and_a_settlement_are_under_the_own_quota,
                the_policy_does_not_change_an_own_quota;
            key_quotas: the_quota_of_a_key_applies_to_no_other,
                a_key_quota_that_begins_or_ends_keeps_what_is_spent,
                a_key_quota_wins_over_the_quota_of_a_charge,
                a_refund_and_a_settlement_are_under_the_key_quota,
                a_settlement_keeps_the_window_of_the_key_quota;
            leases: a_lease_takes_half_of_what_is_free_beyond_its_cost,
                the_leases_of_one_check_see_each_other, a_lease_is_all_or_nothing,
                a_lease_is_refunded_and_settled_like_a_charge,
                a_mark_has_the_debt_of_a_token_bucket;
            waits: a_wait_is_exact, the_longest_wait_binds, the_fewest_units_bind,
                a_full_key_waits_for_nothing, time_that_runs_backward_returns_nothing,
                a_clock_that_was_set_back_heals_within_a_window,
                a_clock_is_set_back_beyond_a_window,
                a_charge_while_time_runs_backward_counts;
            vectors: token_bucket, sliding_log_weighted, boundary_of_the_fixed_window,
                boundary_of_the_sliding_log, sliding_counter_estimate,
                full_bursts_either_side_of_an_edge;
        }
    };
}

/// Makes a test of each promise of a store that counts [leased quotas](plimsoll::Quota::leased). [`suite!`] has the
/// other promises.
#[macro_export]
macro_rules! shared_suite {
    ($make:path) => {
        $crate::promises! { $make;
            shared: a_leased_quota_is_counted_for_longer,
                what_a_leased_quota_has_spent_is_refunded,
                a_refund_comes_in_time_until_the_lease_is_over,
                a_lease_that_begins_keeps_no_old_unit_longer, a_lease_that_ends_lets_go_sooner,
                a_lease_of_a_bucket_moves_no_debt;
        }
    };
}

/// Makes single promises tests of a store.
#[doc(hidden)]
#[macro_export]
macro_rules! promises {
    ($make:path; $($group:ident: $($promise:ident),+;)+) => {
        $($(
            #[test]
            fn $promise() {
                $crate::run(async { $crate::$group::$promise($make().await).await });
            }
        )+)+
    };
}
