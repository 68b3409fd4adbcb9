"""Cyber defence: the network, the agents of red, and the family in which blue defends the one."""
