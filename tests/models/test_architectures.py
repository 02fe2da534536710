"""Every family of open_clip, small and with random weights, wrapped and compared with the module itself."""

import importlib.util
from pathlib import Path

import open_clip
import pytest
import timm
from support.marking import slow_but

from tpt_lib.models.module_clip import ModuleClip

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("architectures", ROOT / "scripts" / "architectures.py")
architectures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(architectures)

PACKED = ""
CLASS_TOKEN = "a class token is appended and pooled (CoCa)"
LAST = "the pooled position is 'last', not the end of the text"
NOT_CAUSAL = "the attention mask is not causal"

FAMILIES = [  # name, class of the image tower, reason for the full-length text engine
    ("ViT-B-32", "VisionTransformer", PACKED),
    ("ViT-L-14-quickgelu", "VisionTransformer", PACKED),
    ("RN50", "ModifiedResNet", PACKED),
    ("coca_ViT-B-32", "VisionTransformer", CLASS_TOKEN),
    ("coca_roberta-ViT-B-32", "VisionTransformer", "the text tower is a RobertaModel"),
    ("ViT-B-16-SigLIP", "timm VisionTransformer", LAST),
    ("ViT-SO400M-16-SigLIP-i18n-256", "timm VisionTransformer", LAST),
    ("ViT-B-16-SigLIP2", "timm VisionTransformer", LAST),
    ("MobileCLIP-S1", "timm FastVit", NOT_CAUSAL),
    ("MobileCLIP-S2", "timm FastVit", NOT_CAUSAL),
    ("MobileCLIP2-S4", "timm FastVit", NOT_CAUSAL),
    ("MobileCLIP-B", "timm VisionTransformer", PACKED),
    ("EVA01-g-14", "timm Eva", PACKED),
    ("EVA02-B-16", "timm Eva", PACKED),
    ("convnext_base", "timm ConvNeXt", PACKED),
    ("convnext_large_d", "timm ConvNeXt", PACKED),
    ("ViTamin-S", "timm VisionTransformer", PACKED),
    ("swin_base_patch4_window7_224", "timm SwinTransformer", PACKED),
    ("vit_relpos_medium_patch16_cls_224", "timm VisionTransformerRelPos", PACKED),
    ("PE-Core-T-16-384", "timm Eva", PACKED),
    ("ViT-L-14-CLIPA", "VisionTransformer", LAST),
    ("ViT-L-14-worldwide", "VisionTransformer", PACKED),
    ("ViT-H-14-worldwide", "VisionTransformer", PACKED),
    ("roberta-ViT-B-32", "VisionTransformer", "the text tower is a RobertaModel"),
    ("xlm-roberta-base-ViT-B-32", "VisionTransformer", "the text tower is a XLMRobertaModel"),
    ("mt5-base-ViT-B-32", "VisionTransformer", "the text tower is a MT5Stack"),
    ("nllb-clip-base-siglip", "timm VisionTransformer", "the text tower is a M2M100Encoder"),
]


LIKE_OTHERS = (
    "MobileCLIP-S2", "MobileCLIP2-S4", "EVA02-B-16", "convnext_large_d", "ViT-L-14-worldwide", "ViT-H-14-worldwide",
    "ViT-L-14-quickgelu", "ViT-SO400M-16-SigLIP-i18n-256", "ViT-B-16-SigLIP2", "MobileCLIP-B", "ViTamin-S",
    "PE-Core-T-16-384", "coca_roberta-ViT-B-32", "xlm-roberta-base-ViT-B-32",
)  # fmt: skip
LONG = ("mt5-base-ViT-B-32", "nllb-clip-base-siglip")
QUICK = [family for family in FAMILIES if family[0] not in (*LIKE_OTHERS, *LONG)]


@pytest.mark.parametrize(("name", "image_tower", "reason"), slow_but(QUICK, FAMILIES))
def test_wrapped_equals_module(name, image_tower, reason):
    tower = open_clip.get_model_config(name)["vision_cfg"].get("timm_model_name")
    if tower and not timm.is_model(tower):
        pytest.skip(f"this version of timm has no {tower}")
    module = architectures.build(name)
    trunk = getattr(module.visual, "trunk", None)
    assert image_tower == (f"timm {type(trunk).__name__}" if trunk else type(module.visual).__name__)
    assert architectures.check(module, architectures.tokenizer_of(name)) == reason


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("encode_image", "image features unlike the module's own"),
        ("encode_embeddings", "text features unlike the module's own"),
    ],
)
def test_check_can_fail(member, message, monkeypatch):
    right = getattr(ModuleClip, member)
    monkeypatch.setattr(ModuleClip, member, lambda *args: right(*args).flip(-1))
    with pytest.raises(AssertionError, match=message):
        architectures.check(architectures.build("ViT-S-32-alt"), architectures.tokenizer_of("ViT-S-32-alt"))


def test_page_lists_every_architecture():
    lines = architectures.PAGE.read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == open_clip.list_models()
    assert {row[4] for row in rows} == {"packed", "full_length"}
