"""One short file per method, all of one shape. ``base`` has the contracts and the registry."""

from tpt_lib.methods.base import Method, MethodEntry, OnlineMethod, get_method, list_methods, method
from tpt_lib.methods.bongard import bongard_prototype, bongard_tpt, bongard_tpt_many
from tpt_lib.methods.bongard_prediction import BongardPrediction
from tpt_lib.methods.boostadapter import boostadapter
from tpt_lib.methods.classify import classify
from tpt_lib.methods.coop import Fitted, fit_cocoop, fit_coop
from tpt_lib.methods.ctpt import ctpt_predict, text_dispersion
from tpt_lib.methods.dmn import dmn
from tpt_lib.methods.dpe import dpe
from tpt_lib.methods.dynaprompt import dynaprompt
from tpt_lib.methods.ecalp import ecalp
from tpt_lib.methods.memo import memo_classify, memo_predict
from tpt_lib.methods.memo_clip import memo_clip_predict
from tpt_lib.methods.mta import mta_predict
from tpt_lib.methods.onzeta import onzeta
from tpt_lib.methods.otpt import otpt_predict, text_overlap
from tpt_lib.methods.prompt_ensemble import prompt_ensemble_predict
from tpt_lib.methods.rlcf import rlcf_predict
from tpt_lib.methods.rtpt import rtpt_predict
from tpt_lib.methods.stream import fold, load_state, save_state, stream
from tpt_lib.methods.tda import tda
from tpt_lib.methods.template_ensemble import template_ensemble_predict
from tpt_lib.methods.tent import tent
from tpt_lib.methods.tps import tps_predict
from tpt_lib.methods.tpt import TptOptions, tpt_classify, tpt_predict
from tpt_lib.methods.view_average import average_predict
from tpt_lib.methods.view_vote import vote_predict
from tpt_lib.methods.vte import vte_predict
from tpt_lib.methods.zero import zero_predict
from tpt_lib.methods.zero_shot import zero_shot_predict
from tpt_lib.objectives import mean_entropy, select_similar, weighted_entropy

__all__ = [
    "BongardPrediction",
    "Fitted",
    "Method",
    "MethodEntry",
    "OnlineMethod",
    "TptOptions",
    "average_predict",
    "bongard_prototype",
    "bongard_tpt",
    "bongard_tpt_many",
    "boostadapter",
    "classify",
    "ctpt_predict",
    "dmn",
    "dpe",
    "dynaprompt",
    "ecalp",
    "fit_cocoop",
    "fit_coop",
    "fold",
    "get_method",
    "list_methods",
    "load_state",
    "mean_entropy",
    "memo_classify",
    "memo_clip_predict",
    "memo_predict",
    "method",
    "mta_predict",
    "onzeta",
    "otpt_predict",
    "prompt_ensemble_predict",
    "rlcf_predict",
    "rtpt_predict",
    "save_state",
    "select_similar",
    "stream",
    "tda",
    "template_ensemble_predict",
    "tent",
    "text_dispersion",
    "text_overlap",
    "tps_predict",
    "tpt_classify",
    "tpt_predict",
    "vote_predict",
    "vte_predict",
    "weighted_entropy",
    "zero_predict",
    "zero_shot_predict",
]
