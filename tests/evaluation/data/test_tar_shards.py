"""Datasets of tar shards."""

import io
import pickle

import pytest
import torch
from PIL import Image
from support.shards import encoded, numbered, write_shard

import tpt_lib
from tpt_lib.evaluation import dataset_identity, load_dataset
from tpt_lib.evaluation.data.data_identity import differing_data
from tpt_lib.evaluation.data.tar_shards import expand_braces
from tpt_lib.views.reading import ImageError, read_image


@pytest.fixture
def shards(tmp_path):
    """Three shards of two samples."""
    for i in range(3):
        write_shard(tmp_path / f"data/shards-{i:03d}.tar", numbered(2 * i, 2))
    return tmp_path / "data"


def pixels(seed):
    return read_image(Image.open(io.BytesIO(encoded(seed))))


def test_braces_are_expanded():
    assert expand_braces("a.tar") == ["a.tar"]
    assert expand_braces("a-{8..11}.tar") == ["a-8.tar", "a-9.tar", "a-10.tar", "a-11.tar"]
    assert expand_braces("{train,val}-{00..01}.tar") == ["train-00.tar", "train-01.tar", "val-00.tar", "val-01.tar"]
    with pytest.raises(
        ValueError, match=r"\{3\.\.1\} in 'a-\{3\.\.1\}\.tar' counts down; write the smaller number first"
    ):
        expand_braces("a-{3..1}.tar")


def test_a_pattern_a_list_and_a_folder_are_one_dataset(shards):
    files = sorted(shards.iterdir())
    found = load_dataset(f"{shards}/shards-{{000..002}}.tar", classes=["cat", "dog"], split="val")
    assert (found.name, found.split, found.labels) == ("shards", "val", [0, 1] * 3)
    for i, (image, label) in enumerate(found.samples):
        assert torch.equal(image, pixels(i))
        assert label == i % 2
    for source, root in ((files, None), (shards, None), ("data", shards.parent), (["shards-000.tar"], shards)):
        other = load_dataset(source, root, classes=["cat", "dog"])
        assert torch.equal(other.samples[1][0], pixels(1))
        assert (dataset_identity(other) == dataset_identity(found)) is (len(other) == 6)


def test_labels_are_in_several_parts(tmp_path):
    file = tmp_path / "x.tar"
    write_shard(file, [("a/1", {"jpg": encoded(1, kind="JPEG"), "json": {"label": "dog", "age": 1}})])
    assert load_dataset(file).classes == ("dog",)
    assert load_dataset(file, label="age", classes=["x", "y"]).labels == [1]
    with pytest.raises(
        ValueError, match=r"x\.tar/a/1 cannot be read: its json: there is no column 'kind', .* 'label', 'age'"
    ):
        load_dataset(file, label="kind")
    write_shard(file, [("1", {"jpg": encoded(1), "txt": "dog\n", "seg.png": encoded(2)})])
    with pytest.raises(
        ValueError, match=r"x\.tar/1 has no label; its parts are 'jpg', 'txt', 'seg\.png'\. Pass label="
    ):
        load_dataset(file)  # it may be a caption
    assert load_dataset(file, label="txt").classes == ("dog",)
    assert load_dataset(file, classes=["cat", "dog"]).labels == [1]
    found = load_dataset(file, image="seg.png", label="txt")
    assert torch.equal(found.samples[0][0], pixels(2))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples in '.*x.tar'"),
        ([("1", {"cls": "0"})], "x.tar/1 has no image; its parts are 'cls'"),
        (
            [("1", {"jpg": b"a", "png": b"b", "cls": "0"})],
            "x.tar/1 has 2 images; its parts are 'jpg', 'png', 'cls'. Pass",
        ),
        ([("1", {"jpg": b"a"})], "x.tar/1 has no label; its parts are 'jpg'"),
        ([("1", {"jpg": b"a", "cls": ""})], "x.tar/1.jpg has no label"),
        ([("1", {"jpg": b"a", "cls": "2"})], "x.tar/1.jpg has a label outside 0..1, the 2 classes 'cat', 'dog': 2"),
        ([("1", {"jpg": b"a", "cls": b"\xff"})], "the label of .*x.tar/1 cannot be read: 'utf-8' codec"),
        ([("1", {"jpg": b"a", "json": "[1]"})], "the label of .*x.tar/1 cannot be read: its json is not an object"),
        (numbered(0, 2) + numbered(0, 1), "x.tar' has the sample '000000' twice; write it once"),
        (numbered(0, 1) * 2, "x.tar' has the file '000000.png' twice; write it once"),
    ],
)
def test_bad_samples_are_named(tmp_path, samples, message):
    write_shard(tmp_path / "x.tar", samples)
    with pytest.raises(ValueError, match=f"load_dataset: .*{message}"):
        load_dataset(tmp_path / "x.tar", classes=["cat", "dog"])


@pytest.mark.parametrize("keep", [700, 1600, 2600, "boundary"])
def test_a_tar_file_that_was_cut_short(tmp_path, keep):
    file = write_shard(tmp_path / "x.tar", [(str(i), {"jpg": b"x" * 400, "cls": "0"}) for i in range(3)])
    keep = 4096 if keep == "boundary" else keep  # two samples of two files, each a header and a block
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"x\.tar' (is damaged or )?was cut short.*Copy it again"):
        load_dataset(file, classes=["cat"])


def test_files_that_are_no_shards(shards):
    with pytest.raises(FileNotFoundError, match=r"1 of 4 shards are missing: '.*shards-003\.tar'"):
        load_dataset(f"{shards}/shards-{{000..003}}.tar")
    with pytest.raises(ValueError, match="a shard is listed twice"):
        load_dataset([shards / "shards-000.tar"] * 2)
    with pytest.raises(
        ValueError, match=r"a list must be of tar files, or of \(image, label\), but 'a\.jpg' is not a tar file"
    ):
        load_dataset(["a.jpg", "b.jpg"])
    with pytest.raises(ValueError, match="subset has no effect on tar files"):
        load_dataset(shards, subset=True)
    (shards / "empty.tar").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty\.tar' is empty"):
        load_dataset(shards / "empty.tar")
    (shards / "text.tar").write_text("no tar file" * 100)
    with pytest.raises(ValueError, match=r"text\.tar' is not a tar file, or has another compression"):
        load_dataset(shards / "text.tar")
    both = b"".join((shards / f"shards-00{i}.tar").read_bytes() for i in range(2))
    (shards / "both.tar").write_bytes(both)
    with pytest.raises(ValueError, match=r"both\.tar' has more files after its end mark"):
        load_dataset(shards / "both.tar", classes=["cat", "dog"])


def test_a_folder_of_class_folders_may_have_a_tar_file(shards):
    (shards / "cat").mkdir()
    (shards / "cat/1.png").write_bytes(encoded(1))
    assert load_dataset(shards).classes == ("cat",)


@pytest.mark.parametrize("suffix", ["tar.gz", "tgz", "tar.bz2", "tar.xz"])
def test_compressed_shards_are_read_as_a_stream(tmp_path, suffix):
    kind = {"tgz": "gz"}.get(suffix, suffix.removeprefix("tar."))
    for i in range(2):
        write_shard(tmp_path / f"x-{i}.{suffix}", numbered(2 * i, 2), f"w:{kind}")
    found = load_dataset(f"{tmp_path}/x-{{0..1}}.{suffix}", classes=["cat", "dog"])
    assert (found.name, found.labels) == ("x", [0, 1, 0, 1])
    assert all(torch.equal(found.samples[i][0], pixels(i)) for i in (0, 3, 1))
    whole = (tmp_path / f"x-1.{suffix}").read_bytes()
    (tmp_path / f"x-1.{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"load_dataset: '.*x-1\..*' is (damaged or was cut short|not a tar file)"):
        load_dataset(f"{tmp_path}/x-{{0..1}}.{suffix}", classes=["cat", "dog"])


def test_identity_has_the_names_of_the_images(tmp_path):
    write_shard(tmp_path / "x.tar", numbered(0, 4))
    before = load_dataset(tmp_path / "x.tar", classes=["cat", "dog"])
    seen, part = dataset_identity(before), dataset_identity(before.take([1, 3]))
    write_shard(tmp_path / "x.tar", [(f"9{key}", parts) for key, parts in numbered(0, 4)])
    after = load_dataset(tmp_path / "x.tar", classes=["cat", "dog"])
    assert list(differing_data(seen, dataset_identity(after))) == ["digest"]
    assert list(differing_data(part, dataset_identity(after.take([1, 3])))) == ["digest"]


def test_a_bad_image_is_an_image_error_and_samples_go_to_processes(tmp_path):
    write_shard(tmp_path / "x.tar", [("1", {"jpg": b"no image", "cls": "0"}), *numbered(2, 1)])
    found = pickle.loads(pickle.dumps(load_dataset(tmp_path / "x.tar", classes=["cat", "dog"])))
    with pytest.raises(ImageError, match=r"'x\.tar/1\.jpg' cannot be opened as an image"):
        found.samples[0]
    tpt_lib.evaluate(tpt_lib.load_tiny(), found, "zero_shot", out=tmp_path / "run.jsonl", n_views=1, num_workers=2)
    bad, good = tpt_lib.evaluation.read_run(tmp_path / "run.jsonl").rows
    assert bad["error"].startswith("ImageError: 'x.tar/1.jpg' cannot be opened")
    assert (good["path"], good["truth"]) == ("x.tar/000002.png", 0)


@pytest.mark.slow
def test_ranks_take_shares_of_the_shards(shards, tmp_path, monkeypatch):
    data = load_dataset(shards, classes=["cat", "dog"])
    model = tpt_lib.load_tiny()
    whole = tpt_lib.evaluate(model, data, "zero_shot", out=tmp_path / "whole.jsonl", n_views=1)
    monkeypatch.setattr("tpt_lib.evaluation.run.write_run.merge_shares", lambda *_: None)
    monkeypatch.setattr("tpt_lib.evaluation.run.evaluate.Report.read", lambda *_: whole)
    shares = {}
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        tpt_lib.evaluate(model, data, "zero_shot", out=tmp_path / "run.jsonl", n_views=1)
        rows = tpt_lib.evaluation.read_run(tmp_path / f"run.jsonl.rank{rank}").rows
        shares |= {row["sample"]: row["methods"] for row in rows}
        assert [row["sample"] for row in rows] == list(range(rank, 6, 2))
    assert [shares[i] for i in range(6)] == [
        row["methods"] for row in tpt_lib.evaluation.read_run(tmp_path / "whole.jsonl").rows
    ]
