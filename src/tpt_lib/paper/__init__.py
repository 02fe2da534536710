"""Run the experiments of Shu et al., each in one call, and look up the numbers they published."""

from tpt_lib.evaluation.published import PaperTable, paper_accuracy, paper_tables
from tpt_lib.paper.budgets import budget_table, strategy_table
from tpt_lib.paper.sweeps import sweep_fractions, sweep_groups, sweep_steps, sweep_views
from tpt_lib.paper.transfer import relative_improvement, transfer_matrix

__all__ = [
    "PaperTable",
    "budget_table",
    "paper_accuracy",
    "paper_tables",
    "relative_improvement",
    "strategy_table",
    "sweep_fractions",
    "sweep_groups",
    "sweep_steps",
    "sweep_views",
    "transfer_matrix",
]
