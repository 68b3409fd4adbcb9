"""Storage of rows, and the batches that an algorithm learns from."""
