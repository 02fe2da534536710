"""Calibrate TPT with a regularizer: keep the text features of the classes spread out while tuning.

Entropy minimization makes predictions overconfident. C-TPT (Yoon et al., ICLR 2024) measures the spread of the text features by
their mean distance from their center, and subtracts it from the objective.
"""

import open_clip
import torch

import tpt_lib as tpt


def gathering(text_features):
    return -50.0 * (text_features - text_features.mean(dim=0)).norm(dim=1).mean()


torch.manual_seed(0)
model = tpt.wrap(open_clip.create_model("ViT-S-32-alt"))  # random weights; tpt.load_open_clip has real ones
prompts = tpt.class_prompts(model, ["cat", "dog", "red panda", "kite (bird of prey)"])
image = torch.randint(256, (3, 240, 320), dtype=torch.uint8)
features = tpt.encode_views(model, tpt.augment_views(image, model.image_spec, n_views=16))
for name, regularizer in (("TPT", None), ("calibrated", gathering)):
    tuned = tpt.tune_prompt(model, prompts, features, regularizer=regularizer)
    spread = (tuned.text_features - tuned.text_features.mean(dim=0)).norm(dim=1).mean()
    before = (tuned.initial_features - tuned.initial_features.mean(dim=0)).norm(dim=1).mean()
    print(f"{name:10}  spread of the text features {before:.4f} -> {spread:.4f}")
