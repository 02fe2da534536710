"""Test-time prompt tuning (Shu et al., NeurIPS 2022) for any CLIP-like model."""

from tpt_lib.adapters import load_open_clip, load_transformers, wrap
from tpt_lib.augmix import AugMix, apply_augmix, sample_augmix
from tpt_lib.baselines import average_predict, ensemble_predict, prompts_predict, vote_predict, zero_shot_predict
from tpt_lib.bongard import BongardPrediction, bongard_prototype, bongard_tpt, bongard_tpt_many
from tpt_lib.budgets import budget_table, strategy_table
from tpt_lib.classify import tpt_classify, tpt_predict
from tpt_lib.comparing import compare
from tpt_lib.contexts import BiasNet, LearnedPrompt, gaussian_context, load_prompt, save_prompt
from tpt_lib.crops import Crops, apply_crops, sample_crops
from tpt_lib.evaluation import (
    EvalSet,
    PaperTable,
    Report,
    calibration_error,
    dataset_names,
    evaluate,
    evaluate_bongard,
    hold_out,
    load_dataset,
    mcnemar,
    paper_tables,
    published,
    relative_improvement,
    transfer,
)
from tpt_lib.fitting import Fitted, few_shot, fit_conditional_prompt, fit_prompt
from tpt_lib.groups import group_predict
from tpt_lib.images import ImageError, image_generator, read_image
from tpt_lib.memo import memo_adapt, memo_predict
from tpt_lib.model import CausalBlock, CausalTower, ClipLike, ImageSpec, class_logits, encode_views
from tpt_lib.objectives import entropy, marginal_entropy, select_confident
from tpt_lib.plots import (
    plot_accuracies,
    plot_bongard,
    plot_improvement,
    plot_prediction,
    plot_reliability,
    plot_sweep,
)
from tpt_lib.prediction import Prediction
from tpt_lib.prompts import ClassPrompts, class_prompts, conditional_context
from tpt_lib.sweeps import sweep_fractions, sweep_groups, sweep_steps, sweep_views
from tpt_lib.tables import Table
from tpt_lib.text import InitialText, encode_prompts, initial_text, text_path
from tpt_lib.tiny import load_tiny, tiny_bongard_problems, tiny_samples
from tpt_lib.tuning import Tuned, tune_prompt
from tpt_lib.views import ViewsDataset, augment_views, encode_images, preprocess

__version__ = "0.1.0"

__all__ = [
    "AugMix",
    "BiasNet",
    "BongardPrediction",
    "CausalBlock",
    "CausalTower",
    "ClassPrompts",
    "ClipLike",
    "Crops",
    "EvalSet",
    "Fitted",
    "ImageError",
    "ImageSpec",
    "InitialText",
    "LearnedPrompt",
    "PaperTable",
    "Prediction",
    "Report",
    "Table",
    "Tuned",
    "ViewsDataset",
    "apply_augmix",
    "apply_crops",
    "augment_views",
    "average_predict",
    "bongard_prototype",
    "bongard_tpt",
    "bongard_tpt_many",
    "budget_table",
    "calibration_error",
    "class_logits",
    "class_prompts",
    "compare",
    "conditional_context",
    "dataset_names",
    "encode_images",
    "encode_prompts",
    "encode_views",
    "ensemble_predict",
    "entropy",
    "evaluate",
    "evaluate_bongard",
    "few_shot",
    "fit_conditional_prompt",
    "fit_prompt",
    "gaussian_context",
    "group_predict",
    "hold_out",
    "image_generator",
    "initial_text",
    "load_dataset",
    "load_open_clip",
    "load_prompt",
    "load_tiny",
    "load_transformers",
    "marginal_entropy",
    "mcnemar",
    "memo_adapt",
    "memo_predict",
    "paper_tables",
    "plot_accuracies",
    "plot_bongard",
    "plot_improvement",
    "plot_prediction",
    "plot_reliability",
    "plot_sweep",
    "preprocess",
    "prompts_predict",
    "published",
    "read_image",
    "relative_improvement",
    "sample_augmix",
    "sample_crops",
    "save_prompt",
    "select_confident",
    "strategy_table",
    "sweep_fractions",
    "sweep_groups",
    "sweep_steps",
    "sweep_views",
    "text_path",
    "tiny_bongard_problems",
    "tiny_samples",
    "tpt_classify",
    "tpt_predict",
    "transfer",
    "tune_prompt",
    "vote_predict",
    "wrap",
    "zero_shot_predict",
]
