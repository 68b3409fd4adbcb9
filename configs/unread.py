"""Options that a run would never look at: given on a command line they are worth a note, since nothing would
tell that they did nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hydra.core.override_parser.types import Override

from policies.agents.base import Arch, Conditioning
from policies.run.config import Config
from policies.run.setup import needs_of


def notes(config: Config, overrides: Sequence[Override]) -> list[str]:
    """One sentence for each of these overrides that changes nothing in this run."""
    reasons = dict(_unread(config))
    found: list[str] = []
    for override in overrides:
        name = override.key_or_group
        reason = reasons.get(name) or reasons.get(f"{name.partition('.')[0]}.")
        if reason is not None:
            found.append(f"{override.input_line} changes nothing here: {reason}.")
    return found


def _unread(config: Config) -> Iterator[tuple[str, str]]:
    """(option, or a section with a dot at the end; why nobody reads it)."""
    algorithm, agent, needs = config.algorithm, config.agent, needs_of(config)
    if needs.on_policy:
        once = f"{algorithm.name} learns once from each wave, of train.num_env_steps_per_iter env steps"
        yield from (
            (f"train.{name}", once)
            for name in ("num_rollouts_per_iter", "updates_per_step", "buffer_size", "replay_device")
        )
        if not (agent.normalise_obs or agent.normalise_reward):
            yield (
                "train.num_init_rollouts_pool",
                "without normalisation a random pool teaches an on-policy algorithm nothing",
            )
    if agent.arch is Arch.Markov:
        forgets = "in agent=Markov nobody remembers"
        yield "memory.", forgets
        yield from ((f"agent.{name}_embedding", forgets) for name in ("action", "reward", "obs", "shortcut"))
        yield from (
            (f"algorithm.{name}", forgets)
            for name in ("window", "burn_in", "window_start", "state_every", "batch_size")
        )
    else:
        yield (
            "algorithm.transitions_batch_size",
            "it is for agent=Markov, and what remembers learns from trials or windows",
        )
        if hasattr(algorithm, "state_every") and not needs.state_every:
            yield "algorithm.state_every", "no window starts from a stored state; see algorithm.window_start"
    if getattr(algorithm, "temperature", None) is not None:
        fixed = "algorithm.temperature is fixed, and only one that is tuned has a target"
        yield from (
            (f"algorithm.{name}", fixed)
            for name in ("init_temperature", "target_entropy", "target_entropy_ratio")
        )
    if not agent.task_inference.weight:
        asleep = "agent.task_inference.weight is 0"
        yield from (
            (f"agent.task_inference.{name}", asleep)
            for name in vars(agent.task_inference)
            if name not in ("weight", "heads_read")
        )
    if agent.conditioning is not Conditioning.hypernetwork:
        yield "agent.hyper_embedding", "it is for agent.conditioning=hypernetwork"
