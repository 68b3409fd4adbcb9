"""Environments: task families, trials, and the ways to step many of them.

`base.py` is the contract, and the first file to read. A family (`meta/`) is tasks and physics, vectorised
over slots; a backend (`backends/`) steps slots somewhere; `trial.py` makes k episodes of one task a trial;
`layout.py` says where everything stands in the rows; `ParallelEnvManager` puts these together, and
`interop/` has its faces to other libraries. Nothing under this package imports torch: a worker process must
start quickly and stay small.
"""
