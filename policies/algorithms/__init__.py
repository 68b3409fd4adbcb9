"""The registry of algorithms: how an agent learns."""

from policies.algorithms.base import Algorithm
from policies.algorithms.discrete_sac import DiscreteSAC
from policies.algorithms.dqn import DQN
from policies.algorithms.ppo import PPO
from policies.algorithms.sac import SAC
from policies.algorithms.td3 import TD3

# The names are what `algorithm=` takes. Every test that runs over the registry covers a new line too.
ALGORITHMS: dict[str, type[Algorithm]] = {
    "SAC": SAC,
    "TD3": TD3,
    "DiscreteSAC": DiscreteSAC,
    "DQN": DQN,
    "PPO": PPO,
}
