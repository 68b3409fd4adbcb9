"""Play: a trained agent, to be stepped by hand in anybody's loop."""

from policies.play.player import Player, load_agent, save_agent
from policies.play.rows import PlayError

__all__ = ["PlayError", "Player", "load_agent", "save_agent"]
