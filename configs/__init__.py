"""The front of Retrial: YAML for every choice, and code that makes a checked `Config` of a command line.

`config.yaml` composes a run; each folder is one choice (`env=`, `agent=`, `algorithm=`, `memory=`,
`backend=`, `experiment=`), or the recipes of environments with algorithms. The names, types, defaults and
help of all options stand in the dataclasses beside the code that they configure; YAML holds only departures
from them. An `env/` file may also change the defaults of training and learning, in options that every
algorithm and memory has, and name the algorithm that its actions need (`override /algorithm: DiscreteSAC`),
over which `algorithm=` on the command line wins. To add a choice: register the class; a YAML file of its
name is needed only for departures. Hydra and OmegaConf end here and in `main.py`: everything below gets
plain dataclasses.

Read in this order: `schema.py` (what there is), `compose.py` (from words to `Config`), `values.py` (one
option), `validation.py` (what may stand together), `runs.py` (resume= and evaluate=), `cli.py` (the whole
command line), `sweep/` (many runs), `help.py` (--help and env=list),
`spellings.py` (how options are called elsewhere), `hydra_private.py` (the parts of Hydra that may change).
"""
