"""What cannot stand together is refused before anything is created."""

from __future__ import annotations

import pytest
import torch

from configs.compose import Composer
from utils.options import OptionError

CONTRADICTIONS = [
    ("seed=-1", "seed=-1 is out of range: it must be at least 0."),
    ("algorithm.discount=nan", "algorithm.discount=nan is out of range"),
    ("algorithm.discount=1.1", "at most 1"),
    ("agent.hidden=[0]", "agent.hidden=0 is out of range"),
    ("num_parallel_workers=0", "num_parallel_workers=0 is out of range"),
    ("num_parallel_workers=6 num_slots=4", "num_parallel_workers=6 is more than num_slots=4"),
    ("algorithm=SAC num_parallel_workers=40 train.num_rollouts_per_iter=24", "more than the 24 slots"),
    (
        "backend=serial num_parallel_workers=6",
        "backend=serial steps in this process, so num_parallel_workers=6 contradicts it",
    ),
    ("backend=process backend.threads=2", "backend.threads=2 is for stepping in this process"),
    ("backend=asyncio num_parallel_workers=2", "backend=asyncio steps in this process"),
    ("backend=process backend.min_ready=3 deterministic=true", "deterministic=true refuses it"),
    ("backend=serial backend.min_ready=3", "min_ready has no meaning on backend=serial"),
    ("backend=process backend.min_ready=3 num_groups=2", "exclude each other"),
    ("backend=process backend.min_ready=1000", "can never be reached"),
    ("backend.on_fault=drop deterministic=true", "on_fault=drop gives trials up"),
    ("num_groups=4 num_slots=6 num_parallel_workers=2", "needs a slot of every group in each of 2 workers"),
    (
        "env=Gymnasium env.id=CartPole-v1",
        "algorithm=SAC cannot learn discrete actions, those of env=Gymnasium (Discrete(2)): "
        "use algorithm=DiscreteSAC",
    ),
    ("env=GridNavi algorithm=SAC", "algorithm=SAC cannot learn discrete actions, those of env=GridNavi"),
    (
        "env=Wind algorithm=DiscreteSAC",
        "algorithm=DiscreteSAC cannot learn continuous actions, those of env=Wind",
    ),
    ("algorithm=DiscreteSAC", "use algorithm=SAC"),
    ("env=GridNavi algorithm=DQN agent=Memory_Markov", "algorithm=DQN acts by its critic"),
    (
        "algorithm=TD3 algorithm.critics_in_target=3",
        "algorithm.critics_in_target=3 is more than algorithm.critics=2",
    ),
    (
        "agent=Markov agent.task_inference.weight=1",
        "agent.task_inference.weight is for a memory, which agent=Markov does not have",
    ),
    (
        "agent.task_inference.heads_read=belief",
        "needs a belief that learns: set agent.task_inference.weight, to 1 for instance",
    ),
    ("agent.task_inference.hidden=[0]", "agent.task_inference.hidden=0 is out of range"),
    (
        "env=PassiveVisualMatch agent.task_inference.weight=1 "
        "agent.task_inference.decode=reward_and_transition",
        "Next observations are decoded where they are vectors, and here is a picture: "
        "use agent.task_inference.decode=reward.",
    ),
    (
        "agent=Memory_Markov agent.encoders=shared",
        "agent.encoders=shared needs an actor and a critic that both remember",
    ),
    (
        "agent=Markov agent.conditioning=film",
        "agent=Markov has no memory: use agent=Memory, or concatenate",
    ),
    ("agent.conditioning=hypernetwork agent.shortcut_embedding=0", "makes a network of the current row"),
    (
        "memory=Transformer memory.max_rows=402 env=Wind env.max_episode_steps=1000",
        "memory.max_rows=402 has no room for the",
    ),
    (
        "algorithm=SAC memory=Transformer algorithm.window=8 algorithm.window_start=stored",
        "memory=Transformer has no state that is worth storing",
    ),
    ("memory=Transformer memory.head_size=3", "memory.head_size=3 is odd"),
    (
        "memory=DiagonalRecurrence memory.quickest=20 memory.longest=10",
        "memory.quickest=20.0 is more than memory.longest=10.0: exchange them",
    ),
    (
        "algorithm=SAC algorithm.window_start=stored",
        "algorithm.window_start=stored is where windows start, and algorithm.window=0 takes whole trials",
    ),
    (
        "algorithm=SAC agent=Memory_Markov algorithm.window=8 algorithm.window_start=stored",
        "in agent=Memory_Markov it remembers nothing: use zero",
    ),
    (
        "algorithm=SAC algorithm.window=8 algorithm.window_start=stored algorithm.state_every=3",
        "algorithm.state_every=3 does not divide algorithm.window=8",
    ),
    (
        "algorithm=SAC algorithm.burn_in=4",
        "algorithm.burn_in=4 goes before a window, and algorithm.window=0 takes whole trials",
    ),
    ("agent.conditioning=film agent.precision=bfloat16", "agent.precision=bfloat16 is for plain layers"),
    (
        "algorithm=PPO algorithm.window=1 agent.task_inference.weight=1",
        "a window of algorithm.window=1 has one row: use at least 2",
    ),
    (
        "experiment=cyber_defence_hidden algorithm=DQN",
        "experiment=cyber_defence_hidden sets",
    ),
    (
        "algorithm=SAC agent.standardise_reward=true",
        "agent.standardise_reward=true is for algorithm=PPO, and SAC has target networks",
    ),
    ("algorithm=PPO learner.overlap=bounded", "learner.overlap=bounded has waves played by an older policy"),
    ("backend.name=proces", "backend=proces is not known. Did you mean 'process'?"),
    (
        "env=Mixture env.parts.far.family=OpenEnv env.parts.far.patience_s=60",
        "env.parts.far.patience_s=60 is not below backend.call_timeout_s=60, so a call",
    ),
    ("env=OpenEnv env.patience_s=60", "env.patience_s=60 is not below backend.call_timeout_s=60, so a call"),
    (
        "env=OpenEnv backend.call_timeout_s=50",
        "env.message_timeout_s=50 is not below backend.call_timeout_s=50",
    ),
    ("env.family=Wind", "choose with env=Wind"),
    ("env.family=Wnd", "env=Wnd is not known. Did you mean 'Wind'?"),
    (
        "agent.action_embedding=0 agent.reward_embedding=0 agent.obs_embedding=0",
        "The memory would read nothing",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), CONTRADICTIONS, ids=[words for words, _ in CONTRADICTIONS])
def test_a_contradiction_is_one_sentence(composer: Composer, words: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        composer.config(composer.parse(words.split()))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "num_parallel_workers=4 num_slots=4",
        "backend=serial num_parallel_workers=1 backend.threads=2",
        "backend=process num_parallel_workers=1",
        "agent=Markov agent.action_embedding=0 agent.reward_embedding=0 agent.obs_embedding=0",
        "algorithm.discount=1",
    ],
)
def test_what_only_looks_like_a_contradiction_is_accepted(composer: Composer, words: str) -> None:
    assert composer.config(composer.parse(words.split()))


@pytest.mark.parametrize(
    ("device", "probe"), [("cuda", "torch.cuda.is_available"), ("mps", "torch.backends.mps.is_available")]
)
def test_a_device_must_be_there(
    composer: Composer, monkeypatch: pytest.MonkeyPatch, device: str, probe: str
) -> None:
    monkeypatch.setattr(probe, lambda: False)
    with pytest.raises(OptionError, match=f"device={device} was asked for"):
        composer.config(composer.parse([f"device={device}"]))
    monkeypatch.setattr(probe, lambda: True)
    assert composer.config(composer.parse([f"device={device}"])).device.name == device


def test_a_start_method_must_exist_here(composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(OptionError, match="does not exist on this system, which has spawn"):
        composer.config(composer.parse(["backend.start_method=fork"]))


def test_torch_is_not_asked_for_devices_that_nobody_wants(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> bool:
        raise AssertionError

    monkeypatch.setattr(torch.cuda, "is_available", refuse)
    assert composer.config(composer.parse(["device=cpu"]))


def test_a_familys_own_refusal_counts(composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    from envs.meta import FAMILIES

    def refuse(self: object, config: object) -> None:
        raise OptionError("not with these options")

    monkeypatch.setattr(FAMILIES["PointRobot"], "__init__", refuse)
    with pytest.raises(OptionError, match="not with these options"):
        composer.config(composer.parse(["env=PointRobot"]))
