"""Test-time prompt tuning (Shu et al., NeurIPS 2022), and the methods around it, for any CLIP-like model.

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
from tpt_lib.methods.base import get_method, list_methods
from tpt_lib.methods.bongard import BongardPrediction, bongard_prototype, bongard_tpt, bongard_tpt_many
from tpt_lib.methods.classify import classify
from tpt_lib.methods.coop import fit_cocoop, fit_coop
from tpt_lib.methods.memo import memo_classify
from tpt_lib.methods.memo_clip import memo_clip_predict
from tpt_lib.methods.template_ensemble import template_ensemble_predict
from tpt_lib.methods.tpt import tpt_classify, tpt_predict
from tpt_lib.methods.view_average import average_predict
from tpt_lib.methods.view_vote import vote_predict
from tpt_lib.methods.zero_shot import zero_shot_predict
from tpt_lib.models.open_clip import load_open_clip
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.models.transformers import load_transformers
from tpt_lib.models.wrap import wrap
from tpt_lib.objectives import entropy, marginal_entropy, select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.checkpoints import load_prompt, save_prompt
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.prompts.contexts import gaussian_context
from tpt_lib.text.encode import encode_prompts
from tpt_lib.tiny.drawings import load_tiny_bongard, load_tiny_drawings
from tpt_lib.tiny.model import load_tiny
from tpt_lib.tuning import Tuned, tune_prompt
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import ImageError, read_image

__version__ = "0.1.0"

__all__ = [
    "BongardPrediction",
    "ClassPrompts",
    "ClipLike",
    "EvalSet",
    "ImageError",
    "ImageSpec",
    "Prediction",
    "Report",
    "Tuned",
    "augment_views",
    "average_predict",
    "bongard_prototype",
    "bongard_tpt",
    "bongard_tpt_many",
    "class_logits",
    "class_prompts",
    "classify",
    "compare",
    "conditional_context",
    "encode_images",
    "encode_prompts",
    "encode_views",
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
    "load_tiny_bongard",
    "load_tiny_drawings",
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
    "tune_prompt",
    "types",
    "views",
    "vote_predict",
    "wrap",
    "zero_shot_predict",
]
