"""The registry of memories: what an agent can remember with."""

from policies.memory.aggregation import Aggregation
from policies.memory.base import Memory
from policies.memory.diagonal_recurrence import DiagonalRecurrence
from policies.memory.gru import GRU
from policies.memory.lstm import LSTM
from policies.memory.transformer import Transformer

MEMORIES: dict[str, type[Memory]] = {
    "GRU": GRU,
    "LSTM": LSTM,
    "DiagonalRecurrence": DiagonalRecurrence,
    "Transformer": Transformer,
    "Aggregation": Aggregation,
}
