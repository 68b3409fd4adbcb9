"""How options are spelled elsewhere, and how the same is written here: old names, and those of the field.

The answer to an option that does not exist comes from these tables first, and from similar names only then.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from configs.schema import NAME_FIELDS, schemas
from envs.meta import FAMILIES

# Options of commit b8605dc that have another name today (CHANGELOG.md).
RENAMED = {
    "algorithm.trace": "algorithm.gae_lambda",
    "algorithm.init_deviation": "algorithm.init_std",
    "algorithm.value_weight": "algorithm.value_coef",
    "algorithm.entropy_weight": "algorithm.entropy_coef",
    "algorithm.target_kl": "algorithm.desired_kl",
}

# The spellings of published guides to parallel collection: as options, as lines of YAML and as flags.
PUBLISHED = {
    "env_name": "env={env}",
    "env_type": "",
    "num_parallel_workers": "num_parallel_workers={value}",
    "n_envs": "num_slots={value} num_parallel_workers={value}",
    "num_episodes": "train.n_env_steps_total={steps}",
    "parallel_start_method": "backend.start_method={value}",
    "device": "device={value}",
    "learning_rate": "algorithm.learning_rate={value}",
    "checkpoint_dir": "hydra.run.dir={value}",
}

# The words of Stable-Baselines3, CleanRL, rsl_rl and RLlib, with ours: the first that the run has counts.
#
# `N` stands where the number counts something else here.
FIELD = {
    # What is learned, and how.
    "gamma": ("algorithm.discount={value}",),
    "gae_lambda": ("algorithm.gae_lambda={value}",),
    "lam": ("algorithm.gae_lambda={value}",),
    "lr": ("algorithm.learning_rate={value}",),
    "ent_coef": ("algorithm.entropy_coef={value}", "algorithm.temperature={value}"),
    "alpha": ("algorithm.temperature={value}", "algorithm.entropy_coef={value}"),
    "vf_coef": ("algorithm.value_coef={value}",),
    "value_loss_coef": ("algorithm.value_coef={value}",),
    "clip_range": ("algorithm.clip={value}",),
    "clip_coef": ("algorithm.clip={value}",),
    "clip_param": ("algorithm.clip={value}",),
    "tau": ("algorithm.tau={value}",),
    "n_epochs": ("algorithm.epochs={value}",),
    "update_epochs": ("algorithm.epochs={value}",),
    "num_learning_epochs": ("algorithm.epochs={value}",),
    "num_minibatches": ("algorithm.minibatches={value}",),
    "num_mini_batches": ("algorithm.minibatches={value}",),
    "batch_size": ("algorithm.minibatches=N", "algorithm.batch_size={value}"),
    "polyak": ("algorithm.tau=N",),
    "net_arch": ("agent.hidden={value}",),
    "activation_fn": ("agent.activation={value}",),
    "norm_obs": ("agent.normalise_obs={value}",),
    "normalize_obs": ("agent.normalise_obs={value}",),
    "norm_reward": ("agent.normalise_reward={value}",),
    "normalize_reward": ("agent.normalise_reward={value}",),
    # How long, and in which rhythm.
    "total_timesteps": ("train.n_env_steps_total={value}",),
    "timesteps": ("train.n_env_steps_total={value}",),
    "max_env_steps": ("train.n_env_steps_total={value}",),
    "total_steps": ("train.n_env_steps_total={value}",),
    "n_steps": ("train.num_env_steps_per_iter=N",),
    "num_steps": ("train.num_env_steps_per_iter=N",),
    "buffer_size": ("train.buffer_size={value}",),
    "learning_starts": ("train.num_init_rollouts_pool=N",),
    "gradient_steps": ("train.updates_per_step=N",),
    "train_freq": ("train.num_rollouts_per_iter=N",),
    "utd": ("train.updates_per_step={value}",),
    "horizon": ("env.max_episode_steps={value}",),
    "max_steps": ("env.max_episode_steps={value}",),
    "eval_freq": ("evaluation.every={value}",),
    "n_eval_episodes": ("env.num_eval_tasks=N",),
    "save_freq": ("checkpoint_every={value}",),
    # What it runs on.
    "env_id": ("env={env}",),
    "num_tasks": ("env.num_train_tasks={value}",),
    "episodes_per_task": ("env.max_rollouts_per_task={value}",),
    "num_envs": ("num_slots={value}",),
    "num_workers": ("num_parallel_workers={value}",),
    "start_method": ("backend.start_method={value}",),
    "log_dir": ("hydra.run.dir={value}",),
    "output_dir": ("hydra.run.dir={value}",),
    "logdir": ("hydra.run.dir={value}",),
    "tensorboard_log": ("hydra.run.dir={value}",),
    "track": ("wandb.mode=online",),
}

NO_CHOICE = (
    "A recipe is not chosen: a run takes the one named <env>_<algorithm>, so choose env=, algorithm= or "
    "experiment= (recipe=list shows all)."
)

# Env steps of an episode in most families: a number of episodes is translated by it.
EPISODE = 200

# The number of an evaluation's tasks, under its own section: it is an option of the environment.
TASKS_OF_EVALUATION = {
    "evaluation.num_tasks": "env.num_eval_tasks={value}",
    "evaluation.num_eval_tasks": "env.num_eval_tasks={value}",
}

# What an option counts, by the other spelling, whose number may count something else.
REMARKS = {
    "target_kl": "it scales the step size and ends no epoch",
    "batch_size": "the gradient steps of an epoch",
    "n_steps": "env steps of all slots together",
    "num_steps": "env steps of all slots together",
    "learning_starts": "trials of random actions",
    "gradient_steps": "updates for each env step",
    "polyak": "1 - polyak: the part of the targets that is new",
    "train_freq": "trials of an iteration",
    "n_eval_episodes": "test tasks, each with one trial",
    "num_episodes": f"a run is measured in env steps, here those of episodes with {EPISODE}",
}


def answer(name: str, value: str | None, known: Collection[str]) -> str | None:
    """One sentence about an option that a run lacks; None for a name without a meaning anywhere.

    `known` are the options that the run has. Where no value is known, the answer has `VALUE` in its place.
    """
    if name == "recipe":
        return NO_CHOICE
    asked, last = name, name.rpartition(".")[2]
    if value is not None:
        asked = f"{name}={value}"
    words = translated(name, value or "VALUE", known)
    if words == "":
        return f"{asked} is not needed here, since every environment is one of trials: leave it out."

    # An option of another choice: `algorithm.clip` while the algorithm is SAC.
    option = name if words is None else words.partition("=")[0]
    owners = "" if option in {*known, *NAME_FIELDS} else " or ".join(choices_with(option))
    if words is None or option == name:
        return f"There is no option {name!r} in this run: it is one of {owners}." if owners else None

    # The same under another name, and what its number counts.
    sentence = f"{asked} is written {words} here"
    if name in RENAMED:
        sentence = f"{name} is now {option}: write {words}"
    remarks = [REMARKS[last]] if last in REMARKS else []
    if owners:
        remarks.append(f"an option of {owners}")
    if remarks:
        sentence += f" ({'; '.join(remarks)})"
    return f"{sentence}."


def translated(name: str, value: str, known: Collection[str] = ()) -> str | None:
    """The words that mean the same here: '' for an option to leave out, None for a name in no table."""
    # Old names are ours, with their section; the field's and the guides' words stand in any section, or none.
    if name in RENAMED:
        return f"{RENAMED[name]}={value}"
    section, _, last = name.rpartition(".")
    if name in TASKS_OF_EVALUATION:
        words = TASKS_OF_EVALUATION[name]
    elif section in ("", "env") and last in PUBLISHED:
        words = PUBLISHED[last]
    elif last in FIELD:
        # SAC and PPO may have different options for one word of the field.
        present = [words for words in FIELD[last] if words.partition("=")[0] in known]
        words = (present or list(FIELD[last]))[0]
    else:
        return None
    steps = str(int(value) * EPISODE) if value.isdecimal() else "N"
    return words.format(value=value, env=environment(value), steps=steps)


def environment(published: str) -> str:
    """The choice of env for a published id: `AntDir-v0` is AntDir, and `CartPole-v1` one of Gymnasium's."""
    # Published ids end in a version, which families here do not have; Gymnasium's own ids keep theirs.
    name = re.sub(r"-v\d+$", "", published)
    families = {family.lower(): family for family in FAMILIES}
    if name.lower() in families:
        return families[name.lower()]
    return f"Gymnasium env.id={published}" if name != published else published


def choices_with(option: str) -> list[str]:
    """The choices of a group that have an option which others lack: `algorithm=PPO` for `algorithm.clip`."""
    group, *rest = option.split(".")
    if group not in NAME_FIELDS:
        return []
    field = rest[0] if rest else ""
    return [f"{group}={name}" for name, node in schemas()[group].items() if hasattr(node, field)]


def without_dashes(words: Sequence[str], unknown: Collection[str]) -> str:
    """The command line with options in place of unknown flags, and what their numbers count here."""
    command: list[str] = []
    names: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word not in unknown or not word.startswith("-"):
            command.append(word)
            continue
        name, has_value, value = word.lstrip("-").partition("=")
        if not has_value:
            # The value is the next word, unless that is a flag or an option itself.
            value = "VALUE"
            if rest and not rest[0].startswith("-") and "=" not in rest[0]:
                value = rest.pop(0)
        name = name.replace("-", "_")
        names.append(name)
        here = translated(name, value)
        command.append(f"{name}={value}" if here is None else here)
    remarks = [REMARKS[name] for name in names if name in REMARKS]
    remark = f" ({'; '.join(remarks)})" if remarks else ""
    return " ".join(["python main.py", *filter(None, command)]) + remark
