"""The words nearest to a context."""

import pytest
import torch
from support.app import tiny
from support.cases import model_of

import tpt_lib
from tpt_lib.app.words import nearest_words, read_vocabulary, single_tokens


@pytest.mark.parametrize("name", ["open_clip-vit", "transformers-chinese-clip", "open_clip-siglip"])
def test_words_of_one_token(name):
    """With a start token, without one, and for any tokenizer."""
    model = model_of(name)
    found = single_tokens(model, ["cat", "photo", "cat photo"])
    embedded = model.embed_tokens(found.ids[None])[0]
    for word, vector in zip(found.words, embedded, strict=True):
        assert " " not in word
        assert (model.embed_tokens(model.tokenize([word]))[0] == vector).all(dim=-1).any()


@pytest.mark.slow
def test_the_words_of_clip_are_frequent_ones():
    found = read_vocabulary(model_of())
    assert {"a", "photo", "of", "the", "dog"} <= {*found.words}
    assert 4000 < len(found.words) <= 8000


@pytest.mark.filterwarnings("error")
def test_the_embedded_model_has_the_words_it_was_trained_on():
    assert {"a", "photo", "of", "cat"} <= {*tiny().vocabulary.words}


def test_a_context_of_words_is_nearest_to_itself():
    context = tpt_lib.class_prompts(tiny().model, ["cat"]).context
    near = nearest_words(tiny().model, tiny().vocabulary, context)
    assert [words[0] for words in near] == [("a", 0.0), ("photo", 0.0), ("of", 0.0), ("a", 0.0)]
    moved = nearest_words(tiny().model, tiny().vocabulary, context + 0.001, top=2)
    assert [words[0][0] for words in moved] == ["a", "photo", "of", "a"]
    assert moved[0][0][1] == pytest.approx(0.001 * 128**0.5, rel=1e-3)
    assert moved[0][0][1] < moved[0][1][1]


def test_without_words():
    assert nearest_words(tiny().model, single_tokens(tiny().model, ["cat dog"]), torch.zeros(2, 128)) == [[], []]
