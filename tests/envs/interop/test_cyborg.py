"""The original simulator as an environment and as a family, by a stand-in of the same interface."""

from __future__ import annotations

import random
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from configs.compose import load
from envs.interop.cyborg import CybORGEnv
from envs.meta.make_env import make_family, make_parallel_env
from policies.agents.actions import ActionKind
from policies.algorithms import ALGORITHMS
from tests.docs.pages import PAGES, ROOT, blocks
from tests.envs.meta.played import Played
from utils.options import OptionError

# As far as we call it: gym's old interface, three attackers, and draws from Python's global stream.
STAND_IN = {
    "__init__.py": """
class CybORG:
    def __init__(self, scenario, environment, agents):
        assert scenario.endswith("Shared/Scenarios/Scenario2.yaml") and environment == "sim"
        self.red = agents["Red"].__name__
""",
    "Agents/__init__.py": """
class B_lineAgent: pass
class RedMeanderAgent: pass
class SleepAgent: pass
""",
    "Agents/Wrappers/__init__.py": """
import random
import numpy as np

class ChallengeWrapper:
    def __init__(self, agent_name, env):
        assert agent_name == "Blue"
        self.red = env.red
        random.random()

    def reset(self):
        self.seen = np.zeros(52, int)
        return self.seen

    def step(self, action=None):
        assert type(action) is int
        self.seen = np.array([random.random() < 0.5 for _ in range(52)], int)
        return self.seen, 0.0 if self.red == "SleepAgent" else -0.1 * len(self.red), False, {}
""",
}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """A folder that holds the stand-in; nothing of it stays imported."""
    for name, text in STAND_IN.items():
        file = tmp_path / "CybORG" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    searched = list(sys.path)
    yield str(tmp_path)
    sys.path[:] = searched
    for name in [name for name in sys.modules if name.partition(".")[0] == "CybORG"]:
        del sys.modules[name]


def test_the_old_interface_comes_out_as_the_new_one(path: str):
    env = CybORGEnv(path)
    obs, info = env.reset(seed=1)
    assert (obs.shape, obs.dtype, info) == ((52,), np.float32, {})
    obs, reward, terminated, truncated, info = env.step(np.int64(144))
    assert env.observation_space.contains(obs) and obs.any()
    assert (reward, terminated, truncated, info) == (pytest.approx(-1.1), False, False, {})


def test_the_task_says_who_attacks(path: str):
    played = Played(make_family("CybORG", path=path), 3)
    played.reset([0, 1, 2], [[0.0], [1.0], [2.0]], [1, 2, 3])
    rewards = played.step([0, 1, 2], [0, 0, 0]).reward
    assert rewards == pytest.approx([-0.1 * len("B_lineAgent"), -0.1 * len("RedMeanderAgent"), 0.0])


@pytest.mark.parametrize(("red", "attackers"), [("meander", {1.0}), ("any", {0.0, 1.0, 2.0})])
def test_red_says_who_is_drawn(path: str, red: str, attackers: set[float]):
    tasks = make_family("CybORG", path=path, red=red).sample_tasks(np.random.default_rng(0), 9, "test")
    assert set(tasks.ravel()) == attackers


def test_an_episode_is_a_function_of_its_seed_whoever_else_draws(path: str):
    family, others = make_family("CybORG", path=path), random.getstate()
    alone, two = Played(family, 1), Played(family, 2)
    alone.reset([0], [[0.0]], [7])
    # Slot 1 plays another seed in between, after an episode of another attacker in slot 0.
    two.reset([0, 1], [[1.0], [0.0]], [5, 6])
    two.reset([0], [[0.0]], [7])
    for _ in range(5):
        alone.step([0], [0])
        two.step([0, 1], [0, 0])
        assert alone.bits(0) == two.bits(0) != two.bits(1)
    assert random.getstate() == others, "the program's own stream is left alone"


def test_it_plays_in_worker_processes_that_were_never_told_the_path(path: str):
    with make_parallel_env("CybORG", 1, 1, 0, num_envs=2, name="process", path=path) as manager:
        manager.reset()
        obs = manager.step(np.zeros(2, np.int64)).obs
        assert isinstance(obs, np.ndarray) and obs.shape == (2, 52) and obs.any()


def test_without_the_simulator_one_sentence_says_what_to_give(tmp_path: Path):
    with pytest.raises(OptionError, match=r"give env\.path=FOLDER.*env=CyberDefence plays the same game"):
        make_family("CybORG")
    with pytest.raises(OptionError, match=f"env.path={tmp_path} holds no package CybORG: give the folder"):
        make_family("CybORG", path=str(tmp_path))


@pytest.mark.parametrize("file", ["__init__.py", "Agents/__init__.py", "Agents/Wrappers/__init__.py"])
def test_a_requirement_that_is_missing_is_one_sentence(path: str, file: str):
    searched, found = list(sys.path), Path(path) / "CybORG" / file
    found.write_text(f"import prettytable_of_nobody.parts\n{found.read_text()}")
    with pytest.raises(OptionError, match="without the module prettytable_of_nobody, which is not") as caught:
        make_family("CybORG", path=path)
    assert str(caught.value).endswith("(most often pip install prettytable_of_nobody).")
    assert sys.path == searched
    found.write_text(STAND_IN[file])
    assert make_family("CybORG", path=path), "once it is installed"


def test_another_version_of_the_package_is_one_sentence(path: str):
    (Path(path) / "CybORG" / "Agents" / "Wrappers" / "__init__.py").unlink()
    (Path(path) / "CybORG" / "Agents" / "Wrappers").rmdir()
    with pytest.raises(OptionError, match=r"lacks CybORG\.Agents\.Wrappers: it is not that of version 2\.1"):
        make_family("CybORG", path=path)


def test_the_command_line_brings_an_algorithm_for_its_actions(path: str):
    config, same_game = load(["env=CybORG", f"env.path={path}"]), load(["env=CyberDefence"])
    assert config.env.family == "CybORG" and ActionKind.discrete in ALGORITHMS[config.algorithm.name].serves
    assert (config.algorithm, config.memory) == (same_game.algorithm, same_game.memory)


def test_an_agent_of_cyber_defence_plays_it_as_the_page_shows(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    (block,) = (block for block in blocks(PAGES["docs/cyber.md"], "python") if '"CybORG"' in block)
    (tmp_path / "example.py").write_text(block.replace("cage-challenge-2/CybORG", path))
    runpy.run_path(str(tmp_path / "example.py"))
    returns = [float(word) for word in capsys.readouterr().out.strip("[]\n ").split()]
    per_step = [-0.1 * len(name) for name in ("B_lineAgent", "RedMeanderAgent")]
    known = [0.0, *(100 * reward for reward in per_step)]
    assert len(returns) == 4 and all(any(abs(one - other) < 0.1 for other in known) for one in returns)
