"""The fault list: every way in which environments (A), worker processes (B) and the trainer (C) fail, and the
tests that show what becomes of it.

Each has a deadline of a fraction of a second where one must be waited for, waits for events and never for a
time, and compares the hash of the data with that of a run without the fault wherever data is concerned. Under
`on_fault=restart` if nothing else is said. The corners on other backends are in test_faults_backends.py, with
the full matrix (`pytest -m faults_full`); the soak (`pytest -m soak`) is in test_faults_soak.py.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

RESTART = "faults_env::test_restart_gives_the_data_of_a_run_without_the_fault"
RAISE = "faults_env::test_raise_stops_at_once_with_one_named_error"
DROP = "faults_env::test_drop_gives_up_the_trials_of_the_fault_and_no_other"
OTHERS = "faults_backends::test_every_policy_holds_on_every_backend"
FREE = "faults_backends::test_what_an_environment_may_do_in_a_worker_costs_nothing"
DIES = "faults_worker::test_a_worker_that_dies_while_it_works_is_replaced"
ENDS = "faults_parent::test_no_worker_in_any_state_outlives_its_trainer"
REFUSED = "../interop/gymnasium_shard_checks::test_what_is_not_of_its_space_is_refused_and_not_stored"
CYCLES = "faults_parent::test_many_managers_one_after_the_other_leave_nothing"

# Each fault in words, and its tests: `file::test`, where file is what comes after test_ here, or in the
# folder named before it.
LIST: dict[str, tuple[str, list[str]]] = {
    "A1": (
        "raise in step",
        [
            RESTART,
            RAISE,
            DROP,
            OTHERS,
            "../manager/recovery::test_after_restarts_the_data_is_that_of_a_run_without_faults",
        ],
    ),
    "A2": (
        "raise in reset, once",
        [
            RESTART,
            RAISE,
            DROP,
            "../manager/recovery::test_after_restarts_the_data_is_that_of_a_run_without_faults",
        ],
    ),
    "A3": (
        "raise in reset, always",
        [
            "faults_env::test_a_fault_at_every_attempt_ends_in_a_crash_loop_error_after_three",
            "../manager/recovery::test_what_fails_at_every_attempt_ends_in_one_error_that_says_so",
            "../manager/recovery::test_too_many_faults_in_a_short_time_stop_the_run",
        ],
    ),
    "A4": (
        "raise in the constructor: at the start, or on restart only",
        [
            "workers/process::test_workers_that_cannot_build_are_all_listed_once",
            "workers/process::test_different_failures_to_build_are_told_apart",
            "threads/local::test_an_environment_that_cannot_be_built_is_one_error_and_leaves_no_thread",
            "faults_env::test_what_cannot_be_built_anew_at_first_is_tried_once_more",
            "faults_env::test_what_can_never_be_built_anew_ends_in_one_error_and_nothing_runs_on",
            "faults_backends::test_what_cannot_be_built_anew_at_first_is_tried_once_more_on_every_backend",
        ],
    ),
    "A5": (
        "raise in close",
        [
            "faults_backends::test_environments_that_cannot_close_stop_neither_a_restart_nor_the_end",
            "workers/process::test_an_environment_that_cannot_close_stops_nothing_and_is_told",
            "threads/local::test_an_environment_that_cannot_close_is_told_and_stops_nothing",
        ],
    ),
    "A6": (
        "errors that cannot be sent, spoken or measured",
        [
            RESTART,
            RAISE,
            DROP,
            "faults_env::test_an_error_that_is_no_exception_is_named_too",
            "workers/messages::test_any_error_becomes_bounded_text",
        ],
    ),
    "A7": ("sys.exit, os._exit, os.abort", [RESTART, RAISE, DROP, OTHERS]),
    "A8": (
        "observations and rewards that are none",
        [
            RESTART,
            RAISE,
            DROP,
            OTHERS,
            REFUSED,
            "faults_env::test_a_bad_row_of_a_third_party_environment_is_stepped_again_and_never_seen",
        ],
    ),
    "A9": (
        "flags that are none, the old interface",
        [
            REFUSED,
            "../interop/gymnasium_shard_checks::test_what_is_harmless_gives_the_same_rows",
            "../interop/gymnasium_shard_checks::test_both_flags_at_once_are_a_termination",
            "faults_env::test_a_bad_row_of_a_third_party_environment_is_stepped_again_and_never_seen",
        ],
    ),
    "A10": (
        "one buffer for all observations",
        [
            "../interop/gymnasium_shard::"
            "test_an_environment_that_uses_one_buffer_does_not_change_what_was_stored"
        ],
    ),
    "A11": (
        "noise on stdout, closed descriptors, writing to pipes",
        ["workers/isolation::test_noise_and_closed_streams_do_no_harm", RESTART, RAISE, DROP],
    ),
    "A12": (
        "changes to what a process has only one of",
        [
            "faults_env::test_what_an_environment_does_to_its_process_reaches_nobody_else",
        ],
    ),
    "A13": (
        "children and threads of environments",
        [
            "workers/isolation::test_what_an_environment_starts_ends_with_its_worker",
            "workers/isolation::test_a_worker_whose_fork_holds_its_descriptors_is_seen_to_die_all_the_same",
        ],
    ),
    "A14": (
        "infos that are huge, cyclic or cannot be sent",
        ["../interop/gymnasium_shard_checks::test_what_is_harmless_gives_the_same_rows"],
    ),
    "A15": (
        "leaks",
        [
            "faults_env::test_a_worker_that_leaks_is_built_anew_before_it_is_too_large",
            "faults_env::test_without_a_limit_the_same_environments_grow_on",
            "faults_env::test_a_limit_below_a_new_worker_is_an_error_instead_of_an_endless_loop",
            "faults_env::test_a_fault_while_a_worker_is_recycled_is_a_fault_like_any_other",
        ],
    ),
    "A16": (
        "forks that stay, come back or fail, exec, multiprocessing",
        [
            RESTART,
            RAISE,
            DROP,
            FREE,
            "faults_backends::test_multiprocessing_works_on_the_other_backends_too",
            "../home_process::test_a_fork_that_comes_back_changes_nothing",
            "../home_process::test_what_a_fork_writes_meanwhile_reaches_no_row",
            "threads/event_loop::test_a_coroutine_that_forks_and_waits_in_the_child_changes_nothing",
        ],
    ),
    "A17": (
        "errors that are no Exception",
        [
            RESTART,
            RAISE,
            DROP,
            OTHERS,
            "faults_backends::test_ctrl_c_in_a_step_ends_a_serial_run",
            "threads/event_loop::test_an_error_that_is_no_exception_is_a_fault_at_once",
        ],
    ),
    "A18": (
        "writes into the rows of others",
        [
            "workers/transport::test_what_recovery_needs_is_in_no_memory_that_a_worker_reaches",
            "workers/memory::test_a_mapping_keeps_no_descriptor_and_ends_with_its_last_array",
            "workers/memory::test_a_stray_write_of_a_worker_finds_no_descriptor_of_the_rows",
            "workers/memory::test_whatever_a_worker_writes_into_the_rows_its_trials_can_be_run_again",
        ],
    ),
    "A19": (
        "a loop that is stopped from inside",
        ["threads/event_loop::test_a_loop_that_an_environment_stops_goes_on"],
    ),
    "A20": (
        "errors that would act on a terminal",
        ["faults_backends::test_what_an_error_says_acts_on_no_terminal"],
    ),
    "B1": (
        "SIGKILL: idle, in a step, in a reset, in an answer, while it is replaced",
        [
            DIES,
            "faults_worker::test_a_worker_that_dies_ends_the_run_or_its_trials",
            "faults_worker::test_a_worker_that_is_killed_while_idle_is_replaced",
            "faults_worker::test_a_worker_that_dies_while_it_is_being_replaced_is_replaced",
            "faults_worker::test_a_worker_that_dies_while_its_trials_are_re_run_is_replaced",
            "workers/handle::test_what_was_answered_before_the_end_is_taken_and_half_an_answer_is_not",
        ],
    ),
    "B2": (
        "SIGSEGV, SIGBUS, SIGABRT",
        [DIES, "faults_worker::test_a_worker_that_dies_ends_the_run_or_its_trials"],
    ),
    "B3": (
        "several workers at once, at random moments",
        [
            "faults_worker::test_all_workers_that_die_in_one_step_are_replaced",
            "faults_worker::test_neighbours_that_die_at_random_moments_are_replaced",
            "backends::test_workers_killed_on_the_way_change_nothing",
        ],
    ),
    "B4": (
        "hanging: asleep, busy, holding the GIL, stopped, deaf to SIGTERM",
        [
            "faults_worker::test_a_worker_that_hangs_is_ended_at_the_deadline_and_replaced",
            "faults_worker::test_a_worker_that_hangs_ends_the_run_or_its_trials",
            "threads/thread::test_a_thread_that_hangs_is_told_with_its_stack_and_loses_its_slots_only",
            "threads/event_loop::test_one_that_blocks_the_loop_loses_all_slots_and_a_new_loop_takes_over",
        ],
    ),
    "B5": (
        "an answer after the deadline",
        [
            "faults_worker::test_an_answer_after_the_deadline_is_never_taken_for_another",
            "workers/handle::test_an_answer_that_comes_twice_or_late_is_dropped_and_counted",
            "threads/thread::test_an_answer_after_the_deadline_is_dropped_and_writes_nowhere",
            OTHERS,
        ],
    ),
    "B6": (
        "a stopped worker that is woken after its replacement",
        [
            "faults_worker::test_a_worker_that_was_stopped_cannot_come_back_as_a_ghost",
            "workers/handle::test_an_answer_of_an_earlier_generation_is_dropped_and_counted",
            "threads/local_host::test_what_runs_in_a_host_is_seen_when_it_is_delivered",
            "threads/local::test_the_host_that_takes_a_lost_ones_place_shares_no_array_with_it",
        ],
    ),
    "B7": (
        "factories that cannot be sent, crash, or take too long",
        [
            "workers/process::test_what_cannot_be_pickled_is_named_before_any_process_starts",
            "workers/process::test_a_module_that_a_worker_cannot_import_is_named",
            "faults_worker::test_a_factory_that_takes_too_long_is_one_error_at_the_deadline",
            "workers/launch::test_a_factory_of_the_script_reaches_the_workers_by_value",
        ],
    ),
    "B8": (
        "a fork while a thread holds a lock",
        ["faults_worker::test_a_lock_that_a_thread_of_the_trainer_holds_keeps_no_worker_waiting"],
    ),
    "B9": (
        "a script without a guard",
        [
            "workers/launch::test_a_script_without_a_guard_just_works",
            "workers/launch::test_a_module_that_starts_workers_when_imported_is_told_so_in_one_sentence",
        ],
    ),
    "B10": (
        "a trainer that errs: between send and recv, Ctrl-C, never closing, closing twice, "
        "calling from within, two threads",
        [
            "faults_worker::test_an_error_of_the_trainer_between_send_and_recv_leaves_nothing",
            "faults_worker::test_ctrl_c_within_a_step_closes_everything",
            "faults_worker::test_ctrl_c_while_a_worker_is_replaced_closes_everything",
            "faults_worker::test_a_call_from_within_a_call_is_refused_and_changes_nothing",
            "workers/process::test_ctrl_c_while_waiting_closes_everything",
            "workers/process::test_close_may_be_called_twice_and_rows_stay_readable",
            "workers/process::test_a_forgotten_manager_closes_itself",
            "workers/launch::test_a_script_that_never_closes_ends_cleanly",
            "../manager/stepping::test_a_second_thread_is_refused_and_the_first_goes_on",
            "../manager/stepping::test_after_close_every_call_says_so",
        ],
    ),
    "C1": (
        "every end of the trainer, with its workers in every state",
        [
            ENDS,
            "workers/launch::test_no_worker_survives_the_sigkill_of_its_trainer",
            "workers/process::test_a_signal_to_the_whole_group_leaves_the_trainer_its_workers",
            "../../policies/learner::test_resume_after_a_stop_signal_equals_uninterrupted",
            "../../main::test_an_end_has_its_exit_code_and_no_traceback",
        ],
    ),
    "C2": (
        "a hundred managers, also with dead workers or none at all",
        [CYCLES, "restore::test_twenty_kills_leave_nothing"],
    ),
    "C3": (
        "SIGKILL to the whole process group",
        [ENDS, "faults_parent::test_names_in_dev_shm_are_not_even_used_while_running"],
    ),
    "C4": (
        "too few open files",
        ["workers/process::test_too_few_open_files_are_refused_before_any_process_starts"],
    ),
    "C5": (
        "too few processes, too little memory",
        [
            "workers/launch::test_too_few_processes_are_refused_with_both_numbers",
            "workers/launch::test_rows_that_do_not_fit_are_refused_with_both_numbers",
            "faults_parent::test_memory_for_the_rows_that_cannot_be_had_is_one_error_before_any_process",
            "faults_parent::test_an_environment_out_of_memory_is_a_fault_like_any_other",
        ],
    ),
    "C6": (
        "a clock that jumps",
        [
            "faults_parent::test_a_clock_that_jumps_ends_no_call_and_prolongs_none",
            "faults_parent::test_deadlines_are_kept_by_clocks_that_do_not_jump",
        ],
    ),
}


@cache
def named_in(file: str) -> set[str]:
    """The tests of a file."""
    folder, _, name = file.rpartition("/")
    tree = ast.parse((Path(__file__).parent / folder / f"test_{name}.py").read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_fault_of_the_list_has_its_tests() -> None:
    assert list(LIST) == [
        f"{kind}{number}"
        for kind, count in (("A", 20), ("B", 10), ("C", 6))
        for number in range(1, count + 1)
    ]
    assert all(words and tests for words, tests in LIST.values())
    assert not [
        test
        for _, tests in LIST.values()
        for test in tests
        if test.partition("::")[2] not in named_in(test.partition("::")[0])
    ]


@pytest.mark.parametrize("file", ["faults_env", "faults_worker", "faults_parent", "faults_backends"])
def test_every_test_of_faults_is_in_the_list(file: str) -> None:
    named = {test.partition("::")[2] for _, tests in LIST.values() for test in tests}
    beside = {
        "test_what_is_dropped_may_be_started_again",
        "test_every_fault_at_every_place_on_every_backend_under_every_policy",
        "test_a_second_fault_at_once_is_lived_through",
        "test_the_error_of_faults_that_say_a_lot_can_be_read",
    }
    assert named_in(file) - named <= beside
