"""The pages of a server: its health, its schema and its Task API, read with the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any

from envs.remote.protocol import RemoteError, http_url, is_local, refused_redirect, shown_url
from utils.options import OptionError

PAGE_S = 10.0
# A page that is larger is none of these.
MOST_BYTES = 10_000_000


def get_json(url: str, page: str, headers: Mapping[str, str]) -> Any:
    """What a page says; None where the server has no such page."""
    return _asked(url, urllib.request.Request(http_url(url, page), headers=dict(headers)))


def post_json(url: str, page: str, data: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
    """The answer to a question that is sent as JSON."""
    body, told = json.dumps(data).encode(), {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(http_url(url, page), data=body, headers=told)
    answer = _asked(url, request)
    if answer is None:
        raise RemoteError(f"{shown_url(url)} has no page {page}.")
    return answer


def is_healthy(url: str) -> bool:
    """Whether a server says that it is there."""
    try:
        return get_json(url, "health", {}) is not None
    except RemoteError:
        return False


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a server to another of its pages only: the library would hand all headers to anybody."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            said = refused_redirect(req.full_url, newurl)
        except OptionError:  # of a kind that no server has
            said = f"{shown_url(req.full_url)} redirects to what is no address of a server"
        if said is None:
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        fp.close()
        raise RemoteError(f"{said}.")


def _asked(url: str, request: urllib.request.Request) -> Any:
    handlers: list[urllib.request.BaseHandler] = [_SameOrigin()]
    # A proxy leads away from this machine.
    if is_local(url):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=PAGE_S) as response:
            return json.loads(response.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (404, 405, 501):
                return None
            raise RemoteError(f"{shown_url(url)} answered {error.code} {error.reason}.") from None
    except (OSError, ValueError) as error:
        raise RemoteError(f"{shown_url(url)} cannot be read: {error}.") from None
