"""A run on disk and in time: config, sizes, training loop, checkpoints, record."""
