"""Evaluation: the agent on fixed lists of tasks, by episode index, and what is said and written of it."""

from policies.evaluation.lists import TaskLists, held_out_name
from policies.evaluation.playing import evaluate_agent, evaluate_list
from policies.evaluation.table import curves_of, evaluation_table

__all__ = [
    "TaskLists",
    "curves_of",
    "evaluate_agent",
    "evaluate_list",
    "evaluation_table",
    "held_out_name",
]
