"""The registry of agent architectures, all of them `Agent`s: Markov, Memory and Memory_Markov."""

from policies.agents.base import Arch

AGENT_ARCHS = Arch
