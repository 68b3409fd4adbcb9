"""The inside of the manager, which only `envs/parallel_env_manager.py` imports.

`stepping.py` posts commands and collects rows: read it first. `recovery.py` cures faults with what
`history.py` has recorded. `limits.py` refuses a second thread, waits for `min_ready` and finds workers that
leak, `blocks.py` says which factory makes which slots, and `checks.py` refuses wrong calls.
"""
