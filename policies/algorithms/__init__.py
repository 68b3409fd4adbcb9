"""The registry of algorithms: how an agent learns."""

from policies.algorithms.base import Algorithm
from policies.algorithms.sac import SAC

ALGORITHMS: dict[str, type[Algorithm]] = {"SAC": SAC}
