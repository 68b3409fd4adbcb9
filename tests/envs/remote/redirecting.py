"""A server that answers every request by the address of another one, or of another of its pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def redirecting(target: str, *, page: str = "") -> Iterator[str]:
    """The address of a server that leads to `target` from everywhere but from `page`, which is `{}`."""

    class Redirects(BaseHTTPRequestHandler):
        # What opens a session takes no other.
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            is_there = self.path == page
            self.send_response(200 if is_there else 302)
            if not is_there:
                self.send_header("Location", target)
            self.send_header("Content-Length", "2")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirects) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
