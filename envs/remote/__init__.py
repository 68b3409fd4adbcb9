"""Environments that are services: the OpenEnv protocol, sessions that are safe, and servers of our own."""
