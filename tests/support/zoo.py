"""Small models of every kind the library wraps, with random weights of the real architectures."""

import functools
import importlib.util
import io
import pathlib
import sys

import torch

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
    return liven(getattr(transformers, f"{kind}Model")(config)).eval()


def openai_model():
    """OpenAI's own class, from a package whose __init__ no longer imports under current setuptools."""
    folder = importlib.util.find_spec("clip").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("openai_clip_model", pathlib.Path(folder) / "model.py")
    code = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    torch.manual_seed(0)
    return liven(code.CLIP(16, 32, 2, 64, 16, 77, 49408, 32, 4, 3)).eval()


def liven(model):
    """Random biases and norms too: at their initial 0 and 1, many a fault would not show."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1 and p.numel() > 1:
                p.add_(0.1 * torch.randn_like(p))
    return model


@functools.cache
def sentencepiece_tokenizer(context_length=24):
    """A T5-like tokenizer, as SigLIP has: no start token, ``</s>`` as end and as padding."""
    import sentencepiece as spm

    words = "a photo of the cat dog red panda tabby kite bird prey (of prey) good bad type pet satellite view. , it's"
    lines = [" ".join(words.split()[i:] + words.split()[:i]) for i in range(25)] * 8
    blob = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=blob, vocab_size=90, hard_vocab_limit=False, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=9,
    )  # fmt: skip
    model = spm.SentencePieceProcessor(model_proto=blob.getvalue())

    def tokenize(texts):
        rows = [[*model.encode(text.lower())[: context_length - 1], 1] for text in texts]
        return torch.tensor([row + [1] * (context_length - len(row)) for row in rows])

    return tokenize


@functools.cache
def bert_tokenizer(context_length=24):
    """A BERT-like one: [CLS] words [SEP] padding, words by a stable hash."""

    def tokenize(texts):
        rows = [[101, *(200 + sum(w.encode()) % 700 for w in text.lower().split()), 102] for text in texts]
        return torch.tensor([row + [0] * (context_length - len(row)) for row in rows])

    return tokenize


def clip_tokenizer():
    """transformers' CLIPTokenizer, from the vocabulary that open_clip ships."""
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


@functools.cache
def build(name):
    """A wrapped model of the zoo, shared between tests, which must leave it as it is."""
    return fresh(name)


def fresh(name):
    import tpt_lib

    module, tokenizer, _ = ZOO[name]
    return tpt_lib.wrap(module(), tokenizer and tokenizer())
