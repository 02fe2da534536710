"""Test-time prompt tuning (Shu et al., NeurIPS 2022), and the methods around it, for any CLIP-like model.

The flat names are what a first hour needs. The rest is in ``models``, ``views``, ``prompts``, ``text``, ``methods``,
``evaluation``, ``paper``, ``plots`` and ``types``.
"""

from tpt_lib import evaluation, methods, models, paper, plots, prompts, text, types, views
from tpt_lib.evaluation.compare import compare
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.load import list_datasets, load_dataset
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.encode_dataset import encode_dataset
from tpt_lib.evaluation.run.evaluate import evaluate
from tpt_lib.evaluation.run.evaluate_bongard import evaluate_bongard
from tpt_lib.features.encode import encode_images, encode_views
from tpt_lib.features.store import FeatureStore
from tpt_lib.logits import class_logits
from tpt_lib.methods.base import get_method, list_methods
from tpt_lib.methods.bongard import bongard_prototype, bongard_tpt, bongard_tpt_many
from tpt_lib.methods.bongard_prediction import BongardPrediction
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
from tpt_lib.tuning.tune import Tuned, tune_prompt
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import ImageError, read_image

__version__ = "0.2.0"

__all__ = [
    "BongardPrediction",
    "ClassPrompts",
    "ClipLike",
    "EvalSet",
    "FeatureStore",
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
    "encode_dataset",
    "encode_images",
    "encode_prompts",
    "encode_views",
    "entropy",
    "evaluate",
    "evaluate_bongard",
    "evaluation",
    "fit_cocoop",
    "fit_coop",
    "gaussian_context",
    "get_method",
    "list_datasets",
    "list_methods",
    "load_dataset",
    "load_open_clip",
    "load_prompt",
    "load_tiny",
    "load_tiny_bongard",
    "load_tiny_drawings",
    "load_transformers",
    "marginal_entropy",
    "memo_classify",
    "memo_clip_predict",
    "methods",
    "models",
    "paper",
    "plots",
    "prompts",
    "read_image",
    "save_prompt",
    "select_confident",
    "template_ensemble_predict",
    "text",
    "tpt_classify",
    "tpt_predict",
    "tune_prompt",
    "types",
    "views",
    "vote_predict",
    "wrap",
    "zero_shot_predict",
]
