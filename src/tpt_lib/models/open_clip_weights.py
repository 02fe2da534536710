"""Find the weights of an open_clip model, create it with them, and say what could not be fetched."""

from __future__ import annotations

import difflib
import pickle
import warnings
from pathlib import Path
from typing import Any

from tpt_lib.models.weights_files import weights_in

__all__ = ["activation", "create", "known_name", "known_weights", "tokenizer_of", "weights_files"]

NO_DOWNLOAD = "load_tiny() loads a small model without a download"


def known_name(name: str) -> str:
    """Return the name as open_clip spells it."""
    import open_clip

    names = open_clip.list_models()
    clean = name.replace("/", "-")
    if clean not in names:
        near = difflib.get_close_matches(clean.lower(), [n.lower() for n in names], n=4, cutoff=0.5)
        hint = [n for n in names if n.lower() in near]
        raise ValueError(
            f"load_open_clip: open_clip has no architecture {name!r}; near matches are {', '.join(hint) or 'none'}. "
            "open_clip.list_models() lists all; for a folder, write 'local-dir:path'"
        )
    return clean


def known_weights(name: str, pretrained: str | Path | None) -> str | Path:
    """Return the weights if they are a tag of the architecture or a file."""
    import open_clip

    tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none"
    if pretrained is None:
        raise ValueError(
            f"load_open_clip: pretrained is missing. Pass a checkpoint file or one of the tags of {name}: {tags}. "
            f"For random weights, use wrap(open_clip.create_model({name!r}))"
        )
    if not (open_clip.is_pretrained_cfg(name, str(pretrained)) or Path(pretrained).is_file()):
        raise ValueError(
            f"load_open_clip: {str(pretrained)!r} is neither a file nor a tag of {name}; its tags are {tags}"
        )
    return pretrained


def weights_files(name: str, pretrained: str | Path | None) -> list[Path]:
    """Return the local files that the weights are read from; an empty list for a tag or a hub id."""
    if name.startswith("local-dir:"):
        return weights_in(Path(name.removeprefix("local-dir:")))
    return [] if _is_remote(name, pretrained) else [Path(str(pretrained))]


def _is_remote(name: str, pretrained: str | Path | None) -> bool:
    """Return whether the weights are a tag or of the Hugging Face Hub, and downloaded unless they are cached."""
    import open_clip

    return name.startswith("hf-hub:") or open_clip.is_pretrained_cfg(name, str(pretrained))


def activation(name: str, tag: str, asked: bool | None) -> bool | None:
    """Return whether to use QuickGELU: as asked, else as the tag says, else None for the architecture's setting."""
    import open_clip

    if asked is not None or not open_clip.is_pretrained_cfg(name, tag):
        return asked
    of_tag = bool(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False))
    of_name = bool(open_clip.get_model_config(name).get("quick_gelu", False))
    if of_name and not of_tag:
        raise ValueError(
            f"load_open_clip: the architecture {name!r} has QuickGELU and the tag {tag!r} is registered without it; "
            "pass quick_gelu=True or quick_gelu=False, whichever the weights were trained with"
        )
    return of_tag


def create(name: str, pretrained: str | None, options: dict[str, Any]) -> Any:
    """Return the module with its weights; ``pretrained`` is None for a name that holds its own."""
    import open_clip

    weights = str(pretrained or name)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "QuickGELU mismatch")  # the caller has settled it
            return open_clip.create_model(name, pretrained, weights_only=True, require_pretrained=True, **options)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"load_open_clip: refused to load the weights {weights!r}, because the file is broken or holds "
            "objects that could run code; pass safetensors or a state dict of tensors"
        ) from error
    except (RuntimeError, AttributeError, AssertionError, KeyError, StopIteration) as error:  # not weights of this kind
        if isinstance(error, RuntimeError) and "state_dict" not in str(error):
            if _is_remote(name, pretrained) and any(isinstance(one, OSError) for one in _causes(error)):
                raise _not_fetched(name, pretrained, error) from error
            raise
        raise ValueError(
            f"load_open_clip: the weights {weights!r} do not fit {name!r}. {type(error).__name__}: {error}"
        ) from error


def tokenizer_of(name: str) -> Any:
    """Return the architecture's own tokenizer, which may have to be downloaded."""
    import open_clip

    try:
        return open_clip.get_tokenizer(name)
    except OSError as error:
        raise ConnectionError(
            f"load_open_clip: the tokenizer of {name!r} could not be fetched ({_reason(error)}). Connect to the network, or "
            f"pass tokenizer=. {NO_DOWNLOAD}"
        ) from error


def _not_fetched(name: str, pretrained: str | None, error: Exception) -> ConnectionError:
    """Return the error for weights that have to be downloaded and cannot be: what they are, why, and what to do."""
    import open_clip

    if pretrained is None:
        what, instead = f"{name!r}", "download it elsewhere and pass 'local-dir:FOLDER'"
    else:
        config = open_clip.get_pretrained_cfg(name, pretrained)
        source = (config.get("hf_hub") or config.get("url", "")).rstrip("/")
        what = f"the weights {pretrained!r} of {name!r}, from {source},"
        instead = f"download them elsewhere and pass {', '.join(['pretrained=FILE', *_lost_in_a_file(config)])}"
    return ConnectionError(
        f"load_open_clip: {what} could not be fetched ({_reason(error)}). Connect to the network, or {instead}. {NO_DOWNLOAD}"
    )


def _lost_in_a_file(config: dict[str, Any]) -> list[str]:
    """Return the keywords to pass with a file of a tag's weights: what the tag determines and the file does not say."""
    import open_clip

    plain = vars(open_clip.transform.PreprocessCfg())
    usual = all(config.get(key, plain[key]) == plain[key] for key in ("mean", "std", "interpolation", "resize_mode"))
    return ["quick_gelu=True"] * bool(config.get("quick_gelu")) + ["image_spec=…"] * (not usual)


def _reason(error: BaseException) -> str:
    """Return the text of the first of the errors that led to one, such as 'Name or service not known'."""
    first = _causes(error)[-1]
    return str(first).rstrip(".") or type(first).__name__


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and those that led to it, the first one last."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None:
        found.append(cause)
    return found
