"""The pictures of the pages, drawn as what they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from benchmarks.pages.svg import FAINT, INK, Drawing
from policies.agents.base import AgentConfig

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"


def draw_row() -> Drawing:
    """The way of a row, from the environment to the gradient."""
    drawing = Drawing(1000, 400, "The way of a row")
    drawing.words(24, 34, "The way of a row", bold=True, size=18, anchor="start")
    drawing.words(24, 54, "three hops, and one change of format", colour=FAINT, anchor="start")
    cards = [
        (24, "blue", "Shard.step", ["writes obs, reward,", "terminated, truncated,", "info of its slots"]),
        (
            276,
            "blue",
            "Rows of N slots",
            ["the clock adds the flags,", "Recovery remembers", "what is needed to re-run"],
        ),
        (
            528,
            "green",
            "Replay, RolloutBuffer",
            ["the rows of a trial", "one after another,", "each observation once"],
        ),
        (780, "violet", "Batch [T, B]", ["time first, padded,", "with the stored", "memory state"]),
    ]
    for x, colour, head, body in cards:
        drawing.card(x, 110, 196, 100, colour, head, body)
    hops = [("hop 1", "shared memory"), ("hop 2", "write: a copy"), ("hop 3", "sample")]
    for number, (hop, how) in enumerate(hops):
        start = 220 + 252 * number
        drawing.arrow((start, 160), (start + 56, 160))
        drawing.words(start + 28, 100, hop, size=12, bold=True)
        drawing.words(start + 28, 226, how, size=11, colour=FAINT)
    for start, stop, words in ((24, 472, "numpy"), (528, 976, "torch")):
        drawing.arrow((start, 82), (stop, 82), head=False, colour=FAINT)
        drawing.words((start + stop) / 2, 76, words, size=12, colour=FAINT)
    # The loop of acting: the newest rows go to the agent, and its actions go back to the shards.
    drawing.card(276, 280, 196, 92, "amber", "Agent.act", ["all N rows at once,", "a memory state per slot"])
    drawing.arrow((374, 210), (374, 280))
    drawing.words(384, 250, "newest rows", size=12, anchor="start")
    drawing.arrow((276, 326), (122, 326), (122, 210))
    drawing.words(199, 318, "actions", size=12)
    drawing.arrow((472, 326), (626, 326), (626, 210), dashed=True)
    drawing.words(549, 318, "actions, extras", size=12)
    drawing.card(780, 280, 196, 92, "violet", "the loss", ["Agent.unroll, targets,", "gradient step"])
    drawing.arrow((878, 210), (878, 280))
    drawing.arrow((780, 350), (472, 350), dashed=True)
    drawing.words(640, 366, "new weights", size=12)
    return drawing


def draw_trial() -> Drawing:
    """One trial of two episodes, row by row, with its flags."""
    names = ("start", "step", "step", "end", "start", "step", "step", "end")
    flags: list[tuple[str, str, Sequence[int]]] = [
        ("episode_start", "blue", (1, 0, 0, 0, 1, 0, 0, 0)),
        ("trial_start", "violet", (1, 0, 0, 0, 0, 0, 0, 0)),
        ("ended", "amber", (0, 0, 0, 1, 0, 0, 0, 1)),
        ("trial_end", "red", (0, 0, 0, 0, 0, 0, 0, 1)),
        ("action counts", "green", (1, 1, 1, 0, 1, 1, 1, 0)),
    ]
    drawing = Drawing(1000, 470, "One trial, row by row")
    drawing.words(24, 34, "One trial of two episodes, row by row", bold=True, size=18, anchor="start")
    drawing.words(24, 54, "k = 2, and H = 3 steps in an episode", colour=FAINT, anchor="start")
    left, step = 190, 98
    for episode, start in enumerate((0, 4), 1):
        begin, end = left + step * start, left + step * (start + 4) - 12
        drawing.arrow((begin, 92), (end, 92), head=False, colour=FAINT)
        drawing.words((begin + end) / 2, 84, f"episode {episode}, the same task")
    drawing.words(left - 20, 130, "row", anchor="end")
    for row, name in enumerate(names):
        x = left + step * row
        drawing.box(x, 106, step - 12, 52, "grey")
        drawing.words(x + (step - 12) / 2, 128, str(row), bold=True, size=14)
        drawing.words(x + (step - 12) / 2, 147, name, size=12)
    for number, (flag, colour, values) in enumerate(flags):
        y = 176 + 34 * number
        drawing.words(left - 20, y + 18, flag, mono=True, size=12, anchor="end")
        for row, value in enumerate(values):
            drawing.box(left + step * row, y, step - 12, 26, colour if value else "grey", filled=bool(value))
            drawing.words(left + step * row + (step - 12) / 2, y + 18, str(value), bold=bool(value), size=12)
    drawing.words(left - 20, 378, "memory", anchor="end")
    drawing.box(left, 358, step * 8 - 12, 30, "violet")
    drawing.words(
        left + step * 4 - 6,
        378,
        "one hidden state from the first row to the last: it forgets at trial_start only",
    )
    notes = [
        (3, 436, "end", "row 3: its reward is read, its action is ignored"),
        (4, 436, "start", "row 4: previous action and reward are 0"),
        (7, 458, "end", "row 7: the last row is an ordinary row"),
    ]
    for row, y, anchor, text in notes:
        x = left + step * row + (step - 12) / 2
        drawing.arrow((x, y - 14), (x, 394))
        drawing.words(x, y, text, size=12, anchor=anchor)
    return drawing


def draw_wave() -> Drawing:
    """A wave over time: slots take their next trials."""
    drawing = Drawing(1000, 360, "A wave over time")
    drawing.words(24, 34, "A wave of ten trials on four slots", bold=True, size=18, anchor="start")
    drawing.words(
        24,
        54,
        "a free slot takes the next trial, and all that were started run to their end",
        colour=FAINT,
        anchor="start",
    )
    # (slot, trial, first round, lengths of its two episodes)
    trials = [
        (0, 0, 0, 8, 8), (1, 1, 0, 4, 7), (2, 2, 0, 8, 6), (3, 3, 0, 5, 3),
        (3, 4, 8, 8, 5), (1, 5, 11, 6, 8), (2, 6, 14, 3, 4), (0, 7, 16, 8, 8),
        (2, 8, 21, 8, 7), (3, 9, 21, 4, 4),
    ]  # fmt: skip
    left, unit, top, height = 96, 23, 84, 44
    # Drawn first, so that the trials lie over the line.
    x = left + unit * 21
    drawing.arrow((x, 72), (x, 318), dashed=True, head=False)
    drawing.words(x + 8, 318, "all trials are started: the tail begins", size=12, anchor="start")
    for slot in range(4):
        drawing.words(left - 14, top + 56 * slot + 27, f"slot {slot}", anchor="end")
    for slot, trial, start, first, second in trials:
        y = top + 56 * slot
        colour = ("blue", "green", "amber", "violet", "red")[trial % 5]
        drawing.box(left + unit * start, y, unit * first - 1, height, colour)
        drawing.box(left + unit * (start + first), y, unit * second - 3, height, colour, dashed=True)
        drawing.words(left + unit * (start + first / 2), y + 18, f"trial {trial}", size=11, bold=True)
        drawing.words(left + unit * (start + first / 2), y + 33, "episode 1", size=10)
        drawing.words(left + unit * (start + first + second / 2), y + 26, "ep. 2", size=10)
    end = max(start + first + second for _, _, start, first, second in trials)
    for slot, done in ((0, 32), (1, 25), (3, 29)):
        if done < end:
            x, y = left + unit * done, top + 56 * slot
            drawing.box(x, y, unit * (end - done), height, "grey", dashed=True)
            drawing.words(x + unit * (end - done) / 2, y + 26, "idle", size=11, colour=FAINT)
    drawing.arrow((left, 332), (left + unit * end, 332))
    drawing.words(left, 350, "rounds: one row in every slot", size=12, anchor="start", colour=FAINT)
    return drawing


def draw_fault() -> Drawing:
    """From the fault to the cure, as a sequence of messages."""
    drawing = Drawing(1000, 560, "From the fault to the cure")
    drawing.words(24, 34, "From the fault to the cure", bold=True, size=18, anchor="start")
    drawing.words(
        24, 54, "a trial is a function of its task, its seed and its actions", colour=FAINT, anchor="start"
    )
    lanes = {"agent": 130, "manager": 390, "worker": 650, "anew": 880}
    heads = {"agent": "Agent", "manager": "Stepper, Recovery", "worker": "worker", "anew": "new worker"}
    for lane, x in lanes.items():
        colour = {"agent": "amber", "manager": "green"}.get(lane, "blue")
        top = 250 if lane == "anew" else 76
        drawing.box(x - 80, top, 160, 30, colour)
        drawing.words(x, top + 20, heads[lane], bold=True)
        bottom = 226 if lane == "worker" else 530
        drawing.arrow((x, top + 30), (x, bottom), head=False, colour=FAINT, dashed=True)
    messages: list[tuple[int, str, str, str]] = [
        (136, "agent", "manager", "action t"),
        (166, "manager", "worker", "step: action t"),
        (236, "worker", "manager", "Fault: its pipe has ended"),
        (270, "manager", "anew", "restore: build the environments anew"),
        (330, "manager", "anew", "reset(task, seed), actions 0 to t-1"),
        (364, "anew", "manager", "rows 0 to t-1 again"),
        (450, "manager", "anew", "step: action t, once more"),
        (484, "anew", "manager", "row t"),
        (514, "manager", "agent", "row t: as if nothing had happened"),
    ]
    for y, source, target, text in messages:
        start, stop = lanes[source], lanes[target]
        edge = 80 if (source, y) == ("manager", 270) else 0
        drawing.arrow((start, y), (stop - edge, y))
        drawing.words((start + min(stop - edge, 880)) / 2, y - 6, text, size=12)
    drawing.words(650, 204, "\N{MULTIPLICATION SIGN}", size=34, bold=True, colour="#b8402f")
    drawing.words(676, 200, "killed, hung, raised, NaN", size=12, anchor="start", colour="#b8402f")
    drawing.box(214, 386, 352, 42, "green")
    drawing.words(390, 403, "compare the digest of what was shown:", size=12)
    drawing.words(390, 419, "equal, go on; different, give the trial up", size=12)
    note = ["these rows go nowhere: no buffer,", "no clock and no agent sees them"]
    drawing.words(580, 403, note, size=12, anchor="start", colour=FAINT)
    return drawing


def draw_config() -> Drawing:
    """The layers of the config, and one option on its way through them."""
    layers = [
        ("1  default", "a dataclass beside the class it configures", str(AgentConfig().hidden), "grey"),
        ("2  choices", "configs/algorithm, agent, memory, backend", "", "blue"),
        ("3  environment", "configs/env/AntDir.yaml", hidden_in("env/AntDir"), "blue"),
        ("4  recipe", "configs/recipe/AntDir_PPO.yaml", hidden_in("recipe/AntDir_PPO"), "green"),
        ("5  experiment", "configs/experiment/..., if one is chosen", "", "amber"),
        ("6  command line", "agent.hidden=[64,64]", "[64, 64]", "red"),
    ]
    drawing = Drawing(1000, 430, "The layers of the config")
    drawing.words(24, 34, "The layers of the config", bold=True, size=18, anchor="start")
    drawing.words(24, 54, "a later layer wins; --help shows the result", colour=FAINT, anchor="start")
    drawing.words(790, 84, "agent.hidden", mono=True, bold=True)
    for number, (name, place, value, colour) in enumerate(reversed(layers)):
        y = 98 + 44 * number
        drawing.box(24, y, 640, 36, colour)
        drawing.words(40, y + 23, name, bold=True, anchor="start")
        drawing.words(200, y + 23, place, mono=True, size=12, anchor="start")
        drawing.arrow((664, y + 18), (700, y + 18), head=False, colour=FAINT, dashed=not value)
        if value:
            drawing.box(700, y, 180, 36, colour)
        drawing.words(
            790,
            y + 23,
            value or "does not set it",
            mono=bool(value),
            size=12,
            colour=FAINT if not value else INK,
        )
    drawing.arrow((920, 350), (920, 104))
    drawing.words(920, 370, "wins", size=12)
    drawing.card(
        24, 376, 640, 38, "violet", "to_config: checked dataclasses, once; below it there is no YAML"
    )
    drawing.arrow((344, 354), (344, 376))
    return drawing


def hidden_in(name: str) -> str:
    """What a file of configs/ sets agent.hidden to."""
    return str(yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text())["agent"]["hidden"])


def draw_agent() -> Drawing:
    """The parts of an agent, and which of them actor and critic share."""
    drawing = Drawing(1000, 400, "The parts of an agent")
    drawing.words(24, 34, "The parts of an agent", bold=True, size=18, anchor="start")
    drawing.words(
        24,
        54,
        "actor and critic each have this chain, or share its dashed part",
        colour=FAINT,
        anchor="start",
    )
    drawing.box(196, 84, 486, 270, "grey", dashed=True, filled=False)
    drawing.words(
        210, 342, "shared with agent.encoders=shared (PPO's default)", size=12, anchor="start", colour=FAINT
    )
    inputs = [(104, "observation"), (194, "reward"), (254, "previous action")]
    for y, name in inputs:
        drawing.box(24, y, 140, 40, "grey")
        drawing.words(94, y + 25, name)
    drawing.card(220, 98, 130, 52, "blue", "encoder", ["vector or CNN"])
    drawing.arrow((164, 124), (220, 124))
    for y in (172, 222, 272):
        drawing.box(380, y - 12, 100, 34, "green")
        drawing.words(430, y + 10, "embedding", size=12)
    drawing.arrow((350, 136), (365, 136), (365, 177), (380, 177))
    drawing.arrow((164, 214), (300, 214), (300, 227), (380, 227))
    drawing.arrow((164, 274), (300, 274), (300, 277), (380, 277))
    drawing.card(530, 172, 130, 92, "violet", "memory", ["GRU, LSTM,", "Transformer, ..."])
    for y in (177, 227, 277):
        drawing.arrow((480, y), (505, y), (505, 218), (530, 218))
    # The state goes back into the memory; only the start of a trial clears it.
    drawing.arrow((640, 264), (640, 300), (560, 300), (560, 264))
    drawing.words(600, 318, "hidden state", size=12)
    drawing.arrow((350, 112), (730, 112), (730, 148), (760, 148))
    drawing.words(560, 104, "shortcut: the present observation", size=12)
    drawing.arrow((660, 218), (730, 218), (730, 190), (760, 190))
    drawing.words(744, 236, ["what the", "memory knows"], size=12)
    drawing.card(760, 128, 130, 84, "amber", "head", ["MLP, FiLM or", "hypernetwork"])
    drawing.words(912, 156, ["policy,", "V(h, s) or", "Q(h, s, a)"], anchor="start")
    drawing.arrow((890, 170), (906, 170))
    return drawing


# Each picture by the name of its file.
DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "row": draw_row,
    "trial": draw_trial,
    "wave": draw_wave,
    "fault": draw_fault,
    "config": draw_config,
    "agent": draw_agent,
}
