"""The inside of the manager, which only `envs/parallel_env_manager.py` imports.

`stepping.py` posts commands and collects rows (read it first; with `min_ready` it waits by `first_ready.py`),
`recovery.py` cures faults with what
`history.py` has recorded, `memory_limit.py` finds workers that leak, `blocks.py` says which factory makes
which slots, and `checks.py` refuses wrong calls.
"""
