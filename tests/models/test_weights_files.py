"""Damaged weights, and weights that claim more than their file holds: one line that says which file and what to do."""

import json
import zipfile

import pytest
import safetensors.torch
import torch
from support.cases import SMALL
from support.marking import slow_but
from support.zoo import clip_tokenizer, transformers_model

import tpt_lib

HUGE = 10**7


@pytest.fixture
def state(monkeypatch):
    import open_clip

    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small", SMALL)
    return open_clip.create_model("small").state_dict()


def write(path, state, suffix):
    if suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=suffix == ".pt")


DAMAGED = {
    "empty": (lambda data: b"", "the file is empty. Download or save it again"),
    "one byte": (lambda data: data[:1], "it is cut short or broken"),
    "half": (lambda data: data[: len(data) // 2], "it is cut short or broken"),
    "nearly whole": (lambda data: data[:-9], "it is cut short or broken"),
    "a page": (
        lambda data: b"<!DOCTYPE html><html>not found</html>",
        "it is a text file that begins with '<!DOCTYPE html>",
    ),
    "a pointer": (
        lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "it is a Git LFS pointer",
    ),
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("suffix", slow_but([".pt", ".safetensors"], [".pt", ".bin", ".safetensors"]))
@pytest.mark.parametrize("folder", slow_but([False], [False, True]))
def test_damaged_weights_are_named(folder, suffix, damage, state, tmp_path):
    cut, says = DAMAGED[damage]
    path = tmp_path / f"open_clip_model{suffix}"
    write(path, state, suffix)
    if folder:
        (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": SMALL, "preprocess_cfg": {}}))
        path = path.rename(path.with_suffix(".bin" if suffix == ".pt" else suffix))
    load = (f"local-dir:{tmp_path}",) if folder else ("small", path)
    assert tpt_lib.load_open_clip(*load).image_spec.size == (32, 32)
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"^load_open_clip: the weights '.*{path.name}' cannot be read: {says}"):
        tpt_lib.load_open_clip(*load)


@pytest.mark.parametrize("damage", ["empty", "half", "a page"])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_damaged_weights_of_transformers(name, damage, tmp_path):
    cut, says = DAMAGED[damage]
    model = transformers_model()
    model.config.save_pretrained(tmp_path)
    write(tmp_path / name, {key: value.clone() for key, value in model.state_dict().items()}, name[-12:])
    (tmp_path / name).write_bytes(cut((tmp_path / name).read_bytes()))
    with pytest.raises(ValueError, match=rf"^load_transformers: the weights '.*{name}' cannot be read: {says}"):
        tpt_lib.load_transformers(tmp_path)


DAMAGED_TOKENIZERS = [
    ("tokenizer.json", "", r"'.*tokenizer.json' is empty"),
    ("tokenizer.json", '{\n"version": "1.0",\n"added', r"'.*tokenizer.json' is cut short or broken at line 3"),
    ("tokenizer_config.json", "[]", "the tokenizer or the image processor of .* cannot be read"),
    ("tokenizer.json", None, r"the tokenizer of .* knows 2 tokens, the model 49408; its files .* are missing"),
]


@pytest.mark.parametrize(("file", "text", "says"), slow_but([DAMAGED_TOKENIZERS[1]], DAMAGED_TOKENIZERS))
def test_damaged_files_of_a_tokenizer(file, text, says, tmp_path):
    transformers_model().save_pretrained(tmp_path)
    clip_tokenizer().save_pretrained(tmp_path)
    spec = tpt_lib.ImageSpec((32, 32))
    assert tpt_lib.load_transformers(tmp_path, image_spec=spec).tokenize(["cat"]).max() == 49407
    (tmp_path / file).unlink() if text is None else (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=f"^load_transformers: {says}"):
        tpt_lib.load_transformers(tmp_path, image_spec=spec)


@pytest.mark.parametrize("content", [{}, [], 5, {"state_dict": None}, {1: torch.zeros(2)},
                                     {"positional_embedding": torch.zeros(2, 3)}])  # fmt: skip
def test_a_file_of_something_else(content, state, tmp_path):
    torch.save(content, tmp_path / "odd.pt")
    with pytest.raises(ValueError, match=r"^load_open_clip: the weights '.*odd.pt' do not fit 'small'"):
        tpt_lib.load_open_clip("small", tmp_path / "odd.pt")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript(state, tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "jit.pt")
    with pytest.raises(ValueError, match=r"it is a TorchScript archive. Save its state dict"):
        tpt_lib.load_open_clip("small", tmp_path / "jit.pt")


@pytest.mark.usefixtures("no_shape_checks")
def test_paths_that_are_no_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for path in (tmp_path / "config.json", tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=r"is not a folder; pass the one with config.json, or a hub id"):
            tpt_lib.load_transformers(path)
    with pytest.raises(TypeError, match=r"name must be a string, such as 'ViT-B-16', but got"):
        tpt_lib.load_open_clip(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_tensor_that_claims_more_than_the_file_holds(zipped, dtype, state, tmp_path):
    claims = torch.zeros(1, dtype=dtype).expand(HUGE, HUGE)
    torch.save({"ctx": claims}, tmp_path / "prompt.pt", _use_new_zipfile_serialization=zipped)
    torch.save({**state, "positional_embedding": claims}, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        ValueError, match=r"load_prompt: in .* the tensor 'ctx' of shape \(10000000, 10000000\) claims .* but"
    ):
        tpt_lib.load_prompt(tmp_path / "prompt.pt")
    with pytest.raises(
        ValueError, match=r"load_open_clip: in .* 'positional_embedding' of shape .* claims .* bytes, but"
    ):
        tpt_lib.load_open_clip("small", tmp_path / "w.pt")


def test_tied_and_repeated_weights_are_fine(state, tmp_path):
    table = torch.randn(8, 32)
    torch.save({"ctx": table[:4], "same": table, "ids": torch.arange(4).expand(3, 4)}, tmp_path / "prompt.pt")
    assert tpt_lib.load_prompt(tmp_path / "prompt.pt").context.equal(table[:4])


def test_a_header_that_claims_more_than_the_file_holds(state, tmp_path):
    header = json.dumps({"ctx": {"dtype": "F32", "shape": [HUGE, HUGE], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "prompt.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(
        ValueError, match=r"load_prompt: .* cannot be read as a checkpoint of tensors: it is cut short or broken"
    ):
        tpt_lib.load_prompt(path)
    with pytest.raises(ValueError, match=r"load_open_clip: .* cannot be read: it is cut short or broken"):
        tpt_lib.load_open_clip("small", path)


def test_a_compressed_archive_is_not_unpacked(state, tmp_path):
    torch.save({"ctx": torch.zeros(512, 2048)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain:
        records = {one.filename: plain.read(one) for one in plain.infolist()}
    with zipfile.ZipFile(tmp_path / "w.pt", "w", zipfile.ZIP_DEFLATED) as small:
        for name, data in records.items():
            small.writestr(name, data)
    with pytest.raises(ValueError, match=r"load_prompt: .* but unpacks to 4,19.*torch.save does not compress"):
        tpt_lib.load_prompt(tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"load_open_clip: .* but unpacks to 4,19"):
        tpt_lib.load_open_clip("small", tmp_path / "w.pt")
