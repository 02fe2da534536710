"""Run the experiments of Shu et al., each in one call, and look up the numbers they published."""

from tpt_lib.evaluation.published import PaperTable, paper_accuracy, paper_tables
from tpt_lib.paper.budgets import budget_table, strategy_table
from tpt_lib.paper.reproduction.definitions import Experiment, Row
from tpt_lib.paper.reproduction.outcome import Reproduction
from tpt_lib.paper.reproduction.plan import Plan
from tpt_lib.paper.reproduction.planning import list_experiments, plan_experiment
from tpt_lib.paper.reproduction.run import reproduce
from tpt_lib.paper.sweeps import sweep_fractions, sweep_groups, sweep_steps, sweep_views
from tpt_lib.paper.transfer import relative_improvement, transfer_matrix

__all__ = [
    "Experiment",
    "PaperTable",
    "Plan",
    "Reproduction",
    "Row",
    "budget_table",
    "list_experiments",
    "paper_accuracy",
    "paper_tables",
    "plan_experiment",
    "relative_improvement",
    "reproduce",
    "strategy_table",
    "sweep_fractions",
    "sweep_groups",
    "sweep_steps",
    "sweep_views",
    "transfer_matrix",
]
