"""Sweeps: many runs by one command, in whatever processes a launcher starts for them.

`plan.py` checks all jobs before the first one starts, `start.py` is the command that the user has typed, and
`job.py` is one job, in its own process.
"""
