"""Old names, the field's words and published spellings are answered with the command that does it here."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.cli import read
from configs.compose import Composer
from configs.schema import schemas
from configs.spellings import FIELD, PUBLISHED, REMARKS, RENAMED, TASKS_OF_EVALUATION, environment, translated
from configs.values import option_names
from envs.meta import FAMILIES
from policies.algorithms import ALGORITHMS
from utils.options import OptionError


def sentence_of(words: str, config_dir: Path | None = None) -> str:
    folder = [] if config_dir is None else ["--config-dir", str(config_dir)]
    with pytest.raises(OptionError) as caught:
        read([*folder, *words.split()])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        # Names of commit b8605dc.
        (
            "algorithm=PPO algorithm.trace=0.9",
            "algorithm.trace is now algorithm.gae_lambda: write algorithm.gae_lambda=0.9.",
        ),
        (
            "algorithm=PPO algorithm.target_kl=0.02",
            "algorithm.target_kl is now algorithm.desired_kl: write algorithm.desired_kl=0.02 "
            "(it scales the step size and ends no epoch).",
        ),
        # The field's words.
        ("algorithm.gamma=0.9", "algorithm.gamma=0.9 is written algorithm.discount=0.9 here."),
        ("algorithm=SAC tau=0.1", "tau=0.1 is written algorithm.tau=0.1 here."),
        ("n_eval_episodes=4", "is written env.num_eval_tasks=N here (test tasks, each with one trial)."),
        ("algorithm=PPO gae_lambda=0.9", "gae_lambda=0.9 is written algorithm.gae_lambda=0.9 here."),
        (
            "algorithm=SAC algorithm.gae_lambda=0.9",
            "There is no option 'algorithm.gae_lambda' in this run: it is one of algorithm=PPO.",
        ),
        (
            "algorithm=PPO algorithm.ent_coef=0.1",
            "algorithm.ent_coef=0.1 is written algorithm.entropy_coef=0.1 here.",
        ),
        ("algorithm=SAC ent_coef=0.1", "ent_coef=0.1 is written algorithm.temperature=0.1 here."),
        ("total_timesteps=1000", "total_timesteps=1000 is written train.n_env_steps_total=1000 here."),
        ("lr=1e-3", "lr=1e-3 is written algorithm.learning_rate=1e-3 here."),
        ("algorithm=PPO vf_coef=1", "vf_coef=1 is written algorithm.value_coef=1 here."),
        ("algorithm=PPO n_epochs=4", "n_epochs=4 is written algorithm.epochs=4 here."),
        (
            "algorithm=PPO algorithm.batch_size=64",
            "algorithm.batch_size=64 is written algorithm.minibatches=N here "
            "(the gradient steps of an epoch).",
        ),
        ("algorithm=SAC tau=0.01", "tau=0.01 is written algorithm.tau=0.01 here."),
        ("algorithm.buffer_size=9000", "algorithm.buffer_size=9000 is written train.buffer_size=9000 here."),
        ("timesteps=1000", "timesteps=1000 is written train.n_env_steps_total=1000 here."),
        ("log_dir=runs/1", "log_dir=runs/1 is written hydra.run.dir=runs/1 here."),
        ("num_tasks=30", "num_tasks=30 is written env.num_train_tasks=30 here."),
        *(
            (f"evaluation.{name}=30", f"evaluation.{name}=30 is written env.num_eval_tasks=30 here.")
            for name in ("num_tasks", "num_eval_tasks")
        ),
        ("track=true", "track=true is written wandb.mode=online here."),
        ("recipe=AntDir_PPO", "or experiment= (recipe=list shows all)."),
        # Published guides.
        ("env.env_name=AntDir-v0", "env.env_name=AntDir-v0 is written env=AntDir here."),
        (
            "env.num_parallel_workers=6",
            "env.num_parallel_workers=6 is written num_parallel_workers=6 here.",
        ),
        (
            "env.env_type=meta",
            "env.env_type=meta is not needed here, since every environment is one of trials: leave it out.",
        ),
        ("env=AntDir-v0", "env=AntDir-v0 is not known. It is written env=AntDir here."),
        (
            "env=CartPole-v1",
            "env=CartPole-v1 is not known. It is written env=Gymnasium env.id=CartPole-v1 here.",
        ),
        ("n_envs=8", "n_envs=8 is written num_slots=8 num_parallel_workers=8 here."),
        ("--n-envs 8", "python main.py num_slots=8 num_parallel_workers=8"),
        (
            "--num-episodes 1000",
            "python main.py train.n_env_steps_total=200000 (a run is measured in env steps, here those of "
            "episodes with 200)",
        ),
        ("--parallel-start-method spawn", "python main.py backend.start_method=spawn"),
        ("--device mps", "python main.py device=mps"),
        ("--learning-rate 3e-4", "python main.py algorithm.learning_rate=3e-4"),
        ("--checkpoint-dir=here/v1", "python main.py hydra.run.dir=here/v1"),
        (
            "env=AntDir --n-envs 8 --num-episodes 1000 --device mps --learning-rate 3e-4",
            "There is no flag --n-envs; options are written without dashes: "
            "python main.py env=AntDir num_slots=8 num_parallel_workers=8 "
            "train.n_env_steps_total=200000 device=mps algorithm.learning_rate=3e-4 "
            "(a run is measured in env steps, here those of episodes with 200)",
        ),
        ("--n-envs", "python main.py num_slots=VALUE num_parallel_workers=VALUE"),
    ],
)
def test_another_spelling_gets_the_one_of_here(words: str, sentence: str) -> None:
    assert sentence_of(words).endswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("env:\n  env_name: AntDir-v0\n", "In experiment=mine: env.env_name is written env=VALUE here."),
        (
            "env:\n  num_parallel_workers: 6\n",
            "In experiment=mine: env.num_parallel_workers is written num_parallel_workers=VALUE here.",
        ),
        (
            "env:\n  env_type: meta\n",
            "In experiment=mine: env.env_type is not needed here, since every environment is one of trials: "
            "leave it out.",
        ),
        (
            "defaults:\n  - override /algorithm: PPO\nalgorithm:\n  trace: 0.9\n",
            "In experiment=mine: algorithm.trace is now algorithm.gae_lambda: "
            "write algorithm.gae_lambda=VALUE "
            "(an option of algorithm=PPO).",
        ),
    ],
)
def test_a_file_of_ones_own_in_another_spelling_is_answered(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}")
    assert sentence_of("experiment=mine", tmp_path) == sentence


def test_every_answer_names_an_option_that_some_run_has_and_no_option_has_a_spelling_of_the_table(
    composer: Composer,
) -> None:
    known = {"env", "hydra.run.dir", "env.id"}
    for algorithm in ALGORITHMS:
        known |= set(option_names(composer.dict_config(composer.parse([f"algorithm={algorithm}"]))))
    answers = [
        *RENAMED.values(),
        *TASKS_OF_EVALUATION.values(),
        *(words for words in PUBLISHED.values() if words),
        *(words for alternatives in FIELD.values() for words in alternatives),
    ]
    for words in answers:
        assert {word.partition("=")[0] for word in words.split()} <= known, words
    assert not {*RENAMED, *TASKS_OF_EVALUATION} & known
    assert set(REMARKS) <= {*FIELD, *PUBLISHED, *(name.rpartition(".")[2] for name in RENAMED)}


def test_published_ids_of_every_family_are_understood() -> None:
    assert [environment(f"{name}-v0") for name in FAMILIES] == list(FAMILIES)
    assert environment("antdir-v2") == "AntDir" and environment("AntDri") == "AntDri"
    assert translated("nothing", "1") is None and schemas()
