"""Threads and event loops of this process that step environments."""
