"""The target rule: which row's value follows a row, and the advantages that follow from it.

Row t holds the observation at time t and the reward that arrived with it, the consequence of the action at
row t - 1. A row trains where it is valid and has not ended its episode. Its one-step target is

    target[t] = reward[t+1] + discount * bootstraps[t] * V[index[t]]

where `index` names the row whose value follows, and `bootstraps` is 0 where nothing follows. A trial of k = 2
episodes, the first of which ends by a fall at row 2, the second by its time limit at row 6:

    row                          0       1       2       3       4       5       6
                                 start   step    fall    start   step    step    time limit, end of trial
    trains                       yes     yes     no      yes     yes     yes     no

    whole trial         index    1       3               4       5       6
                    bootstraps   1       1               1       1       1
    episode             index    1       2               4       5       6
                    bootstraps   1       0               1       1       1

Row 1 is where the two returns differ. The return of a whole trial goes on in the next episode: row 2 ended,
so the value is that of the next start, row 3, with no reward between and no further discount. The return of
an episode stops: a fall is worth nothing, so the target is reward[2] alone.

Row 5 shows a time limit at which the return stops. The environment did not end the episode by itself, so the
value of the ended row stands for what would have come (`timeout_bootstrap`); without that option `bootstraps`
is 0 there. An end that is both counts as a fall.
"""

from __future__ import annotations

import torch
from torch import Tensor

from buffers.base import Batch


def successor(batch: Batch, *, whole_trial: bool, timeout_bootstrap: bool = True) -> tuple[Tensor, Tensor]:
    """(index, bootstraps), both [T, B], of the target rule above; they mean something for rows that train."""
    num_rows = batch.shape[0]

    # Does the return go on where an episode ends? In a whole trial, but for the trial's own end.
    goes_on = _goes_on(batch, whole_trial)
    stops = batch.ended & ~goes_on

    # What is worth nothing where it stops: an end by the environment, and a time limit if it may not
    # bootstrap.
    worthless = stops
    if timeout_bootstrap:
        worthless = stops & batch.terminated

    # The value after row t is that of row t + 1; if that row ended and the return goes on, that of row t + 2.
    next_row = torch.arange(1, num_rows + 1, device=batch.reward.device)[:, None].expand(batch.shape)
    index = next_row + _of_next_row(goes_on).long()
    bootstraps = ~_of_next_row(worthless)

    # Rows near the end of the batch that do not train would point beyond it.
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
    """[T, B] GAE (Schulman et al. 2016, arXiv:1506.02438) of rows that train, 0 elsewhere; `values` are V.

        delta[t] = target[t] - V[t]
        A[t]     = delta[t] + discount * gae_lambda * A[s]

    Here s is the row that trains next, if the return goes on to it. An end that the return passes counts as
    no step: the sum goes on from the row before it to the start of the next episode, with one discount.
    """
    index, bootstraps = successor(batch, whole_trial=whole_trial, timeout_bootstrap=timeout_bootstrap)

    # One-step errors of V, by the target rule (the TD residual of the paper).
    next_reward = torch.cat([batch.reward[1:], torch.zeros_like(batch.reward[:1])])
    delta = next_reward + discount * bootstraps * values.gather(0, index) - values
    delta = torch.where(batch.trains, delta, 0.0)

    # How much of the sum after a row reaches it. A row that does not train hands it on whole where the return
    # goes on, and not at all where it stops; so a plain backward pass jumps from episode to episode.
    passes_on = _goes_on(batch, whole_trial).to(values.dtype)
    factor = torch.where(batch.trains, discount * gae_lambda * bootstraps, passes_on)

    # A[t] = delta[t] + factor[t] * A[t+1], backwards, in place: each row of `delta` becomes its advantage.
    advantage, later = delta, torch.zeros_like(delta[0])
    for row, row_factor in zip(reversed(delta.unbind()), reversed(factor.unbind()), strict=True):
        later = torch.addcmul(row, row_factor, later, out=row)
    return torch.where(batch.trains, advantage, 0.0)


def _goes_on(batch: Batch, whole_trial: bool) -> Tensor:
    """[T, B] the rows that ended an episode, but not the return."""
    if not whole_trial:
        return torch.zeros_like(batch.ended)
    return batch.ended & ~batch.trial_end


def _of_next_row(flags: Tensor) -> Tensor:
    """[T, B] the flags of row t + 1 at row t; False at the last."""
    return torch.cat([flags[1:], torch.zeros_like(flags[:1])])
