"""Test-time prompt tuning (Shu et al., NeurIPS 2022) for any CLIP-like model."""

from tpt_lib.evaluation import (
    EvalSet,
    PaperTable,
    Report,
    calibration_error,
    evaluate,
    evaluate_bongard,
    list_datasets,
    load_dataset,
    mcnemar,
    paper_accuracy,
    paper_tables,
    sample_few_shot,
    split_validation,
)
from tpt_lib.evaluation.compare import compare
from tpt_lib.evaluation.table import Table
from tpt_lib.features.encode import encode_images, encode_views
from tpt_lib.logits import class_logits
from tpt_lib.methods.baselines import (
    average_predict,
    ensemble_predict,
    prompts_predict,
    vote_predict,
    zero_shot_predict,
)
from tpt_lib.methods.bongard import BongardPrediction, bongard_prototype, bongard_tpt, bongard_tpt_many
from tpt_lib.methods.coop import Fitted, fit_conditional_prompt, fit_prompt
from tpt_lib.methods.memo import memo_adapt, memo_predict
from tpt_lib.methods.memo_clip import group_predict
from tpt_lib.methods.tpt import tpt_classify, tpt_predict
from tpt_lib.models.open_clip import load_open_clip
from tpt_lib.models.protocol import CausalBlock, CausalTower, ClipLike, ImageSpec
from tpt_lib.models.transformers import load_transformers
from tpt_lib.models.wrap import wrap
from tpt_lib.objectives import entropy, marginal_entropy, select_confident
from tpt_lib.paper.budgets import budget_table, strategy_table
from tpt_lib.paper.sweeps import sweep_fractions, sweep_groups, sweep_steps, sweep_views
from tpt_lib.paper.transfer import relative_improvement, transfer
from tpt_lib.plots.bongard import plot_bongard
from tpt_lib.plots.improvement import plot_improvement
from tpt_lib.plots.prediction import plot_prediction
from tpt_lib.plots.report import plot_accuracies, plot_reliability
from tpt_lib.plots.sweep import plot_sweep
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.checkpoints import load_prompt, save_prompt
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts, conditional_context
from tpt_lib.prompts.contexts import BiasNet, LearnedPrompt, gaussian_context
from tpt_lib.text.encode import InitialText, encode_prompts, initial_text, text_path
from tpt_lib.tiny import load_tiny, tiny_bongard_problems, tiny_samples
from tpt_lib.tuning import Tuned, tune_prompt
from tpt_lib.views.augment import ViewsDataset, augment_views
from tpt_lib.views.augmix import AugMix, apply_augmix, sample_augmix
from tpt_lib.views.crops import Crops, apply_crops, sample_crops
from tpt_lib.views.preprocessing import preprocess
from tpt_lib.views.reading import ImageError, read_image
from tpt_lib.views.seeding import image_generator

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
    "encode_images",
    "encode_prompts",
    "encode_views",
    "ensemble_predict",
    "entropy",
    "evaluate",
    "evaluate_bongard",
    "fit_conditional_prompt",
    "fit_prompt",
    "gaussian_context",
    "group_predict",
    "image_generator",
    "initial_text",
    "list_datasets",
    "load_dataset",
    "load_open_clip",
    "load_prompt",
    "load_tiny",
    "load_transformers",
    "marginal_entropy",
    "mcnemar",
    "memo_adapt",
    "memo_predict",
    "paper_accuracy",
    "paper_tables",
    "plot_accuracies",
    "plot_bongard",
    "plot_improvement",
    "plot_prediction",
    "plot_reliability",
    "plot_sweep",
    "preprocess",
    "prompts_predict",
    "read_image",
    "relative_improvement",
    "sample_augmix",
    "sample_crops",
    "sample_few_shot",
    "save_prompt",
    "select_confident",
    "split_validation",
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
