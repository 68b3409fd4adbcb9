"""A search for settings: many runs, of which each tries what the ones before it make look promising.

`space.py` reads what may be tried, `command.py` checks all of it before anything is made, `study.py` keeps
the study in a file that several processes share, `running.py` makes the runs, `results.py` what they came to.
"""
