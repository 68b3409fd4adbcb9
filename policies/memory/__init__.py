"""The registry of memories: what an agent can remember with."""

from policies.memory.base import Memory
from policies.memory.gru import GRU

MEMORIES: dict[str, type[Memory]] = {"GRU": GRU}
