"""Small models of every kind the library wraps: the real architectures with random weights."""

import copy
import dataclasses
import functools
import importlib.util
import io
import pathlib
import pickle
import sys
import typing

import torch
from support.marking import slow_but

VISION = {"layers": 2, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 4, "layers": 3}


def open_clip_model(kind="CLIP", embed_dim=16, *, vision=None, text=None, **kwargs):
    import open_clip
    from open_clip.coca_model import CoCa

    cls = {"CLIP": open_clip.CLIP, "CustomTextCLIP": open_clip.CustomTextCLIP, "CoCa": CoCa}[kind]
    torch.manual_seed(0)
    model = cls(embed_dim, vision_cfg={**VISION, **(vision or {})}, text_cfg={**TEXT, **(text or {})}, **kwargs)
    return liven(model).eval()


def transformers_model(kind="CLIP", **text):
    import transformers

    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    vision = {**small, **({"num_patches": 4} if kind == "Siglip2" else {"image_size": 32}), "patch_size": 16}
    text = {**small, **({"project_dim": 32} if kind == "AltCLIP" else {}), **text}
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, projection_dim=16)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(config)
    for weight in model.parameters() if kind == "ChineseCLIP" else ():
        if weight.ndim > 1 and weight.std() > 0.5:  # as transformers 5.12 draws them, too large for float32
            weight.data.mul_(0.02)
    return liven(model).eval()


def openai_model():
    torch.manual_seed(0)
    return liven(openai_code().CLIP(16, 32, 2, 64, 16, 77, 49408, 32, 4, 3)).eval()


@functools.cache
def openai_code():
    """Import OpenAI's own code from a package whose ``__init__`` fails under current setuptools."""
    folder = importlib.util.find_spec("clip").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("openai_clip_model", pathlib.Path(folder) / "model.py")
    code = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    return code


def liven(model):
    """Randomize biases and norms: at their initial 0 and 1, many bugs would not show."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1 and p.numel() > 1:
                p.add_(0.1 * torch.randn_like(p))
    return model


@dataclasses.dataclass(frozen=True)
class Padded:
    """A tokenizer that can be pickled: words to ids, between ids before and after them, padded."""

    words: typing.Callable
    before: tuple
    after: tuple
    pad: int
    context_length: int

    def __call__(self, texts):
        room = self.context_length - len(self.before) - len(self.after)
        rows = [[*self.before, *self.words(text.lower())[:room], *self.after] for text in texts]
        return torch.tensor([row + [self.pad] * (self.context_length - len(row)) for row in rows])


def hashed_words(text):
    return [200 + sum(word.encode()) % 700 for word in text.split()]


@functools.cache
def sentencepiece_tokenizer(context_length=24):
    """Train a T5-like tokenizer, as SigLIP has: no start token, ``</s>`` as end and as padding."""
    import sentencepiece as spm

    words = "a photo of the cat dog red panda tabby kite bird prey (of prey) good bad type pet satellite view. , it's"
    lines = [" ".join(words.split()[i:] + words.split()[:i]) for i in range(25)] * 8
    blob = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=blob, vocab_size=90, hard_vocab_limit=False, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=9,
    )  # fmt: skip
    model = spm.SentencePieceProcessor(model_proto=blob.getvalue())
    return Padded(model.encode, (), (1,), 1, context_length)


def bert_tokenizer(context_length=24):
    """Return a BERT-like tokenizer: [CLS] words [SEP] padding, words by a stable hash."""
    return Padded(hashed_words, (101,), (102,), 0, context_length)


def clip_tokenizer():
    """Return transformers' CLIPTokenizer with the vocabulary that open_clip ships."""
    import open_clip
    import transformers

    own = open_clip.SimpleTokenizer()
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocab = {names.get(token, token): i for token, i in own.encoder.items()}
    return transformers.CLIPTokenizer(vocab=vocab, merges=list(own.bpe_ranks), model_max_length=77)


SIGLIP = {"no_causal_mask": True, "pool_type": "last", "proj_bias": True, "context_length": 24, "vocab_size": 100}
COCA = {"context_length": 76, "embed_cls": True, "output_tokens": True}

# name -> (a function that builds the module, the tokenizer's builder or None, the expected text engine)
ZOO = {
    "open_clip-vit": (open_clip_model, None, "packed"),
    "open_clip-quickgelu": (lambda: open_clip_model(quick_gelu=True), None, "packed"),
    "open_clip-resnet": (
        lambda: open_clip_model(vision={"layers": (1, 1, 1, 1), "width": 8, "head_width": 8}), None, "packed"
    ),
    "open_clip-custom-text": (lambda: open_clip_model("CustomTextCLIP", init_logit_bias=-1.0), None, "packed"),
    "open_clip-layer-scale": (
        lambda: open_clip_model("CustomTextCLIP", text={"ls_init_value": 0.5, "proj_bias": True}), None, "packed"
    ),
    "open_clip-not-causal": (
        lambda: open_clip_model("CustomTextCLIP", text={"no_causal_mask": True}), None, "full_length"
    ),
    "open_clip-qk-norm": (lambda: open_clip_model(text={"qk_norm": True}), None, "full_length"),
    "open_clip-siglip": (
        lambda: open_clip_model("CustomTextCLIP", text=SIGLIP, init_logit_bias=-10.0),
        sentencepiece_tokenizer, "full_length",
    ),
    "open_clip-coca": (
        lambda: open_clip_model("CoCa", vision={"attentional_pool": True, "output_tokens": True}, text=COCA,
                                multimodal_cfg={**TEXT, "context_length": 76}),
        None, "full_length",
    ),
    "openai": (openai_model, None, "packed"),
    "transformers-clip": (transformers_model, None, "packed"),
    "transformers-clip-own-tokenizer": (transformers_model, clip_tokenizer, "packed"),
    "transformers-siglip": (
        lambda: transformers_model("Siglip", vocab_size=100, max_position_embeddings=24, bos_token_id=0, eos_token_id=1,
                                   pad_token_id=1),
        sentencepiece_tokenizer, "full_length",
    ),
    "transformers-siglip2": (
        lambda: transformers_model("Siglip2", vocab_size=100, max_position_embeddings=24, bos_token_id=0,
                                   eos_token_id=1, pad_token_id=1),
        sentencepiece_tokenizer, "full_length",
    ),
    "transformers-chinese-clip": (
        lambda: transformers_model("ChineseCLIP", vocab_size=1000, max_position_embeddings=24),
        bert_tokenizer, "full_length",
    ),
    "transformers-altclip": (
        lambda: transformers_model("AltCLIP", vocab_size=1000, max_position_embeddings=40, pad_token_id=0),
        bert_tokenizer, "full_length",
    ),
}  # fmt: skip
FEW = (
    "open_clip-vit",
    "open_clip-custom-text",
    "open_clip-not-causal",
    "openai",
    "transformers-clip",
    "transformers-siglip",
)
EACH_FEW_QUICK = slow_but(FEW, list(ZOO))


@functools.cache
def build(name):
    """Return a wrapped model of the zoo. Tests share it and must not change it."""
    return fresh(name)


def fresh(name):
    """Return a wrapped model of the zoo that the caller may change, all but its tokenizer."""
    import tpt_lib

    first = _first(name)
    return tpt_lib.wrap(copy.deepcopy(first.module), first.tokenizer)


@functools.cache
def _first(name):
    """Return the wrapped model that the others copy: drawing an embedding for each token takes longer than copying it."""
    import tpt_lib

    module, tokenizer, _ = ZOO[name]
    return tpt_lib.wrap(module(), tokenizer and tokenizer())


def unpickle(data):
    """Return what ``pickle.dumps`` made of a model of the zoo, in any process."""
    openai_code()
    return pickle.loads(data)
