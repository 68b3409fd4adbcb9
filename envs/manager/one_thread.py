"""One thread at a time: a second one that calls in meanwhile gets an error, as does one after the end."""

from __future__ import annotations

import threading


class OneThread:
    """A context manager around every call; the calls of a manager change arrays that no lock protects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_inside = 0
        # Set to True, no thread gets in any more.
        self.closed = False

    def __enter__(self) -> None:
        self.check_open()
        # It does not wait for its turn: two threads that share a manager are a mistake, not a queue.
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "Another thread is in the middle of a call to this manager; one thread at a time."
            )
        self._thread_inside = threading.get_ident()  # `wait_until_free` must not wait for itself
        # It may have been closed between the check and the lock.
        if self.closed:
            self.leave()
            self.check_open()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place inside free."""
        self._thread_inside = 0
        self._lock.release()

    def check_open(self) -> None:
        """An error after the end."""
        if self.closed:
            raise RuntimeError("The manager is closed.")

    def wait_until_free(self, timeout: float) -> bool:
        """Wait until the thread inside has left, and take its place; whether that came true in time.

        From within a call (a recovery that failed) there is no other thread to wait for: False at once.
        """
        if self._thread_inside == threading.get_ident():
            return False
        return self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
