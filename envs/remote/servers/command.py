"""The command line of the servers: python -m envs.remote.servers.<name> --port 8000 --seats 64."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

# The variable that says how many seats a server has which is started as module:app, by uvicorn or serve=.
SEATS = "RETRIAL_SEATS"
# Without it: so many sessions at the same time, each with an environment of its own.
DEFAULT_SEATS = 1024
# As uvicorn has it: a session whose pings are unanswered for so long gives its seat back.
PING_S = 20.0


def seats_told() -> int:
    """How many seats a server has that is started as module:app."""
    told = os.environ.get(SEATS, str(DEFAULT_SEATS))
    if not told.isdecimal() or int(told) < 1:
        raise ValueError(f"{SEATS}={told} is no number of seats: it has to be 1 at least.")
    return int(told)


def serve(make_app: Callable[..., Any], what: str, argv: list[str] | None = None) -> None:
    """Serve what `make_app(max_concurrent_envs=seats)` gives on this machine until it is interrupted."""
    import uvicorn  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument(
        "--seats",
        type=_at_least_one,
        default=seats_told(),
        help=f"how many sessions at the same time (default: ${SEATS}, or {DEFAULT_SEATS})",
    )
    parser.add_argument(
        "--ping-s",
        type=float,
        default=PING_S,
        help=f"seconds between two pings, and for which an answer is waited for (default: {PING_S:g})",
    )
    chosen = parser.parse_args(argv)
    uvicorn.run(
        make_app(max_concurrent_envs=chosen.seats),
        host=chosen.host,
        port=chosen.port,
        log_level="warning",
        ws_ping_interval=chosen.ping_s,
        ws_ping_timeout=chosen.ping_s,
    )


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of seats: it has to be 1 at least")
    return int(text)
