"""The results as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PARTS = {
    "env": "env busy",
    "slowest": "slowest",
    "hand_over": "hand-over",
    "inference": "inference",
    "bookkeeping": "bookkeeping",
}
WIDTH = 46
# A core that is ours for less of the time is not quiet.
QUIET = 0.97


def rate_of(table: dict[str, Any], part: str) -> float | None:
    """The rate of the first row whose name has this in it."""
    return next((rate for name, rate in table["env_steps_per_s"].items() if part in name), None)


def table_text(table: dict[str, Any]) -> str:
    """One table."""
    against = {
        "x EnvPool": rate_of(table, "EnvPool"),
        "x Async": rate_of(table, "AsyncVectorEnv"),
        "x loop": rate_of(table, "batch-1"),
    }
    lines = [
        "",
        table["title"],
        f"one env-step: {table['env_us']:.3g} us of the bare environment, "
        f"{table['inference_us']:.3g} us of inference; limit = {table['limit_is']}",
        f"{'':{WIDTH}}{'env-steps/s':>12}{'of limit':>10}{'own CPU us':>12}"
        + "".join(f"{name:>11}" for name, rate in against.items() if rate),
    ]
    for name, rate in sorted(table["env_steps_per_s"].items(), key=lambda item: -item[1]):
        ratios = "".join(f"{rate / other:11.2f}" for other in against.values() if other)
        own = table["own_cpu_us"][name]
        lines.append(f"{name:{WIDTH}}{rate:12,.0f}{rate / table['limit']:10.2f}{own:12.3g}{ratios}")
    lines.append(f"{'limit':{WIDTH}}{table['limit']:12,.0f}")
    if table["share_of_cores"] < QUIET:
        lines.append(
            f"DISTURBED: other programs took up to {1 - table['share_of_cores']:.0%} of a core "
            f"while the limit was measured; the load was {table['load']:.1f}."
        )
    lines += [f"{name:{WIDTH}}{sentence}" for name, sentence in table["failed"].items()]
    lines += [f"{name}: {note}" for name, note in table["notes"].items()]
    lines += [
        f"{name:{WIDTH}}{mib:12,.0f} MiB in worker processes" for name, mib in table["worker_mib"].items()
    ]
    return "\n".join([*lines, *_breakdown_lines(table)])


def _breakdown_lines(table: dict[str, Any]) -> Iterator[str]:
    """Where a round's time goes, in percent."""
    if not table["breakdown"]:
        return
    # What true states would take of a round that asks for them too; the other shares are without them.
    with_state = any("state" in shares for shares in table["breakdown"].values())
    yield (
        f"{'where a round goes (%), in a profiled run':{WIDTH}}"
        + "".join(f"{title:>13}" for title in PARTS.values())
        + f"{'us a round':>13}"
        + (f"{'+ true states':>15}{'us of them':>12}" if with_state else "")
    )
    for name, shares in table["breakdown"].items():
        yield (
            f"{name:{WIDTH}}"
            + "".join(f"{100 * shares[part]:13.1f}" for part in PARTS)
            + f"{shares['round_us']:13,.0f}"
            + (f"{100 * shares['state']:15.1f}{shares['state_us']:12,.0f}" if with_state else "")
        )
