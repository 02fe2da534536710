"""Names of models and methods as the paper spells them."""

import pytest

import tpt_lib
from tpt_lib.evaluation.published_names import backbone_key, method_key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("RN50", "RN50"),
        ("RN50/openai", "RN50"),
        ("ViT-B-16-quickgelu/openai", "ViT-B/16"),
        ("RN50x4", None),
        ("ViT-B-16/laion2b_s34b_b88k", None),
        ("ViT-B-16-SigLIP", None),
        ("", None),
    ],
)
def test_only_the_papers_models_are_compared_with_it(name, key):
    assert backbone_key(name) == key


@pytest.mark.parametrize(
    ("ours", "papers"),
    [
        ("zero_shot_predict", "CLIP"),
        ("tpt_predict", "TPT"),
        ("tpt_classify", "TPT"),
        ("bongard_tpt", "TPT"),
        ("template_ensemble_predict", "Ensemble"),
        ("average_predict", "averaged prediction"),
        ("vote_predict", "majority vote"),
        ("memo_predict", "MEMO"),
    ],
)
def test_our_functions_have_the_papers_names(ours, papers):
    assert method_key(ours) == method_key(papers)
    assert method_key(papers) in {method_key(row["method"]) for t in tpt_lib.paper.paper_tables() for row in t.rows}
