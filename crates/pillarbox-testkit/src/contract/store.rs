//! The contract of stores, as described at [`Store`]: one check for each sentence.
//!
//! A store's test implements [`StoreHarness`] and calls [`store_contract!`](crate::store_contract), which
//! writes one test for each promise. If a database can't do something (two open transactions, a row that
//! can't be read), its harness says so and the checks adapt. There is no second suite.
//!
//! Leases and delays are short and real, because a store uses its database's clock.

// A check ends with a panic at the first broken promise.
#![allow(clippy::unwrap_used)]

pub mod administration;
pub mod backpressure;
pub mod blocking;
pub mod delivering;
pub mod discovery;
pub mod dying;
pub mod enqueueing;
pub mod history;
pub mod lanes;
pub mod limits;
pub mod lives;
pub mod logging;
pub mod notices;
pub mod parking;
pub mod records;
pub mod recovering;
pub mod releasing;
pub mod reprocessing;
pub mod samples;
pub mod scene;
pub mod settling;
pub mod versions;

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits};
use pillarbox_relay::{
    check::versions::AggregateVersions,
    dead::DeadLetters,
    event_log::EventLog,
    notice::Notices,
    pressure::Gauge,
    reprocess::Schedules,
    store::{Admin, Store, records::Records},
};

/// One fresh, migrated outbox, and the access that an application or an operator has.
#[async_trait]
pub trait StoreHarness: Send + Sync {
    fn store(&self) -> Arc<dyn Store>;

    /// The same outbox, opened again as by another process. If only one process is possible, the same store.
    fn another(&self) -> Arc<dyn Store>;

    fn admin(&self) -> Arc<dyn Admin>;

    /// `None`: this store has no API for dead letters.
    fn dead_letters(&self) -> Option<Arc<dyn DeadLetters>>;

    fn records(&self) -> Arc<dyn Records>;

    /// `None`: this database can't look up the versions of aggregates.
    fn versions(&self) -> Option<Arc<dyn AggregateVersions>>;

    /// `None`: this database can't limit producers.
    fn gauge(&self) -> Option<Arc<dyn Gauge>>;

    /// `None`: this database has no event log.
    fn event_log(&self) -> Option<Arc<dyn EventLog>>;

    /// Takes a position of the event log and never uses it, like a settlement that is rolled back. False: this
    /// database loses no positions.
    async fn lose_log_position(&self) -> bool;

    /// A transaction of the application.
    async fn begin(&self) -> Box<dyn OpenTransaction>;

    /// Whether a second transaction can write while the first one has written and is still open.
    fn concurrent_transactions(&self) -> bool;

    /// The event's row as it is stored, read without the store.
    async fn row(&self, id: EventId) -> Option<Row>;

    /// Makes a committed event's row unreadable, preferably with a payload that is not JSON. False: this
    /// database can't contain such a row.
    async fn corrupt(&self, id: EventId) -> bool;
}

fn notices(harness: &dyn StoreHarness) -> Notices {
    Notices::new(harness.records())
}

fn schedules(harness: &dyn StoreHarness) -> Schedules {
    Schedules::new(harness.records())
}

/// An open transaction of the application.
#[async_trait]
pub trait OpenTransaction: Send {
    async fn enqueue(&mut self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError>;
    async fn commit(self: Box<Self>);
    async fn rollback(self: Box<Self>);
}

/// The state of an event as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `pending`, `published`, `failed`, `held`, `delayed` or `dead`.
    pub status: String,
    /// Failures charged to the event. A successful publish adds none.
    pub attempts: u32,
    pub last_error: Option<String>,
    pub first_attempt_at: bool,
    pub last_attempt_at: bool,
    pub published_at: bool,
    /// The reason in its dead letter, if there is one.
    pub dead_reason: Option<String>,
}

/// One test for each promise, each on a fresh outbox. `$make` is an async function that returns
/// `Option<Arc<dyn StoreHarness>>`, `None` if the server is not installed.
#[macro_export]
macro_rules! store_contract {
    ($make:path) => {
        $crate::store_contract! { @tests $make:
            discovery::a_committed_event_is_read_once,
            discovery::a_rolled_back_event_is_never_read,
            discovery::a_late_commit_is_not_missed,
            discovery::a_rollback_between_commits_leaves_no_gap,
            discovery::pages_of_any_size_keep_the_order_of_seq,
            discovery::a_new_reader_returns_only_pending_events,
            discovery::a_reader_starts_at_the_low_mark,
            discovery::a_reader_returns_only_its_lanes,
            discovery::every_event_belongs_to_its_keys_lane,
            discovery::decided_reaches_the_last_event,
            discovery::events_committed_between_two_pages_are_read,
            discovery::readers_beside_busy_writers_miss_nothing,
            limits::a_page_keeps_its_limit_of_bytes,
            limits::headers_count_against_the_limit_of_bytes,
            limits::a_page_has_one_event_however_large,
            limits::a_too_large_payload_is_unreadable_and_stops_nothing,
            limits::a_corrupt_row_is_unreadable_and_stops_nothing,
            settling::published_events_stay_published,
            settling::a_failed_event_records_its_error_and_waits,
            settling::a_held_event_counts_no_attempt,
            settling::a_delayed_event_counts_no_attempt,
            settling::a_dead_event_keeps_its_reason,
            settling::settling_twice_is_the_same_as_once,
            settling::later_results_do_not_change_a_published_event,
            settling::a_stale_epoch_is_fenced_and_writes_nothing,
            settling::a_mixed_batch_is_written_whole,
            logging::a_delivery_is_appended_with_all_its_fields,
            logging::only_events_with_a_log_are_appended,
            logging::a_long_correlation_id_is_searched_by_its_beginning,
            logging::a_delivery_is_appended_once,
            logging::each_death_is_appended_and_the_delivery_after_it,
            logging::a_fenced_settlement_appends_nothing,
            logging::a_mixed_batch_is_appended_with_its_settlement,
            logging::pages_of_the_log_have_every_entry_once,
            logging::a_follower_continues_after_its_position,
            logging::a_reader_of_an_empty_log_gets_a_position,
            logging::a_position_that_nobody_used_is_passed,
            logging::relays_that_settle_together_leave_no_gap,
            history::a_log_filter_chooses,
            history::pages_of_a_list_stay_as_they_are,
            lives::the_life_of_an_event_is_told,
            lives::failures_before_a_delivery_stay_in_the_log,
            lives::an_entry_says_who_delivered_it,
            history::a_page_of_the_history_is_bounded_in_bytes,
            history::positions_that_were_passed_over_are_no_work,
            history::of_many_entries_the_latest_are_counted,
            history::entries_are_counted_by_hour_and_type,
            history::old_entries_expire_and_readers_are_told,
            parking::a_failed_event_is_due_after_its_delay_with_the_held_ones,
            parking::asking_again_returns_them_again,
            parking::a_failing_key_holds_back_no_other,
            parking::due_keeps_its_limits,
            parking::pages_of_due_keys_bring_each_once,
            parking::a_key_that_becomes_due_later_is_behind,
            parking::due_is_only_for_the_lanes_given,
            parking::a_delayed_event_does_not_hold_its_key,
            parking::a_delayed_event_can_fail_like_any_other,
            parking::a_keys_due_events_come_together_and_in_order,
            parking::due_returns_the_time_until_the_next_one,
            parking::a_corrupt_parked_row_is_unreadable_and_frees_its_key,
            parking::a_key_with_failing_or_held_events_is_blocked,
            releasing::the_key_is_free_when_the_last_one_leaves,
            releasing::while_some_remain_the_first_is_due_at_once,
            releasing::a_death_frees_the_key_too,
            releasing::an_earlier_event_that_comes_late_goes_first,
            releasing::a_head_that_fails_again_keeps_the_others_waiting,
            blocking::a_blocked_key_waits,
            blocking::a_blocking_event_stops_only_later_events_of_its_key,
            blocking::a_discarded_letter_frees_its_key,
            blocking::a_replayed_blocking_event_goes_first,
            blocking::a_letter_that_blocks_its_key_does_not_expire,
            blocking::where_the_latest_is_enough_the_older_are_discarded,
            blocking::the_latest_alone_stays,
            dying::a_dead_letter_has_all_fields,
            dying::only_the_latest_failures_are_kept,
            dying::an_event_that_died_untried_has_no_failure,
            dying::the_same_failure_is_one_group,
            dying::a_filter_chooses,
            dying::letters_are_listed_the_latest_first,
            recovering::a_replayed_event_is_tried_again_in_order,
            recovering::parked_events_wait_behind_a_replayed_event,
            recovering::a_replayed_event_can_die_again,
            recovering::a_replay_as_new_is_a_linked_copy,
            recovering::a_discarded_letter_is_done_with,
            recovering::settling_a_death_again_opens_no_letter,
            recovering::an_action_takes_the_oldest_up_to_its_limit,
            recovering::old_letters_expire,
            notices::open_letters_are_counted_by_cause,
            notices::one_relay_sends_a_notice,
            notices::sent_notices_are_recorded,
            delivering::a_claimed_delivery_is_claimed_again_only_after_its_lease,
            delivering::a_failed_delivery_comes_again_later_or_never,
            delivering::a_later_notice_waits_for_an_earlier_one,
            notices::an_outcome_counts_replayed_and_discarded_letters,
            notices::a_replayed_event_that_still_waits_is_no_recovery,
            notices::a_trouble_has_one_notice_and_one_when_it_ends,
            notices::a_loss_has_a_notice_whenever_it_grows_and_none_when_it_is_no_longer_shown,
            notices::old_records_of_ended_causes_are_deleted,
            samples::a_notice_names_one_letter_and_shows_no_payload,
            samples::a_letter_whose_row_is_broken_is_named_without_its_aggregate,
            records::a_write_needs_the_version_it_replaces,
            records::of_several_writers_one_succeeds,
            records::changes_are_written_all_or_none,
            records::a_holder_whose_lease_ended_writes_nothing,
            records::a_queue_is_claimed_in_order,
            records::records_are_read_latest_first,
            records::the_record_that_was_due_first_is_claimed_first,
            records::expired_records_are_deleted,
            reprocessing::one_relay_runs_a_schedule,
            reprocessing::only_replayable_letters_are_candidates,
            reprocessing::a_letter_is_a_candidate_so_many_times,
            versions::the_latest_version_is_one_that_was_let_through,
            versions::an_index_on_versions_is_made_once,
            backpressure::new_classes_replace_the_old_ones,
            backpressure::pending_events_are_counted_by_topic,
            backpressure::figures_have_their_age,
            lanes::no_two_relays_hold_a_lane,
            lanes::relays_taking_at_the_same_time_never_overlap,
            lanes::an_expired_lane_can_be_taken_and_its_epoch_rises,
            lanes::a_heartbeat_renews_the_lease,
            lanes::a_stale_heartbeat_renews_nothing,
            lanes::the_census_counts_and_ranks_the_living,
            lanes::a_release_hands_the_low_mark_on,
            lanes::a_heartbeat_hands_the_low_mark_on,
            lanes::a_lane_no_longer_held_is_not_released,
            lanes::leaving_frees_everything,
            enqueueing::every_field_survives_the_round_trip,
            enqueueing::a_large_payload_survives_byte_for_byte,
            enqueueing::the_same_id_is_written_once,
            enqueueing::the_same_id_in_one_batch_is_written_once,
            enqueueing::a_refused_event_leaves_the_transaction_usable,
            enqueueing::the_admin_writes_all_or_none,
            enqueueing::many_events_keep_their_order,
            administration::migrating_again_is_harmless,
            administration::a_migrated_outbox_passes_its_check,
            administration::status_counts_each_state,
            administration::a_sample_counts_the_keys_that_are_held,
            administration::a_sample_counts_what_status_counts,
            administration::a_sample_of_a_large_backlog_stays_cheap_and_says_so,
            administration::the_latest_events_are_listed,
            administration::the_low_mark_is_below_pending_events,
            administration::status_shows_relays_and_lanes,
            administration::status_shows_what_a_relay_reports,
            administration::the_kinds_of_the_latest_events_are_listed,
            administration::a_commit_ends_the_wait_early,
            administration::statements_are_counted,
        }
    };
    (@tests $make:path: $($module:ident :: $name:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(harness) = $make().await {
                    $crate::contract::store::$module::$name(harness).await;
                }
            }
        )+
    };
}
