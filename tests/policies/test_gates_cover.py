"""Every family has a learning gate, or stands here with the reason why it has none."""

from __future__ import annotations

from configs.compose import Composer
from envs.meta import FAMILIES
from tests.policies.test_learning import GATES

# Families without a gate, and why.
EXCEPTIONS = {
    "CybORG": "needs the original simulator, which no package index has; CyberDefence plays the same game",
    "MetaWorld": "needs an environment of its own, and hours",
    "OpenEnv": "its recorded runs are in docs/services.md, and servers are tested apart from learning",
}


def covered() -> set[str]:
    """The families of the gates that have to reach a return; a control alone shows nothing."""
    words = {word for gate in GATES if gate.least is not None for word in gate.words.split()}
    with Composer() as composer:  # composed only, so that no package of others is needed
        families = {composer.family(word[4:]) for word in words if word.startswith("env=")}
        experiments = [composer.parse([word]) for word in words if word.startswith("experiment=")]
        return families | {str(composer.dict_config(one).env.family) for one in experiments}


def test_every_family_has_a_gate_or_a_reason_for_none() -> None:
    without = set(FAMILIES) - covered()
    assert without == set(EXCEPTIONS), "families without a gate, and those with a reason for it"


def test_reasons_are_given_for_families_that_exist() -> None:
    assert set(EXCEPTIONS) <= set(FAMILIES) and all(EXCEPTIONS.values())
