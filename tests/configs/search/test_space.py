"""The space of a search is what Hydra's words for sweeps say, with its ends."""

from __future__ import annotations

import pytest

from configs.compose import Composer
from configs.search.space import Choice, Range, space_of, to_check, words_of
from utils.options import OptionError

WORDS = {
    "algorithm.learning_rate=interval(1e-4,1e-2)": Range(1e-4, 1e-2),
    "algorithm.learning_rate=tag(log,interval(1e-4,1e-2))": Range(1e-4, 1e-2, log=True),
    "memory.hidden_size=tag(log,int(interval(16,256)))": Range(16, 256, log=True),
    "memory.hidden_size=range(16,65,16)": Range(16, 64, step=16),
    "algorithm.discount=range(0.1,0.5,0.1)": Range(0.1, 0.4, step=0.1),
    "algorithm=choice(SAC,PPO)": Choice(("SAC", "PPO")),
    "agent.hidden=[64],[128,128]": Choice(("[64]", "[128,128]")),
}
MISTAKES = {
    "memory.hidden_size=range(64,16)": "gives no values",
    "algorithm.learning_rate=interval(1e-2,1e-4)": "its start has to be less than its end",
    "algorithm.learning_rate=tag(log,interval(0,1))": "it has to start above 0",
    "memory.hidden_size=tag(log,range(16,64,16))": r"write \S+=tag\(log,int\(interval\(16,48\)\)\)",
}


def space_in(*words: str) -> dict[str, Range | Choice]:
    with Composer() as composer:
        return space_of(composer.parse(words))


@pytest.mark.parametrize("word", WORDS)
def test_a_word_says_what_is_searched(word: str) -> None:
    expected = WORDS[word]
    (found,) = space_in(word).values()
    assert found == expected
    if isinstance(expected, Range) and isinstance(found, Range):
        # Whole numbers stay whole, or an option that takes nothing else would refuse them.
        assert (type(found.low), found.is_whole) == (type(expected.low), expected.is_whole)


def test_what_has_one_value_is_not_searched() -> None:
    assert space_in("seed=3", "env=Wind") == {}


@pytest.mark.parametrize("word", MISTAKES)
def test_a_space_that_cannot_be_searched_is_a_sentence(word: str) -> None:
    with pytest.raises(OptionError, match=MISTAKES[word]):
        space_in(word)


def test_every_end_is_checked_once_beside_the_first_ends_of_the_others() -> None:
    space = {"rate": Range(0.1, 0.2), "arch": Choice(("a", "b", "c"))}
    assert [words_of(values) for values in to_check(space)] == [
        ["rate=0.1", "arch=a"],
        ["rate=0.2", "arch=a"],
        ["rate=0.1", "arch=b"],
        ["rate=0.1", "arch=c"],
    ]
