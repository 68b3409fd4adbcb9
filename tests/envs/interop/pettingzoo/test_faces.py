"""The faces of PettingZoo have one address, and need no package to be imported."""

from __future__ import annotations

import subprocess
import sys

from envs.interop import pettingzoo

CHECK = """
import sys
import envs.interop.pettingzoo
print(sorted({"pettingzoo", "torch"} & set(sys.modules)))
"""


def test_all_names_are_there_and_neither_torch_nor_pettingzoo_is_imported() -> None:
    assert all(callable(getattr(pettingzoo, name)) for name in pettingzoo.__all__)
    said = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_the_family_brings_no_backend() -> None:
    check = "import sys, envs.meta; print([name for name in sys.modules if name.startswith('envs.backends')])"
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_an_unknown_face_is_no_attribute() -> None:
    assert not hasattr(pettingzoo, "AsyncVecEnv")
