"""What makes a PettingZoo environment: by a function, by a registered id, by a module."""

from __future__ import annotations

import pickle

import pytest

from envs.meta.third_party.petting_zoo_maker import Api, environment_maker, lacking_package
from utils.options import OptionError

GAMES = "tests.envs.interop.pettingzoo.random_games"


def test_a_function_is_found_by_its_name_and_gets_its_arguments() -> None:
    make = environment_maker(f"{GAMES}:turns", Api.auto, ["agents=4", "in_cycles=true"])
    env = pickle.loads(pickle.dumps(make))()
    assert len(env.possible_agents) == 4 and env.in_cycles


def test_a_module_of_ones_own_needs_no_package() -> None:
    assert lacking_package(f"{GAMES}:turns") is None


@pytest.mark.peers
@pytest.mark.parametrize(
    ("env_id", "api", "kind"),
    [
        ("mpe2/simple_push_v3", Api.auto, "ParallelEnv"),
        ("mpe2/simple_push_v3", Api.aec, "AECEnv"),
        ("classic/tictactoe-v3", Api.auto, "AECEnv"),
        ("classic/rps-v2", Api.aec, "AECEnv"),
    ],
)
def test_others_are_found_and_told_to_draw(env_id: str, api: Api, kind: str) -> None:
    pettingzoo = pytest.importorskip("pettingzoo")
    env = pickle.loads(pickle.dumps(environment_maker(env_id, api, [])))()
    assert isinstance(env, getattr(pettingzoo, kind)) and env.render_mode == "rgb_array"
    env.close()


@pytest.mark.peers
@pytest.mark.parametrize(
    ("env_id", "api", "sentence"),
    [
        (
            "mpe2/simple_pusch_v3",
            Api.auto,
            "Did you mean 'mpe2/simple_push_v3'?",
        ),
        ("classic/tictacto-v3", Api.auto, "Did you mean 'classic/tictactoe-v3'?"),
        ("classic/tictactoe-v3", Api.parallel, "There is no environment id=classic/tictactoe-v3"),
    ],
)
def test_an_id_that_nobody_knows_has_a_hint(env_id: str, api: Api, sentence: str) -> None:
    pytest.importorskip("mpe2")
    with pytest.raises(OptionError) as caught:
        environment_maker(env_id, api, [])
    assert sentence in str(caught.value)
