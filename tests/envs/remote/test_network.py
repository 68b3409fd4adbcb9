"""What lies between a session and its server: a line that goes dead without a word, and TLS."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from envs.remote.protocol import RemoteError, SessionLostError
from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from envs.remote.service_setup import Patience
from envs.remote.session import Session
from tests.envs.remote.dead_line import DeadLine
from tests.envs.remote.fake_server import FakeServer
from tests.envs.remote.redirecting import redirecting
from tests.envs.remote.rollouts.clients import column


def test_a_line_that_goes_dead_ends_the_session_and_gives_its_seat_back() -> None:
    """A half-open socket: neither end is told. A server notices by its pings, a session by its time-out.

    `servers/test_seats.py` has it with a real server, which has to give the seat back within 3 s.
    """

    async def work(server: FakeServer) -> None:
        async with DeadLine(server.port) as line:
            session = Session(line.url, Patience(message_s=0.5, total_s=20.0))
            await session.reset({"seed": 7})
            await session.step({"column": 1})
            line.die()
            with pytest.raises(SessionLostError, match=r"gave no answer within 0\.5 s"):
                await session.step({"column": 2})
            deadline = time.monotonic() + 60.0
            while server.open and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            assert not server.open
            # The step that was swallowed is not sent again on the line that comes next.
            await session.reset({"seed": 8})
            assert (await session.step({"column": 3})).observation["numbers"] == [8, 0, 1, 3]
            await session.close()
        assert [data["column"] for _, data in server.steps()] == [1, 3]

    with FakeServer(ping_s=0.5) as server:
        asyncio.run(work(server))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_session_is_not_opened_where_another_server_leads_it(host: str) -> None:
    """No header goes there, whatever its name, and the reset does not wait until its patience is over."""

    async def work(session: Session) -> str:
        with pytest.raises(RemoteError) as caught:
            await session.reset()
        return str(caught.value)

    with FakeServer() as other, redirecting(f"ws://{host}:{other.port}/ws") as url:
        began = time.monotonic()
        headers = {"Authorization": "Bearer secret", "X-Key": "secret"}
        said = asyncio.run(work(Session(url, Patience(total_s=30.0), headers=headers)))
        asked = url.replace("http", "ws")
        assert said.startswith(f"{asked} redirects to ws://{host}:{other.port}, which")
        assert time.monotonic() - began < 20.0 and not other.headers and not other.sessions


def certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1, which is its own authority."""
    x509: Any = pytest.importorskip("cryptography.x509")
    ec: Any = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    hashes: Any = pytest.importorskip("cryptography.hazmat.primitives.hashes")
    serialization: Any = pytest.importorskip("cryptography.hazmat.primitives.serialization")

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "both.pem").write_bytes(private + made.public_bytes(pem))
    return folder / "both.pem"


@pytest.mark.peers
def test_https_is_tls_and_who_is_not_trusted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with FakeServer(tls=tls) as server:
        stranger = HttpEnvClient(server.url, patience=Patience(total_s=0.5))
        with pytest.raises(SessionLostError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.reset()
        stranger.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        clients: list[Any] = [HttpEnvClient(server.url) for _ in range(2)]
        with ParallelRolloutCollector() as collector:
            _, stats = collector.collect_with_stats(clients, column)
        assert server.url.startswith("https") and stats.total_steps == 10
        for client in clients:
            client.close()
