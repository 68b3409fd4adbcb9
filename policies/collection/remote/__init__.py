"""Collection by several actors, each with environments and a copy of the agent of its own."""

from policies.collection.remote.pool import ActorPool
from policies.collection.remote.processes import ProcessPool
from policies.collection.remote.ray_cluster import RayPool
from policies.run.config import Config

# Where actors may be, by the name that users type; `local` has none.
POOLS: dict[str, type[ActorPool]] = {"processes": ProcessPool, "ray": RayPool}


def pool_of(config: Config) -> ActorPool | None:
    """The pool of a run's actors; None where it collects by itself."""
    name = config.collector.name
    return None if name == "local" else POOLS[name](config)
