"""HttpEnvClient: the guide's spelling over a session that is never stepped in doubt."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.remote.protocol import RemoteError, SessionLostError
from envs.remote.rollouts import HttpEnvClient
from envs.remote.service_setup import Limits, Patience
from tests.envs.remote.fake_server import FakeServer
from utils.options import OptionError

ROOT = Path(__file__).resolve().parents[4]


def test_an_episode_that_blocks_also_where_a_loop_runs() -> None:
    def episode() -> None:
        with HttpEnvClient(server.url) as client:
            assert client.reset(seed=7, task=2.0).observation["numbers"] == [7, 2.0, 0, 0]
            answer = client.step({"column": 3})
            assert (answer.observation["numbers"][2:], answer.reward, answer.done) == ([1, 3.0], 3.0, False)
            assert client.step(SimpleNamespace(model_dump=lambda: {"column": 1})).reward == 4.0

    async def in_a_notebook() -> None:
        episode()

    with FakeServer() as server:
        episode()
        asyncio.run(in_a_notebook())
        assert not server.open


def test_a_step_in_doubt_is_never_sent_again() -> None:
    with FakeServer(lambda session, message, index: "hang" if (session, index) == (0, 1) else None) as server:
        with HttpEnvClient(server.url, patience=Patience(message_s=2.0)) as client:
            client.reset()
            with pytest.raises(SessionLostError, match="no answer within 2 s"):
                client.step({"column": 1})
            with pytest.raises(SessionLostError, match="a reset opens one"):
                client.step({"column": 1})
            client.reset()
            client.step({"column": 2})
        assert server.steps() == [(0, {"column": 1}), (1, {"column": 2})]


def test_a_client_is_closed_reset_again_and_awaited_by_any_loop() -> None:
    async def episode() -> Any:
        await client.reset_async(seed=1)
        return (await client.step_async({"column": 2})).reward

    with FakeServer() as server:
        client = HttpEnvClient(server.url)
        client.close()
        assert asyncio.run(episode()) == asyncio.run(episode()) == 2.0 and server.sessions == 1
        client.close()
        client.reset()
        assert server.sessions == 2
        asyncio.run(client.close_async())
        client.close()


def test_an_awaited_step_that_is_cancelled_ends_the_session() -> None:
    async def work() -> None:
        await client.reset_async()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.step_async({"column": 1}), 0.2)
        with pytest.raises(SessionLostError, match="a reset opens one"):
            await client.step_async({"column": 1})

    with FakeServer(lambda session, message, index: "hang" if index == 1 else None) as server:
        client = HttpEnvClient(server.url)
        asyncio.run(work())
        client.close()


def test_a_client_that_is_forgotten_gives_its_seat_back() -> None:
    with FakeServer() as server:
        HttpEnvClient(server.url).reset()
        gc.collect()
        deadline = time.monotonic() + 60.0
        while server.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not server.open


def test_clients_with_the_same_limits_keep_them_together() -> None:
    with FakeServer(lambda session, message, index: 0.02) as server:
        limits = Limits(min_interval_s=0.05)
        clients = [HttpEnvClient(server.url, limits=limits) for _ in range(2)]
        began = time.monotonic()
        for client in clients * 2:
            client.reset()
        assert time.monotonic() - began >= 3 * 0.05
        for client in clients:
            client.close()


def test_wrong_addresses_and_actions_are_sentences() -> None:
    with pytest.raises(OptionError, match="is no address of a server"):
        HttpEnvClient("localhost")
    with FakeServer() as server, HttpEnvClient(server.url, headers={"Authorization": "secret"}) as client:
        with pytest.raises(RemoteError, match=r"An action is a dict of its fields.*not 3"):
            client.step(3)
        client.reset()
        assert "secret" not in repr(client) and server.headers[0]["Authorization"] == "secret"


PROGRAM = """
from envs.loop_thread import LoopThread
from envs.remote.rollouts import HttpEnvClient

end = LoopThread.end

def end_at_once(self, last=None):  # the loop is gone before the client is looked at
    end(self, last)
    self.thread.join()

LoopThread.end = end_at_once
client = HttpEnvClient({url!r})
print(client.reset(seed=7).observation["numbers"])
"""


def test_a_program_that_ends_without_close_says_nothing_of_it() -> None:
    with FakeServer() as server:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(url=server.url)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "[7, 0.0, 0, 0.0]\n", "")


def test_all_names_come_by_a_star_and_the_import_alone_is_light() -> None:
    code = """
import sys
import envs.remote.rollouts
assert not {"torch", "buffers.rollout_tensors", "envs.interop.openenv_wrapper"} & set(sys.modules)
from envs.remote.rollouts import *
assert callable(pad) and callable(OpenEnvGymnasiumWrapper) and callable(HttpEnvClient)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
