"""How fast this machine multiplies matrices."""

from __future__ import annotations

from time import perf_counter

import torch

SIZE = 1024
TIMES = 20


def gemm_peak(threads: int) -> float:
    """GFLOP/s of a large product in fp32, the best of some; leaves one thread."""
    torch.set_num_threads(threads)
    left, right = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    best = float("inf")
    for _ in range(TIMES):
        before = perf_counter()
        _ = left @ right
        best = min(best, perf_counter() - before)
    torch.set_num_threads(1)
    return 2 * SIZE**3 / best / 1e9
