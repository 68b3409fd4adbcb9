"""Words become the config that Hydra would compose, or one sentence."""

from __future__ import annotations

import pytest
from hydra import compose
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from configs.compose import LAUNCHERS, Composer, _sentence, checked, composed_settings
from configs.schema import FOLDER
from envs.remote.serving import served
from utils.options import OptionError

WORDS = [
    [],
    ["seed=3", "env=AntDir", "env.max_episode_steps=50"],
    ["experiment=semi_circle", "agent.hidden=[64,32]", "train={buffer_size: 5000}"],
    ["env=Wind", "agent=Markov", "evaluation.episodes_per_trial=3", "wandb.tags=[a,b]", "device=cpu"],
    ["num_slots=null", "deterministic=true", "algorithm.discount=1"],
    ["env=TMazeActive", "algorithm.epsilon_end=0.1"],
    ["algorithm=DiscreteSAC", "env=GridNavi", "algorithm.target_entropy_ratio=0.7"],
    ["algorithm=PPO", "memory=LSTM", "agent.encoders=shared", "train.num_env_steps_per_iter=null"],
    *(
        [f"experiment={file.stem}"]
        for file in sorted((FOLDER / "experiment").glob("*.yaml"))
        # One starts a server (tests/envs/remote/servers/test_connect4.py), one needs a partner's package.
        if file.stem not in ("connect4", "simple_push")
    ),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_what_is_checked_is_what_hydra_will_compose(composer: Composer, words: list[str]) -> None:
    assert composer.config(composer.parse(words)) == checked(compose("config", words))[0]


def test_settings_are_composed_without_a_check_and_with_nothing_started() -> None:
    settings = composed_settings(["experiment=connect4", "seed=7"])
    assert (settings["env"]["family"], settings["seed"]) == ("OpenEnv", 7) and "hydra" not in settings
    assert not served()


def test_the_command_line_wins_over_an_experiment_and_that_over_the_family(composer: Composer) -> None:
    def pool(*words: str) -> int:
        return composer.config(composer.parse(words)).train.num_init_rollouts_pool

    assert pool("env=PointRobot") != pool("experiment=semi_circle") == 500
    assert pool("experiment=semi_circle", "train.num_init_rollouts_pool=7") == 7


def test_an_environment_brings_the_algorithm_for_its_actions_and_the_command_line_wins_over_it(
    composer: Composer,
) -> None:
    def algorithm(*words: str) -> str:
        return composer.dict_config(composer.parse(words)).algorithm.name

    assert algorithm("env=TMazeActive") == "DQN" != algorithm("env=PointRobot")
    assert algorithm("env=GridNavi", "algorithm=SAC") == algorithm("algorithm=SAC", "env=GridNavi") == "SAC"
    assert algorithm("env=PointRobot", "algorithm=DiscreteSAC") == "DiscreteSAC"


def test_one_jobs_values_do_not_reach_the_next(composer: Composer) -> None:
    jobs = [
        composer.config(job)
        for job in composer.jobs(composer.parse(["seed=1,2", "env.max_episode_steps=9,8"]))
    ]
    assert [(job.seed, job.env.max_episode_steps) for job in jobs] == [(1, 9), (1, 8), (2, 9), (2, 8)]
    assert composer.config([]).seed == 0


def test_an_option_can_refer_to_another(composer: Composer) -> None:
    assert (
        composer.config(composer.parse(["seed=${train.num_rollouts_per_iter}"])).seed
        == composer.config([]).train.num_rollouts_per_iter
    )


def test_a_folder_of_ones_own_adds_choices(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "experiment").mkdir()
    (folder / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 9\n")
    with Composer(str(folder)) as composer:
        assert composer.config(composer.parse(["experiment=mine"])).seed == 9


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("agent=Memroy", "agent=Memroy is not known. Did you mean 'Memory'?"),
        ("env=null", "env=null: a run needs a choice of env."),
        ("+env=AntDir", "+env=AntDir: leave out the +"),
        ("AntDir", "Did you mean 'env=AntDir'?"),
        ("seed", "'seed' has no value: write seed=VALUE"),
        ("sead", "'sead' is not an option: options are written name=value. Did you mean 'seed'?"),
        ("seed=[1", "Cannot read the value in 'seed=[1'"),
        ("=3", "Cannot read '=3'"),
        ("hydra/launcher=joblob", "hydra/launcher=joblob is not known."),
        ("seed=${nothing}", "seed: Interpolation key 'nothing' not found."),
        ("agent.hidden=${seed}", "agent.hidden should be a list, and what it refers to is 0."),
        ("wandb.tags=${env.family}", "wandb.tags should be a list, and what it refers to is PointRobot."),
        (
            "agent.hidden=${env}",
            "agent.hidden should be a list, and what it refers to is a section of options.",
        ),
        ("wandb=${train}", "wandb is a section of options, and what it refers to is none of its kind."),
        ("hydra.run.dri=x", "Could not override 'hydra.run.dri'."),
    ],
)
def test_a_mistake_is_one_sentence(composer: Composer, word: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        composer.config(composer.parse([word]))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_that_is_not_installed_comes_with_the_line_that_installs_it(name: str) -> None:
    missing = MissingConfigException("", f"hydra/launcher/{name}", options=["basic"])
    sentence = f"hydra/launcher={name} is not installed: pip install -c requirements.txt '.[launchers]'"
    assert _sentence(missing) == sentence


def test_an_option_given_twice_is_refused(composer: Composer) -> None:
    with pytest.raises(OptionError, match="seed is given twice: seed=1 and seed=2"):
        composer.parse(["seed=1", "seed=2"])


def test_several_values_without_multirun_are_refused(composer: Composer) -> None:
    with pytest.raises(OptionError, match="add -m"):
        composer.config(composer.parse(["seed=1,2"]))


def test_a_broken_file_of_ones_own_is_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "experiment").mkdir()
    (folder / "experiment" / "broken.yaml").write_text("# @package _global_\nseed: [1\n")
    (folder / "experiment" / "stranger.yaml").write_text("# @package _global_\nsead: 1\n")
    with Composer(str(folder)) as composer:
        for name in ("broken", "stranger"):
            with pytest.raises(OptionError) as caught:
                composer.config(composer.parse([f"experiment={name}"]))
            assert "\n" not in str(caught.value)


def test_the_crossing_gives_plain_values(composer: Composer) -> None:
    config = composer.config(composer.parse(["agent.hidden=[8]", "wandb.tags=[x]"]))
    assert type(config.agent.hidden) is list and type(config.wandb.tags) is list
    assert not OmegaConf.is_config(config.env)
