"""Forgeries of figures and machines: what decides how strictly a replay is compared."""

from __future__ import annotations

from pathlib import Path

from tests.contribute.catalogue import CELL, edited, every, forgery
from tests.contribute.forger import Json


@forgery("validate", r"health: stored \[.*names that are missing|columns that are missing")
def figures_that_a_replay_compares_are_left_out(folder: Path) -> None:
    def leave_out(record: Json) -> None:
        for name in ("uniform_groups", "grad_norm", "ess", "policy_loss"):
            record["health"].pop(name)

    every(folder, leave_out)


@forgery("validate", r"health: stored .*'score'\], expected \[\] \(columns that are missing")
def nobody_knows_what_training_scored(folder: Path) -> None:
    every(folder, lambda r: [r["health"].pop(name) for name in ("score", "iteration", "loss")])


@forgery("validate", r"health\.entropy\[0\]: stored None, expected a number, as the loss is")
def figures_that_a_rule_reads_are_null(folder: Path) -> None:
    every(folder, lambda r: r["health"].update(entropy=[None] * 3, reference_kl=[None] * 3))


@forgery("validate", r"health\.reference_kl\[1\]: stored None, expected a number, where an inter")
def nobody_watches_the_distance_from_the_start(folder: Path) -> None:
    every(folder, lambda r: r["health"]["reference_kl"].__setitem__(1, None))


@forgery("validate", r"health\.grad_norm\[0\]: stored -1\.0, expected 0 to inf")
def a_norm_below_zero(folder: Path) -> None:
    every(folder, lambda r: r["health"].update(grad_norm=[-1.0] * 3))


@forgery("validate", r"health\.clip_fraction\[0\]: stored 5\.0, expected 0 to 1")
def more_than_all_tokens_were_clipped(folder: Path) -> None:
    every(folder, lambda r: r["health"].update(clip_fraction=[5.0] * 3))


@forgery("validate", r"cost\.completions")
def more_completions_than_a_number_holds(folder: Path) -> None:
    every(folder, lambda r: r["cost"].update(completions=10**400))


@forgery("validate", r"health\.truncated\[0\]: stored 1e\+308, expected 0 to 1")
def a_share_beyond_all_numbers(folder: Path) -> None:
    every(folder, lambda r: r["health"].update(truncated=[1e308] * 3))


@forgery("validate", r"volatile\.attempts")
def a_time_beyond_all_numbers(folder: Path) -> None:
    every(folder, lambda r: r["volatile"]["attempts"][0].update(start=10**400))


@forgery("validate", r"health\.group_variance\[0\]: stored 0\.4, expected 0 to 0\.25")
def scores_that_vary_more_than_scores_can(folder: Path) -> None:
    every(folder, lambda r: r["health"].update(group_variance=[0.4] * 3))


@forgery("validate", r"health\.score\[0\]: stored 0\.97, expected a share of them")
def a_mean_that_no_completions_have(folder: Path) -> None:
    edited(CELL, lambda r: r["health"].update(score=[0.97] * 3, reward=[0.97] * 3))(folder)


@forgery("validate", r"health\.uniform_groups\[0\]: stored 1\.0, expected 1 where that is 0")
def all_scored_alike_and_varied(folder: Path) -> None:
    every(folder, lambda r: r["health"].update(
        uniform_groups=[1.0] * 3, group_variance=[0.1] * 3
    ))


@forgery("validate", r"environment\.determinism\.threads: stored 64, expected 1")
def more_threads_than_the_conditions_give(folder: Path) -> None:
    every(folder, lambda r: r["environment"]["determinism"].update(threads=64))


@forgery("validate", r"environment\.determinism\.deterministic_algorithms: stored False")
def nothing_had_to_be_repeatable(folder: Path) -> None:
    every(folder, lambda r: r["environment"]["determinism"].update(
        deterministic_algorithms=False
    ))


@forgery("validate", r"environment\.cpu_capability: stored AVX512, expected others with ATEN_CPU")
def a_variable_forbids_the_kernels_that_ran(folder: Path) -> None:
    every(folder, lambda r: r["environment"]["determinism"]["environment"].update(
        ATEN_CPU_CAPABILITY="default"
    ) or r["environment"].update(cpu_capability="AVX512", machine="x86_64"))


@forgery("validate", r"environment\.determinism\.environment\.HELLO")
def a_variable_that_changes_nothing(folder: Path) -> None:
    every(folder, lambda r: r["environment"]["determinism"]["environment"].update(HELLO="world"))


@forgery("validate", r"environment\.packages: stored \['torch', .*names that are missing")
def no_package_was_installed(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(packages={}))


@forgery("validate", r"environment\.nodes: stored 5, expected a number that divides the 1 devices")
def more_machines_than_devices(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(nodes=5))


@forgery("validate", r"environment\.strategy: stored fsdp")
def one_device_has_a_strategy(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(strategy="fsdp"))


@forgery("validate", r"environment\.cuda: stored 12\.8, expected None on a processor")
def a_processor_has_a_driver(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(cuda="12.8", driver="555.42"))


@forgery("validate", r"environment\.machine: stored x86_64, expected ppc64le or ppc64, with VSX")
def kernels_of_another_family_of_machines(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(cpu_capability="VSX", machine="x86_64"))


@forgery("validate", r"environment\.machine: stored x86_64, expected aarch64 or arm64 or ARM64")
def a_processor_of_another_family_of_machines(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(cpu="AWS Graviton3", machine="x86_64"))


@forgery("validate", r"environment\.begun_on: stored .*what makes a class of machine, all of it")
def a_run_began_on_half_a_machine(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(begun_on={"cpu": "AMD EPYC 9754"}))


@forgery("validate", r"environment\.begun_on: .*the ledger says that the run was never continued")
def a_run_that_never_moved_began_elsewhere(folder: Path) -> None:
    from crlbench.contract.machine import machine_class

    def move(record: Json) -> None:
        own = machine_class(record["environment"], "5" * 64)
        record["environment"]["begun_on"] = own | {"cpu": "AMD EPYC 9754"}

    every(folder, move)


@forgery("validate", "made by crlbench '0.0.1', and this checkout is")
def a_crlbench_that_never_was_made_it(folder: Path) -> None:
    every(folder, lambda r: r["crlbench"].update(version="0.0.1"))
