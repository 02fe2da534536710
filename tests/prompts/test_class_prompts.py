"""Where context, name and rest lie, pinned on token ids."""

import collections
import re

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from support.zoo import ZOO, build, clip_tokenizer, transformers_model

import tpt_lib
from tpt_lib.prompts.templates import CONTEXT, NAME, REST, short

SOS, EOT = 49406, 49407
A, PHOTO, OF = 320, 1125, 539


@pytest.fixture(scope="module")
def model():
    return build("open_clip-vit")


def pieces(prompts, k=0):
    """The tokens of class k by role, as text: context, name, rest."""
    import open_clip

    decoder = open_clip.SimpleTokenizer().decoder
    row = [
        (decoder[i].replace("</w>", "_"), r)
        for i, r in zip(prompts.ids[k].tolist(), prompts.roles[k].tolist(), strict=True)
    ]
    row = row[: prompts.lengths[k]]
    return ["".join(token for token, role in row if role == wanted) for wanted in (CONTEXT, NAME, REST)]


def test_convention_default_template(model):
    prompts = tpt_lib.class_prompts(model, ["cat", "red_panda"])
    assert prompts.ids[0, :9].tolist() == [SOS, A, PHOTO, OF, A, 2368, 269, EOT, 0]
    assert prompts.ids[1, :9].tolist() == [SOS, A, PHOTO, OF, A, 736, 12952, 269, EOT]
    assert prompts.roles[0, :9].tolist() == [0, 1, 1, 1, 1, 2, 0, 0, 0]
    assert prompts.roles[1, :9].tolist() == [0, 1, 1, 1, 1, 2, 2, 0, 0]
    assert prompts.lengths.tolist() == [8, 9]
    assert prompts.prefix == 5
    assert prompts.names == ("cat", "red_panda")
    assert torch.equal(prompts.context, model.module.token_embedding.weight[[A, PHOTO, OF, A]])
    assert not prompts.context.requires_grad


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
])  # fmt: skip
def test_roles_by_token(model, template, name, context, named, rest):
    prompts = tpt_lib.class_prompts(model, [name], template=template)
    assert pieces(prompts) == [context, named, f"<start_of_text>{rest}<end_of_text>"]


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
    """The tokenizer's own ids of the whole text, or a refusal that names one of the names."""
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
    if kind != "transformers-siglip":  # which tells "cat ." from "cat."
        assert torch.equal(prompts.ids, model.tokenize([template.replace("{}", n.replace("_", " ")) for n in names]))
    context = prompts.ids[prompts.roles == CONTEXT].reshape(len(names), -1)
    assert (context == context[0]).all()
    assert context.shape[1] >= 3


TOKENIZERS = pytest.mark.parametrize(
    "kind", ["open_clip-vit", "transformers-clip-own-tokenizer", "transformers-siglip"]
)


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
    ("cat\udfff", r"class 1 of 2, 'cat\\udfff', is no text: it holds half of a surrogate pair, as from a file"),
    ("\ud800" * 10_000, r"class 1 of 2, '(\\ud800){40}…', is no text"),
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


# where the context comes from


def test_context_from_words(model):
    prompts = tpt_lib.class_prompts(model, ["cat"], context="a blurry picture of some")
    same = tpt_lib.class_prompts(model, ["cat"], template="a blurry picture of some {}.")
    assert torch.equal(prompts.ids, same.ids)
    assert torch.equal(prompts.roles, same.roles)
    assert torch.equal(prompts.context, same.context)
    behind = tpt_lib.class_prompts(model, ["cat"], template="{} in a photo.", context="seen from above")
    assert pieces(behind)[:2] == ["seen_from_above_", "cat_"]
    assert pieces(behind)[2] == "<start_of_text>._<end_of_text>"


@pytest.mark.parametrize("length", [1, 4, 16])
def test_context_from_a_tensor(model, length):
    context = tpt_lib.gaussian_context(model, length, seed=3)
    prompts = tpt_lib.class_prompts(model, ["cat", "red panda"], context=context)
    assert torch.equal(prompts.context, context)
    assert (prompts.roles == CONTEXT).sum(dim=1).tolist() == [length, length]
    assert prompts.prefix == 1 + length
    assert prompts.ids.max(dim=1).values.tolist() == [EOT, EOT]
    assert prompts.lengths.tolist() == [length + 4, length + 5]


def test_class_specific_context_shares_no_prefix(model):
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=torch.randn(2, 16, 32))
    assert prompts.context.shape == (2, 16, 32)
    assert prompts.prefix == 1


def test_context_around_the_name(model):
    context = torch.randn(4, 32)
    prompts = tpt_lib.class_prompts(model, ["cat"], template="a photo {} of a.", context=context)
    assert prompts.roles[0, :9].tolist() == [0, 1, 1, 2, 1, 1, 0, 0, 0]


def test_gaussian_context(model):
    drawn = tpt_lib.gaussian_context(model, 4000, sigma=0.02, seed=1)
    assert abs(drawn.std().item() - 0.02) < 2e-4
    assert abs(drawn.mean().item()) < 3e-4
    assert torch.equal(drawn, tpt_lib.gaussian_context(model, 4000, seed=1))
    assert not torch.equal(drawn, tpt_lib.gaussian_context(model, 4000, seed=2))
    assert tpt_lib.gaussian_context(model, 4, classes=3).shape == (3, 4, 32)


def test_free_names(model):
    tokens = torch.randn(2, 1, 32)
    prompts = tpt_lib.class_prompts(model, ["positive", "negative"], context=torch.randn(4, 32), name_tokens=tokens)
    assert prompts.names == ("positive", "negative")
    assert prompts.roles[:, :9].tolist() == [[0, 1, 1, 1, 1, 2, 0, 0, 0]] * 2
    assert prompts.ids[0, 6].item() == 269
    assert torch.equal(prompts.name_tokens, tokens)


# CoOp and CoCoOp checkpoints


def checkpoint(path, **state):
    """A file as CoOp's trainer leaves it, optimizer and scheduler objects and all."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    saved = {
        "state_dict": collections.OrderedDict(state), "epoch": 50, "val_result": None,
        "optimizer": optimizer.state_dict(), "scheduler": {"successor": scheduler, "cons_lr": 1e-5},
    }  # fmt: skip
    torch.save(saved, path)
    return path


def test_coop_checkpoint(model, tmp_path):
    ctx = torch.randn(16, 32)
    state = {"ctx": ctx.half(), "token_prefix": torch.randn(3, 1, 32), "token_suffix": torch.randn(3, 60, 32)}
    path = checkpoint(tmp_path / "model.pth.tar-50", **state)
    with pytest.raises(Exception, match="Unsupported global"):
        torch.load(path, weights_only=True)
    learned = tpt_lib.load_prompt(path)
    assert learned.meta_net is None
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=learned)
    assert torch.equal(prompts.context, ctx.half().float())


def test_class_specific_coop_checkpoint(model, tmp_path):
    ctx = torch.randn(2, 4, 32)
    learned = tpt_lib.load_prompt(checkpoint(tmp_path / "csc.pth", ctx=ctx))
    assert torch.equal(tpt_lib.class_prompts(model, ["cat", "dog"], context=learned).context, ctx)
    with pytest.raises(ValueError, match=r"for 3 classes .* or \(3, L, 32\) .* but got \(2, 4, 32\)"):
        tpt_lib.class_prompts(model, ["cat", "dog", "kite"], context=learned)


def test_cocoop_checkpoint(model, tmp_path):
    net = torch.nn.Sequential(
        collections.OrderedDict(linear1=torch.nn.Linear(16, 1), relu=torch.nn.ReLU(), linear2=torch.nn.Linear(1, 32))
    )
    ctx = torch.randn(4, 32)
    weights = {f"prompt_learner.meta_net.{k}": v for k, v in net.state_dict().items()}
    path = tmp_path / "cocoop.pth"
    torch.save({"prompt_learner.ctx": ctx, **weights}, path)
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=tpt_lib.load_prompt(path))
    image = torch.nn.functional.normalize(torch.randn(5, 16), dim=-1)
    with torch.no_grad():
        want = ctx + net(image)[:, None]
    torch.testing.assert_close(tpt_lib.prompts.conditional_context(prompts, image), want)
    torch.testing.assert_close(tpt_lib.prompts.conditional_context(prompts, image[0]), want[0])
    plain = tpt_lib.class_prompts(model, ["cat", "dog"])
    assert torch.equal(tpt_lib.prompts.conditional_context(plain, image)[3], plain.context)


def cocoop(change):
    shapes = {"ctx": (4, 32), "meta_net.linear1.weight": (2, 16), "meta_net.linear1.bias": (2,)}
    shapes |= {"meta_net.linear2.weight": (32, 2), "meta_net.linear2.bias": (32,)}
    return {key: torch.zeros(shape) for key, shape in shapes.items()} | change


def test_a_network_for_features_of_another_width(model, tmp_path):
    torch.save(cocoop({"meta_net.linear1.weight": torch.zeros(2, 7)}), tmp_path / "cocoop.pth")
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=tpt_lib.load_prompt(tmp_path / "cocoop.pth"))
    with pytest.raises(
        ValueError, match=r"\(meta_net.linear1.weight\) takes image features of width 7, but got 16; the checkpoint"
    ):
        tpt_lib.tpt_predict(model, prompts, torch.ones(4, 16))


@pytest.mark.parametrize(("content", "message"), [
    ({"state_dict": {"weight": torch.zeros(2)}}, "holds no tensor 'ctx', .* its keys are weight"),
    ({"ctx": "text"}, "holds no tensor 'ctx'"),
    ([1, 2], "holds no tensor 'ctx', .* its keys are none"),
    ({"ctx": torch.zeros(4, 32), "meta_net.linear1.weight": torch.zeros(1, 16)}, "part of a CoCoOp network"),
    ({"ctx": torch.zeros(32)}, r"'ctx' is torch.float32 of shape \(32,\), which does not fit; ctx is floats \(L, D\) or"),
    ({"ctx": torch.zeros(4, 32).long()}, r"'ctx' is torch.int64 of shape \(4, 32\), which does not fit"),
    (cocoop({"meta_net.linear1.weight": torch.zeros(16)}), r"'meta_net.linear1.weight' is torch.float32 of shape \(16,\)"),
    (cocoop({"meta_net.linear1.bias": torch.zeros(3)}), r"'meta_net.linear1.bias' is torch.float32 of shape \(3,\), which"),
    (cocoop({"meta_net.linear2.weight": torch.zeros(32, 5)}), r"'meta_net.linear2.weight' is torch.float32 of shape \(32, 5\)"),
    (cocoop({"meta_net.linear2.bias": torch.zeros(31)}), r"'meta_net.linear2.bias' is .* here \(4, 32\), and meta_net goes"),
])  # fmt: skip
def test_a_file_that_is_no_prompt(tmp_path, content, message):
    torch.save(content, tmp_path / "file.pth")
    with pytest.raises(ValueError, match=message):
        tpt_lib.load_prompt(tmp_path / "file.pth")


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="load_prompt: there is no file"):
        tpt_lib.load_prompt(tmp_path / "nothing.pth")


# bad input


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("call", "kind", "message"), [
    ({"names": []}, ValueError, "names is empty; at least one class is needed"),
    ({"names": "cat"}, TypeError, r"names must be a list of strings, but got 'cat'; one class is \['cat'\]"),
    ({"names": ["cat", 3]}, TypeError, r"names must be a list of strings, but got \['cat', 3\]"),
    ({"names": ["cat", " _ "]}, ValueError, "class 1 of 2 has an empty name, ' _ '"),
    ({"names": ["cat", "word " * 71]}, ValueError,
     r"the class 'word word .*…' \(354 characters\) does not fit: .* more than the 77 tokens of the model's context"),
    ({"template": "a photo."}, ValueError, r"a template holds \{\} once, .* but got 'a photo\.'"),
    ({"template": "a {} of {}."}, ValueError, r"a template holds \{\} once"),
    ({"template": "a {name}."}, ValueError, r"a template holds \{\} once"),
    ({"template": "a {} of", "context": torch.zeros(5, 32)}, ValueError, "context on both sides .* the 5 given context"),
    ({"context": torch.zeros(4, 31)}, ValueError, r"a context has shape \(L, 32\), or \(1, L, 32\) .* got \(4, 31\)"),
    ({"context": torch.zeros(2, 4, 32)}, ValueError, r"for 1 classes .* but got \(2, 4, 32\)"),
    ({"name_tokens": torch.zeros(2, 1, 32)}, ValueError, r"name_tokens have shape \(1, M, 32\), but got \(2, 1, 32\)"),
    ({"template": "a #{}.", "name_tokens": torch.zeros(1, 1, 32)}, ValueError, "a template whose {} stands alone"),
    ({"context": tpt_lib.prompts.LearnedPrompt(torch.zeros(4, 32), tpt_lib.prompts.MetaNet(
        torch.zeros(1, 16), torch.zeros(1), torch.zeros(8, 1), torch.zeros(8)))}, ValueError, "width 8, the model has 32"),
])  # fmt: skip
def test_bad_input(model, call, kind, message):
    with pytest.raises(kind, match=message):
        tpt_lib.class_prompts(model, **{"names": ["cat"], **call})


@pytest.mark.parametrize("name", ["<|endoftext|>", "cat <|endoftext|> dog", "<|startoftext|>", "a<|endoftext|>"])
def test_special_tokens_cannot_be_smuggled_in(name):
    model = tpt_lib.wrap(transformers_model(), clip_tokenizer())
    with pytest.raises(ValueError, match="reads as its start or end token"):
        tpt_lib.class_prompts(model, ["cat", name])


def test_a_name_the_tokenizer_drops():
    def letters_only(texts):
        kept = ["".join(c for c in text if c.isalpha() or c == " ") for text in texts]
        return build("open_clip-vit").tokenize(kept)

    from support.zoo import open_clip_model

    model = tpt_lib.wrap(open_clip_model(), letters_only)
    with pytest.raises(ValueError, match=r"gives the class '!!!' no tokens of its own in 'a photo of a \{\}\.'"):
        tpt_lib.class_prompts(model, ["cat", "!!!"])
