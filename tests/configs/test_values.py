"""One value at a time: the option exists, and the value is of its kind."""

from __future__ import annotations

import re

import pytest

from configs.compose import Composer
from configs.values import near_option, option_names
from envs.meta.mixtures.named_parts import checked_parts, named_parts
from policies.run.config import DeviceName
from utils.options import OptionError, shown


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("sed=3", "There is no option 'sed'. Did you mean 'seed'?"),
        ("num_wokers=4", "Did you mean 'num_parallel_workers'?"),
        ("lerning_rate=1", "Did you mean 'algorithm.learning_rate'?"),
        ("env.hidden=[4]", "Did you mean 'agent.hidden'?"),
        ("evn=AntDir", "Did you mean 'env'?"),
        ("qqqqqq=1", "All options: python main.py --help."),
        ("seed.more=1", "There is no option 'seed.more'."),
        ("+foo=1", "There is no option 'foo'."),
        ("+seed=1", "leave out the +"),
        ("~seed", "no option can be taken away"),
        ("seed=abc", "seed=abc should be a whole number."),
        ("seed=1.5", "seed=1.5 should be a whole number."),
        ("seed=1e3", "seed=1e3 should be a whole number, written 1000."),
        ("seed=true", "seed=true should be a whole number."),
        ("seed=null", "seed=null should be a whole number."),
        ("seed=", "seed= should be a whole number."),
        ("seed=???", "seed needs a value; it should be a whole number."),
        ("num_slots=a", "num_slots=a should be a whole number or null."),
        ("algorithm.discount=high", "should be a number."),
        ("deterministic=maybe", "should be true or false."),
        ("device=gpu", "device=gpu is not one of its values. Did you mean 'cpu'?"),
        ("agent.arch=memory", "Did you mean 'Memory'?"),
        ("agent.hidden=[a]", "agent.hidden=[a] should be a list such as ["),
        ("wandb.tags=a", "should be a list such as [a,b]."),
        ("train=5", "train is a section of options"),
        ("train={n_env: 5}", "Key 'n_env' not in 'TrainConfig'"),
    ],
)
def test_a_wrong_name_or_kind_is_one_sentence(composer: Composer, word: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        composer.dict_config(composer.parse([word]))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_may_be_forced_or_given_in_a_section(composer: Composer) -> None:
    config = composer.config(composer.parse(["++seed=2", "train={buffer_size: 9}"]))
    assert (config.seed, config.train.buffer_size) == (2, 9)


def test_option_names_are_dotted_and_complete(composer: Composer) -> None:
    names = option_names(composer.dict_config([]))
    assert {"seed", "env.max_episode_steps", "agent.hidden", "wandb.tags"} <= set(names)
    assert "env" not in names


def test_a_whole_name_elsewhere_is_nearer_than_a_similar_one() -> None:
    assert "'b.alpha'" in near_option("a.alpha", ["a.alpine", "b.alpha"])


def test_values_are_shown_as_they_are_typed() -> None:
    assert [shown(value) for value in (None, True, 3, 0.5, "x", [1, 2], DeviceName.cpu)] == [
        "null",
        "true",
        "3",
        "0.5",
        "x",
        "[1,2]",
        "cpu",
    ]


def test_the_names_of_parts_are_the_users_and_their_options_those_of_the_family(composer: Composer) -> None:
    words = ["env=Mixture", "env.parts.a.family=GridNavi", "env.parts.a.size=7", "env.parts.b=GridNavi"]
    config = composer.config(composer.parse(words))
    assert vars(config.env)["parts"] == {"a": {"family": "GridNavi", "size": 7}, "b": "GridNavi"}
    listed = composer.config(composer.parse(["env=Mixture", "env.parts=[GridNavi,DarkKeyDoor]"]))
    assert vars(listed.env)["parts"] == ["GridNavi", "DarkKeyDoor"]
    for word, sentence in (
        ("env.parts.a.sise=7", "env.parts.a has no option 'sise'. Did you mean 'size'?"),
        ("env.parts.b.size=7", "env.parts.b has no family"),
    ):
        with pytest.raises(OptionError, match=re.escape(sentence)):
            composer.config(composer.parse([*words[:3], word]))
    with pytest.raises(OptionError, match="it is one of env=Mixture"):
        composer.config(composer.parse(["env=GridNavi", "env.parts.a.family=Wind"]))


def test_pairs_in_a_list_may_be_typed_as_a_mapping(composer: Composer) -> None:
    words = [
        "env=OpenEnv",
        "env.urls=[http://127.0.0.1:9]",
        "env.observation={board:42}",
        "env.actions=[column:7]",
    ]
    read = composer.dict_config(composer.parse([*words, "env.headers_from_env={Authorization: HF_TOKEN}"]))
    assert read.env.headers_from_env == ["Authorization:HF_TOKEN"] and read.env.observation == ["board:42"]


def test_pairs_of_a_part_may_be_typed_as_a_mapping_too(composer: Composer) -> None:
    words = ["env=Mixture", "algorithm=PPO", "env.parts.a.family=Gymnasium", "env.parts.a.id=CartPole-v1"]
    read = composer.config(composer.parse([*words, "env.parts.a.info_names={angle: 2}"]))
    (part,) = checked_parts(named_parts(vars(read.env)["parts"]))
    assert vars(part.config)["info_names"] == ["angle:2"]
