"""All forgeries, and which of them every run of the tests tries."""

from __future__ import annotations

import tests.contribute.forged_claims  # noqa: F401  (each adds to the catalogue)
import tests.contribute.forged_figures  # noqa: F401
import tests.contribute.forged_files  # noqa: F401
import tests.contribute.forged_ledgers  # noqa: F401
import tests.contribute.forged_records  # noqa: F401
import tests.contribute.forged_replays  # noqa: F401
import tests.contribute.forged_results  # noqa: F401
from tests.contribute.catalogue import FORGERIES

__all__ = ["ALWAYS", "FORGERIES", "REPLAYED"]

ALWAYS = {
    "agreement of how runs began": "one_arm_drew_other_completions",
    "agreement of the start's scores": "the_start_was_worse_in_one_run",
    "agreement of transfers": "the_start_transferred_worse_in_all_runs_of_a_task",
    "archive": "a_script_stands_behind_the_archive",
    "archive's names": "a_file_is_smuggled_into_the_archive",
    "badges": "a_badge_of_another_entry",
    "bytes of a record": "whole_numbers_are_spelled_as_fractions",
    "bytes of item vectors": "a_zero_has_a_sign",
    "chain of a ledger": "a_line_of_the_ledger_is_edited",
    "clock of a ledger": "a_run_ended_in_the_year_9999",
    "clock of a record": "an_attempt_ends_in_the_future",
    "completions": "an_answer_is_a_novel",
    "conditions": "another_learning_rate_is_called_closed",
    "conditions that no track has": "a_condition_that_no_track_has",
    "copies": "anothers_curve_is_copied",
    "copies of other weights": "anothers_curve_is_copied_but_for_a_bit",
    "copies of an arm": "the_placebo_arm_is_a_copy_of_the_real_one",
    "cost": "a_cheaper_run_is_claimed",
    "curve": "the_last_score_is_raised",
    "digests of files": "item_vectors_are_edited",
    "digests of updates": "digests_of_fewer_updates",
    "events of a ledger": "a_run_ended_that_nobody_planned",
    "fields of an event": "an_event_has_a_field_more",
    "figures": "a_norm_below_zero",
    "figures among themselves": "a_mean_that_no_completions_have",
    "files": "a_file_is_smuggled_in",
    "id of a record": "a_score_is_edited",
    "machine": "a_processor_has_a_driver",
    "machine that began": "a_run_that_never_moved_began_elsewhere",
    "model": "other_weights_bear_the_name",
    "names given twice": "a_record_says_two_things",
    "one entry": "a_run_of_another_entry_is_mixed_in",
    "pickles": "item_vectors_are_a_pickle",
    "places": "two_seeds_change_places",
    "plan": "a_plan_lists_seeds_of_its_own",
    "plans before": "an_earlier_plan_is_of_another_board",
    "protocol": "a_protocol_is_invented",
    "reach of a replay": "epochs_that_nobody_can_make_again",
    "recipe": "another_recipe_is_called_ppo",
    "record and ledger": "the_record_is_another_file_than_the_run_left",
    "release": "a_later_crlbench_made_it",
    "runs that are missing": "a_bad_seed_is_dropped",
    "runs that are missing, to verify": "a_bad_seed_is_dropped_from_the_archive",
    "runs that were repeated": "a_seed_is_drawn_until_it_pleases",
    "scores and completions": "samples_are_paid_more_than_their_items",
    "scores that are paid": "half_of_an_answer_is_paid",
    "seconds": "a_run_that_took_no_time",
    "seeds": "a_luckier_seed_is_taken",
    "splits": "a_split_is_scored_higher",
    "submission": "the_submissions_format_is_a_fraction",
    "task": "a_version_of_a_task_is_invented",
    "track": "a_track_is_invented",
    "verdicts": "a_wrong_sample_is_paid",
}
"""By the kind of rule that catches it: one of each. The others of a kind are slow tests."""

REPLAYED = (
    "losses_are_invented",
    "other_weights_came_out",
    "better_answers_are_invented",
    "another_processor_made_it_all_up",
    "a_continued_run_lost_otherwise",
)
"""Of each kind that a replay alone catches, one: the others, seconds each, are left to .ci/full."""
