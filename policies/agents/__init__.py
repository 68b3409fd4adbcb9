"""The registry of agent architectures: AGENT_ARCHS.Markov, .Memory and .Memory_Markov, all of them `Agent`s."""

from policies.agents.base import Arch

AGENT_ARCHS = Arch
