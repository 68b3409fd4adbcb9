"""Which row's value follows a row, and what follows from that: the target rule, as pure functions on the rows
of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from buffers.base import Batch


def successor(batch: Batch, *, whole_trial: bool, timeout_bootstrap: bool = True) -> tuple[Tensor, Tensor]:
    """(index, bootstraps), both [T, B]: target[t] = reward[t+1] + discount * bootstraps[t] * V[index[t]], for rows
    that train.

    The value after row t is V[t+1]. Where row t+1 ended its episode, and the return goes on (`whole_trial`,
    not the trial's end), it is V[t+2], the next start row, with no reward and no further discount. Where the
    return stops, an end that the environment made is worth 0 (also if the time was up), and a time limit is
    worth the value of the ended row itself, if it bootstraps.
    """
    num_rows = batch.shape[0]
    after = torch.arange(num_rows, device=batch.reward.device)[:, None].add(1).expand(batch.shape)
    goes_on = batch.ended & ~batch.trial_end if whole_trial else torch.zeros_like(batch.ended)
    stops = batch.ended & ~goes_on
    worthless = stops & batch.terminated if timeout_bootstrap else stops
    index = after + _next(goes_on).long()
    bootstraps = ~_next(worthless)
    return index.clamp(max=num_rows - 1), bootstraps.to(batch.reward.dtype)


def advantages(
    batch: Batch,
    values: Tensor,
    *,
    discount: float,
    gae_lambda: float,
    whole_trial: bool,
    timeout_bootstrap: bool = True,
) -> Tensor:
    """[T, B] GAE (Schulman et al. 2016, arXiv:1506.02438) of rows that train, and 0 of others; `values` [T,
    B] are V.

        delta[t] = target[t] - V[t]                         with the target rule of `successor`
        A[t]     = delta[t] + discount * gae_lambda * A[s]       where s is the row that trains next, if the return goes on to it

    So an end that the return passes counts as no step: the sum goes from the step before it to the start of
    the next episode.
    """
    index, bootstraps = successor(batch, whole_trial=whole_trial, timeout_bootstrap=timeout_bootstrap)
    reward = torch.cat([batch.reward[1:], torch.zeros_like(batch.reward[:1])])
    surprise = torch.where(
        batch.trains, reward + discount * bootstraps * values.gather(0, index) - values, 0.0
    )
    # A row that does not train hands on what comes after it, or nothing.
    passes = batch.ended & ~batch.trial_end if whole_trial else torch.zeros_like(batch.ended)
    kept = torch.where(batch.trains, discount * gae_lambda * bootstraps, passes.to(values.dtype))
    found, later = surprise, torch.zeros_like(surprise[0])
    for now, keep in zip(reversed(surprise.unbind()), reversed(kept.unbind()), strict=True):
        later = torch.addcmul(now, keep, later, out=now)
    return torch.where(batch.trains, found, 0.0)


def _next(flags: Tensor) -> Tensor:
    """[T, B] the flags of row t+1 at row t; False at the last."""
    return torch.cat([flags[1:], torch.zeros_like(flags[:1])])
