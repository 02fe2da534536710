"""Where context, name and rest are, pinned on token ids, for any tokenizer and any text."""

import functools
import re

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from support.letters import Letters
from support.zoo import ZOO, build, clip_tokenizer, open_clip_model, transformers_model

import tpt_lib
from tpt_lib.prompts.templates import CONTEXT, NAME, REST, Template, placeholder, short

EOT = 49407


@functools.cache
def vocabulary():
    import open_clip

    return open_clip.SimpleTokenizer()


def pieces(prompts, k=0):
    """Return the tokens of class k by role, as text: context, name, rest."""
    decoder = vocabulary().decoder
    row = [
        (decoder[i].replace("</w>", "_"), r)
        for i, r in zip(prompts.ids[k].tolist(), prompts.roles[k].tolist(), strict=True)
    ]
    row = row[: prompts.lengths[k]]
    return ["".join(token for token, role in row if role == wanted) for wanted in (CONTEXT, NAME, REST)]


@pytest.mark.parametrize(("template", "name", "context", "named", "rest"), [
    ("a photo of a {}.", "kite (bird of prey)", "a_photo_of_a_", "kite_(_bird_of_prey_)._", ""),
    ("a photo of a {}, a type of pet.", "dog", "a_photo_of_a_a_type_of_pet_", "dog_", ",_._"),
    ("a photo of a {}, a type of pet.", "kite (bird)", "a_photo_of_a_a_type_of_pet_", "kite_(_bird_),_", "._"),
    ("{} in a satellite photo.", "annual crop land", "in_a_satellite_photo_", "annual_crop_land_", "._"),
    ("many {}s here", "dog", "many_here_", "dogs_", ""),
    ("a centered satellite photo of {}.", "sea", "a_centered_satellite_photo_of_", "sea_", "._"),
    ("itap of my {}", "dog", "itap_of_my_", "dog_", ""),
    ("a photo of: {}", "dog", "a_photo_of_:_", "dog_", ""),
    ("a photo of a #{}!", "dog", "a_photo_of_a_", "#_dog_", "!_"),
    ("{}", "dog", "", "dog_", ""),
    ("a {} photo (of sorts!).", "dog", "a_photo_(_of_sorts_", "dog_", "!)._"),
    ("a photo of a {}.", "UPPER Case", "a_photo_of_a_", "upper_case_", "._"),
    ("a photo of a {}.", "dog's", "a_photo_of_a_", "dog_'s_", "._"),
    ("a photo of a {}.", "{}", "a_photo_of_a_", "{}._", ""),
    ("a photo of a {}.", "747-400", "a_photo_of_a_", "7_4_7_-_4_0_0_", "._"),
    ("a photo of a {}.", "  spaced \t out ", "a_photo_of_a_", "spaced_out_", "._"),
    ("a photo of a {}.", ":", "a_photo_of_a_", ":._", ""),
    ("a photo of a {}.", ":_", "a_photo_of_a_", ":._", ""),  # stripped, so not ":_ ._" as in "a photo of a : ."
])  # fmt: skip
def test_roles_by_token(model, template, name, context, named, rest):
    prompts = tpt_lib.class_prompts(model, [name], template=template)
    assert pieces(prompts) == [context, named, f"<start_of_text>{rest}<end_of_text>"]


@pytest.mark.parametrize("words", ["seen", "seen from", "seen from far above"])
@pytest.mark.parametrize(
    ("template", "filled"), [("a photo of a {}.", "{0} cat."), ("{} in a photo!", "cat {0}!"), ("my {}", "{0} cat")]
)
def test_other_words_take_the_place_of_the_context(template, filled, words):
    """The words of the context change, the punctuation stays."""
    assert Template.parse(template).with_context(words.split()).fill("cat") == filled.format(words)


def test_words_of_several_tokens_in_the_template(model):
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], template="a grainytilted photograph of {}.")
    assert pieces(prompts, 1)[0] == "a_grainytilted_photograph_of_"
    assert len(prompts.context) > 4


@pytest.mark.parametrize("name", ["Ünïcödé É", "日本", "🦊", "кот", "café"])
def test_unicode_names(model, name):
    prompts = tpt_lib.class_prompts(model, [name, "cat"])
    bodies = model.tokenize([f"a photo of a {name}."])
    assert torch.equal(prompts.ids[:1], bodies)
    assert (prompts.roles[0] == NAME).sum() >= 1
    assert (prompts.roles == CONTEXT).sum(dim=1).tolist() == [4, 4]


def test_twenty_tokens_and_a_name_that_just_fits(model):
    twenty = " ".join(["word"] * 20)
    longest = " ".join(["word"] * 70)
    prompts = tpt_lib.class_prompts(model, [twenty, longest])
    assert (prompts.roles == NAME).sum(dim=1).tolist() == [20, 70]
    assert prompts.lengths.tolist() == [27, 77]


ODD = [
    "", " ", "\u3000", "\u200b", "_", "\0", "cat\0dog", "cat\x1cdog", "a\x0b", "\ud800", "cat\udfff", "\U0010ffff", "\u2028",
    "a" * 10_000, "a " * 5_000, "😀" * 3_000, "👨\u200d👩\u200d👧", "مرحبا", "\u202ecat", "\ufeff", "\u0301", "İ", "ﬁ",
    "{}", "{0}", "%s", "&lt;", "&amp;amp;", "<|endoftext|>", "<end_of_text>", "</s>", "...", "'s", "cat\n", "red  panda",
]  # fmt: skip


anything = st.text(st.characters(), max_size=12) | st.sampled_from(ODD)  # surrogates and controls too


def check_names(kind, names, template):
    """Expect the tokenizer's own ids of the whole text, or a refusal that names one of the names."""
    model = build(kind)
    cleaned = [re.sub("[ \t\n\r]+", " ", name.replace("_", " ")).strip(" ") for name in names]
    refusal = ""
    try:
        prompts = tpt_lib.class_prompts(model, names, template=template)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("class_prompts: ")
        assert any(short(name) in refusal for name in names + cleaned)
        return
    assert torch.equal(prompts.ids, model.tokenize([template.replace("{}", name) for name in cleaned]))
    if kind != "transformers-siglip":  # for which a tab is no space
        stripped = [name.replace("_", " ").strip(" \t\n\r") for name in names]
        assert torch.equal(prompts.ids, model.tokenize([template.replace("{}", name) for name in stripped]))
    context = prompts.ids[prompts.roles == CONTEXT].reshape(len(names), -1)
    assert (context == context[0]).all()
    assert context.shape[1] >= 3


TOKENIZERS = pytest.mark.parametrize(
    "kind", ["open_clip-vit", "transformers-clip-own-tokenizer", "transformers-siglip"]
)


@pytest.mark.filterwarnings("ignore:class_prompts:UserWarning")
@TOKENIZERS
@hypothesis.settings(max_examples=60)
@hypothesis.given(st.lists(anything, min_size=1, max_size=3), st.sampled_from(["a photo of a {}.", "my {} here, now."]))
def test_any_text_is_the_tokenizers_own_or_refused(kind, names, template):
    check_names(kind, names, template)


@TOKENIZERS
def test_odd_names(kind):
    for name in ODD:
        check_names(kind, [name], "a photo of a {}.")


@pytest.mark.parametrize(("name", "message"), [
    (" \n", r"class 1 of 2 has an empty name, ' \\n'; give every class one"),
    ("cat\udfff", r"class 1 of 2, 'cat\\udfff', is not text: it holds half of a surrogate pair, as if from a file"),
    ("\ud800" * 10_000, r"class 1 of 2, '(\\ud800){40}…', is not text"),
    ("a" * 10_000, r"the class 'a{40}…' \(10000 characters\) does not fit"),
    ("<|endoftext|>", "holds text that the tokenizer reads as its start or end token"),
])  # fmt: skip
def test_why_names_are_refused(name, message):
    model = build("transformers-clip-own-tokenizer")
    with pytest.raises(ValueError, match=f"class_prompts: {message}" if "class 1" in message else message):
        tpt_lib.class_prompts(model, ["cat", name])


def test_sentencepiece_without_a_start_token():
    model = build("open_clip-siglip")
    prompts = tpt_lib.class_prompts(model, ["kite (bird of prey)", "cat"], template="a photo of a {}, a type of pet.")
    plain = model.tokenize(["a photo of a cat, a type of pet."])
    assert torch.equal(prompts.ids[1:], plain)
    assert prompts.roles[1, :12].tolist() == [1, 1, 1, 1, 2, 0, 1, 1, 1, 1, 0, 0]
    assert prompts.prefix == 4
    assert (prompts.roles == CONTEXT).sum(dim=1).tolist() == [8, 8]


@pytest.mark.parametrize("name", ZOO)
def test_every_tokenizer_gives_one_context(name):
    model = build(name)
    for template in ("a photo of a {} .", "the {} of a photo", "{} of the pet"):
        prompts = tpt_lib.class_prompts(model, ["cat", "red panda", "kite"], template=template)
        words = len(template.replace("{}", "").replace(".", "").split())
        assert (prompts.roles == CONTEXT).sum(dim=1).tolist() == [words] * 3
        assert len(prompts.context) == words
        assert (prompts.roles == NAME).sum(dim=1).min() >= 1


def test_padding_that_equals_the_end_token():
    model = build("transformers-clip-own-tokenizer")
    assert model.tokenize(["cat"])[0, 2:5].tolist() == [EOT, EOT, EOT]
    prompts = tpt_lib.class_prompts(model, ["cat", "red panda"])
    assert prompts.lengths.tolist() == [8, 9]


@pytest.mark.parametrize("name", ["<|endoftext|>", "cat <|endoftext|> dog", "<|startoftext|>", "a<|endoftext|>"])
def test_special_tokens_cannot_be_smuggled_in(name):
    model = tpt_lib.wrap(transformers_model(), clip_tokenizer())
    with pytest.raises(ValueError, match="reads as its start or end token"):
        tpt_lib.class_prompts(model, ["cat", name])


def test_a_name_the_tokenizer_drops():
    def letters_only(texts):
        kept = ["".join(c for c in text if c.isalpha() or c == " ") for text in texts]
        return build("open_clip-vit").tokenize(kept)

    model = tpt_lib.wrap(open_clip_model(), letters_only)
    with pytest.raises(ValueError, match=r"gives the class '!!!' no tokens of its own in 'a photo of a \{\}\.'"):
        tpt_lib.class_prompts(model, ["cat", "!!!"])


@pytest.mark.parametrize("template", ["a photo.", "a {} of {}.", "a {} of {name}.", "a {} {", "a {} }"])
def test_a_template_has_one_place_and_no_other_brace(template):
    with pytest.raises(ValueError, match=r"a template must contain \{\} exactly once"):
        Template.parse(template)


def test_a_tokenizer_that_joins_the_template_with_a_name():
    def joining(texts):
        return build("open_clip-vit").tokenize([text.replace("dog up on", "dog upon") for text in texts])

    model = tpt_lib.wrap(open_clip_model(), joining)
    with pytest.raises(
        ValueError, match=r"the context has 3 tokens with 'cat' and 2 with 'dog', because the tokenizer"
    ):
        tpt_lib.class_prompts(model, ["cat", "dog", "kite"], template="a {} up on")


class Words(Letters):
    """A model whose tokenizer knows some words; any other word has two tokens."""

    def __init__(self, *words):
        super().__init__()
        self.words = words

    def tokenize(self, texts):
        rows = [
            [1, *(i for word in text.split() for i in ([5] if word in self.words else [6, 7])), 2] for text in texts
        ]
        return torch.tensor([row + [0] * (24 - len(row)) for row in rows])


@pytest.mark.parametrize("words", [("X", "a"), ("a", "the"), ("the", "."), (".",)])
def test_a_placeholder_is_the_first_word_of_one_token(words):
    assert placeholder(Words(*words)) == words[0]
    with pytest.raises(ValueError, match="has no one-token word among X, a, the and"):
        placeholder(Words("red"))


class Cut(Letters):
    """A tokenizer of letters that knows no full stops, and cuts texts to 16 tokens with some tokens at their end."""

    def __init__(self, *ends):
        super().__init__()
        self.ends = ends

    def tokenize(self, texts):
        kept = 15 - len(self.ends)
        rows = [[1, *[ord(c) for c in text if c not in " ."][:kept], *self.ends] for text in texts]
        return torch.tensor([row + [0] * (16 - len(row)) for row in rows])


@pytest.mark.parametrize("ends", [(2,), (2, 3)])
def test_a_name_fits_to_the_last_token(ends):
    """Whatever was cut off, and where a full stop is no token."""
    model, room = Cut(*ends), 15 - len(ends) - len("my")
    lengths = tpt_lib.class_prompts(model, ["a" * room, "a"], template="my {}").lengths
    assert lengths.tolist() == [1 + len("my") + room + 1, 5]
    with pytest.raises(ValueError, match=r"does not fit: .* more than the 16 tokens"):
        tpt_lib.class_prompts(model, ["a" * (room + 1)], template="my {}")
    tpt_lib.class_prompts(model, ["a" * (room - 3 + len(ends))], template="my {}.")


def test_a_name_in_a_message_is_cut_after_40_characters():
    assert short("a" * 40) == repr("a" * 40)
    assert short("a" * 41) == repr("a" * 40 + "…")
