"""The command line of the servers: python -m envs.remote.servers.<name> --port 8000."""

from __future__ import annotations

import argparse
from typing import Any

# So many sessions at the same time, each with an environment of its own.
SEATS = 1024


def serve(app: Any, what: str, argv: list[str] | None = None) -> None:
    """Serve an app on this machine until it is interrupted."""
    import uvicorn  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    chosen = parser.parse_args(argv)
    uvicorn.run(app, host=chosen.host, port=chosen.port, log_level="warning")
