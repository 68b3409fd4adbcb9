"""Any options, seeds, sets of slots and orders of slots: each slot plays as it would alone, by the rules."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.parts.defence.plain_network import PlainNetwork
from envs.meta.cyber import scenario as sc
from envs.meta.make_env import make_family
from tests.envs.meta.played import Played

SLOTS, STEPS = 6, 25

options = st.fixed_dictionaries(
    {
        "red": st.sampled_from(["bline", "meander", "any"]),
        "variant": st.sampled_from(["attacker", "hidden"]),
        "green": st.booleans(),
        "wrapper": st.sampled_from(["challenge", "cardiff"]),
        "era": st.sampled_from(["head", "2022"]),
        "fix_impact": st.booleans(),
    }
)


def episode_plan(seed: int, family: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tasks, seeds and actions of SLOTS episodes; half of the actions are decoys."""
    rng = np.random.default_rng(seed)
    tasks = family.sample_tasks(rng, SLOTS, "train")
    decoys = sc.action_number(sc.FIRST_DECOY, 0) + rng.integers(8 * sc.NUM_HOSTS, size=(STEPS, SLOTS))
    actions = np.where(
        rng.random((STEPS, SLOTS)) < 0.5, decoys, rng.integers(sc.NUM_ACTIONS, size=(STEPS, SLOTS))
    )
    return tasks, rng.integers(2**63, size=SLOTS).astype(np.uint64), actions


@settings(max_examples=60, deadline=None, derandomize=True)
@given(options=options, seed=st.integers(0, 2**32 - 1), data=st.data())
def test_a_slot_plays_as_alone_whichever_slots_are_stepped_in_whichever_order(
    options: dict[str, Any], seed: int, data: st.DataObject
):
    family = make_family("CyberDefence", **options)
    tasks, seeds, actions = episode_plan(seed, family)
    # Episode e is played in slot place[e]; a round steps some slots, each at a time of its own.
    place = np.array(data.draw(st.permutations(range(SLOTS))))
    many, alone = Played(family, SLOTS), [Played(family, 1) for _ in range(SLOTS)]
    begun, times = np.zeros(SLOTS, np.bool_), np.zeros(SLOTS, np.int64)
    rounds = data.draw(st.lists(st.sets(st.integers(0, SLOTS - 1), min_size=1), min_size=5, max_size=40))
    for chosen in rounds:
        episodes = np.array(sorted(chosen, key=lambda one: place[one]))
        fresh, going = episodes[~begun[episodes]], episodes[begun[episodes]]
        # An episode that is at its end begins again.
        over = going[times[going] == STEPS]
        fresh, going = np.concatenate([fresh, over]), going[times[going] < STEPS]
        fresh = fresh[np.argsort(place[fresh])]
        if len(fresh):
            many.reset(place[fresh], tasks[fresh], seeds[fresh])
            begun[fresh], times[fresh] = True, 0
        if len(going):
            many.step(place[going], actions[times[going], going])
        for episode in fresh.tolist():
            alone[episode].reset([0], [tasks[episode]], [seeds[episode]])
        for episode in going.tolist():
            alone[episode].step([0], [actions[times[episode], episode]])
        times[going] += 1
        # Slots that were not meant are as they were.
        for episode in np.flatnonzero(begun).tolist():
            assert many.bits(place[episode]) == alone[episode].bits(0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(options=options, seed=st.integers(0, 2**32 - 1))
def test_any_options_give_what_a_scalar_simulator_makes_of_the_same_moves(options: dict[str, Any], seed: int):
    family = make_family("CyberDefence", **options)
    tasks, seeds, actions = episode_plan(seed, family)
    played = Played(family, SLOTS)
    shard: Any = played.shard
    rows = played.reset(np.arange(SLOTS), tasks, seeds)
    plain = [
        PlainNetwork(options["era"] == "2022", options["wrapper"] == "cardiff", options["fix_impact"])
        for _ in range(SLOTS)
    ]
    space = family.spec.obs_space
    for chosen in actions:
        played.step(np.arange(SLOTS), chosen)
        moves = list(zip(*(part.tolist() for part in shard.red), strict=True))
        scanned = [-1] * SLOTS if shard.scanned is None else shard.scanned.tolist()
        assert isinstance(rows.obs, np.ndarray)
        for slot, network in enumerate(plain):
            numbers, reward = network.step(int(chosen[slot]), moves[slot], scanned[slot])
            assert rows.obs[slot].tolist() == numbers and rows.reward[slot] == reward
            assert rows.obs[slot] in space
        assert not rows.terminated.any() and not rows.truncated.any()
