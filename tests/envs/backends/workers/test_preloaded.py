"""What a program starts through the forkserver of its workers can be terminated, as with any other."""

from __future__ import annotations

from pathlib import Path

from tests.envs.backends.workers.test_launch import run


def test_a_pool_of_the_program_itself_can_be_terminated(tmp_path: Path) -> None:
    """It has the same forkserver, which blocks SIGTERM for its workers."""
    text = """
import multiprocessing
if __name__ == "__main__":
    with manage(CountingFamily()), multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.apply(signal.pthread_sigmask, (signal.SIG_BLOCK, ())))
"""
    code, out, err = run(tmp_path, text, "forkserver")
    assert (code, out.splitlines()[-1], err) == (0, "set()", "")
