"""Classify the plain image with many templates, whose text features are averaged, as CLIP does for ImageNet."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from tpt_lib.methods.base import check_features, method
from tpt_lib.methods.zero_shot import zero_shot_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.text.encode import check_model
from tpt_lib.text.initial import keep

__all__ = ["template_ensemble_predict"]


@method(name="template_ensemble", title="template ensemble", paper="Radford et al., ICML 2021", published="Ensemble")
def template_ensemble_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    templates: Sequence[str] | None = None,
) -> Prediction:
    """Classify the plain image with prompts of many templates: zero-shot with ``class_prompts(…, template=templates)``.

    Args:
        model: the model.
        prompts: source of the class names; their own context is not used. The prompts of the templates are cached with them.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        templates: texts with one ``{}`` (default None: OpenAI's 80, which open_clip ships).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> template_ensemble_predict(model, prompts, torch.eye(256)[:1], templates=["a {}.", "the {}."]).probs.shape
    torch.Size([2])
    """
    check_features("template_ensemble_predict", features)
    check_model(model, prompts)
    if templates is None:
        templates = openai_templates()
    if isinstance(templates, str) or not templates:
        raise ValueError(
            f"template_ensemble_predict: templates must be a list of one or more texts, but got {templates!r}"
        )
    texts = tuple(templates)
    several = keep(model, prompts, ("templates", texts), lambda: class_prompts(model, prompts.names, template=texts))
    return zero_shot_predict(model, several, features)


def openai_templates() -> list[str]:
    """Return OpenAI's 80 templates, which open_clip ships."""
    import open_clip

    return [fill("{}") for fill in open_clip.OPENAI_IMAGENET_TEMPLATES]
