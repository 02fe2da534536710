"""Streams without a known length."""

import json
import pickle

import pytest
import torch
from support.marking import slow_but
from support.noise_runs import Noise
from support.shards import encoded
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import tpt_lib
from tpt_lib import EvalSet, evaluate
from tpt_lib.evaluation import dataset_identity, load_dataset
from tpt_lib.views.reading import ImageError

COUNT = 7
NAMES = ("cat", "dog", "panda", "ant", "horse", "lion")


def noise():
    return (sample for sample in (Noise(COUNT)[i] for i in range(COUNT)))


class Endless(IterableDataset):
    """A torch stream; in a loader's process it yields the share of that process, as torch advises."""

    def __init__(self, count=COUNT):
        self.count, self.read = count, 0

    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id if info else 0, self.count, info.num_workers if info else 1):
            self.read += 1
            yield Noise()[i]


@pytest.mark.parametrize("source", [noise, Endless(), lambda: noise()], ids=["function", "IterableDataset", "lambda"])
def test_a_stream_is_the_dataset_of_its_samples(source):
    found = load_dataset(source, classes=NAMES)
    plain = EvalSet("x", Noise(COUNT), NAMES)
    assert len(found) == COUNT
    assert found.labels == [i % len(NAMES) for i in range(COUNT)]
    for i in (0, 1, 5, 2, 2):
        assert torch.equal(found.samples[i][0], plain.samples[i][0])
    assert dataset_identity(found)["images"] == dataset_identity(plain)["images"]
    with pytest.raises(IndexError, match="a stream of 7 samples has no sample 7"):
        found.samples[7]


def test_it_is_read_on_and_not_from_its_start():
    source = Endless()
    found = load_dataset(source, classes=NAMES)
    source.read = 0
    for i in range(COUNT):
        found.samples[i]
    assert source.read == COUNT - 1 + 1  # the first sample was read when it was loaded


def test_labels_may_be_names_and_images_bytes():
    found = load_dataset(lambda: iter([(encoded(0), "dog"), (b"no image", "cat")]))
    assert (found.classes, found.labels) == (("cat", "dog"), [1, 0])
    assert found.samples[0][0].shape == (3, 30, 40)
    with pytest.raises(ImageError, match="sample 1 of the stream cannot be opened as an image"):
        found.samples[1]
    assert len(pickle.loads(pickle.dumps(load_dataset(noise, classes=NAMES)))) == COUNT


def raising():
    yield Noise()[0]
    raise OSError("connection lost")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            noise(),
            r"a generator can be read only once, .*\. Pass the function that makes it, an IterableDataset, or list",
        ),
        (iter([]), "a list_iterator can be read only once"),
        (lambda: iter([]), "the stream is empty"),
        (
            lambda: iter([3]),
            r"sample 0 of the stream cannot be read: TypeError: it must be \(image, label\), but is int 3",
        ),
        (raising, "sample 1 of the stream cannot be read: OSError: connection lost. Yield paths or bytes"),
        (lambda: iter([("a.png", 0), ("b.png", 9)]), r"sample 1 of the stream has a label outside 0\.\.5"),
        (DataLoader(Noise()), "a DataLoader yields batches that were prepared already; pass its dataset"),
    ],
)
def test_what_is_refused(source, message):
    with pytest.raises(ValueError, match=f"load_dataset: {message}"):
        load_dataset(source, classes=NAMES)


def test_a_function_that_returns_one_iterator_is_refused_before_the_work():
    once = noise()
    with pytest.raises(ValueError, match=r"read again, the stream ended after 0 of 7 samples; it must yield the same"):
        load_dataset(lambda: once, classes=NAMES)


def test_another_order_is_noticed():
    found = load_dataset(Shuffled(), classes=NAMES)
    with pytest.raises(ValueError, match=r"the label of sample 1 of the stream was 1 and is 2 now; .* fix the seed"):
        found.samples[1]


class Shuffled:
    """Changes its order after two passes."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        order = [0, 1, 2] if self.passes < 2 else [0, 2, 1]
        return (Noise()[i] for i in order)


def test_an_eval_set_of_a_stream_says_what_to_do():
    class Sized(Endless):
        def __len__(self):
            return COUNT

    for source in (Endless(), Sized()):
        with pytest.raises(ValueError, match=r"load_dataset\(stream, classes=\[…\]\) makes one from a stream"):
            EvalSet("x", source, NAMES)
    assert len(load_dataset(Sized(), classes=NAMES)) == COUNT


@pytest.mark.parametrize("num_workers", slow_but([0], [0, 2]))
def test_a_run_over_a_stream_is_the_run_over_its_samples_and_resumes(tmp_path, num_workers):
    options = {"methods": "zero_shot", "n_views": 1, "num_workers": num_workers}
    evaluate(tpt_lib.load_tiny(), EvalSet("x", Noise(COUNT), NAMES), out=tmp_path / "plain.jsonl", **options)
    out = tmp_path / "run.jsonl"
    evaluate(tpt_lib.load_tiny(), load_dataset(Endless(), classes=NAMES), out=out, **options)
    results = [
        json.loads(line) for file in (tmp_path / "plain.jsonl", out) for line in file.read_text().splitlines()[1:]
    ]
    methods = [row["methods"] for row in results]
    assert methods[:COUNT] == methods[COUNT:]
    whole = out.read_text().splitlines(keepends=True)
    out.write_text("".join(whole[:4]))
    evaluate(tpt_lib.load_tiny(), load_dataset(Endless(), classes=NAMES), out=out, **options)
    resumed = out.read_text().splitlines(keepends=True)
    assert resumed[:4] == whole[:4]
    assert [json.loads(line)["methods"] for line in resumed[1:]] == methods[COUNT:]
    with pytest.raises(ValueError, match=r"different settings \(n is 7 there and 6 here"):
        evaluate(tpt_lib.load_tiny(), load_dataset(Endless(6), classes=NAMES), out=out, **options)


def test_a_forked_process_starts_again(monkeypatch):
    """It shares the place in open files with the process that it comes from."""
    source = Endless()
    found = load_dataset(source, classes=NAMES)
    found.samples[2]
    source.read = 0
    monkeypatch.setattr("os.getpid", lambda: -1)
    found.samples[3]
    assert source.read == 4


@pytest.mark.slow
def test_a_stream_is_encoded_as_its_samples_are(tmp_path):
    model, options = tpt_lib.load_tiny(), {"dtype": "float32", "n_views": 2, "shard_size": 3}
    plain = tpt_lib.encode_dataset(model, EvalSet("x", Noise(COUNT), NAMES), tmp_path / "plain", **options)
    stream = tpt_lib.encode_dataset(model, load_dataset(noise, classes=NAMES), tmp_path / "stream", **options)
    for i in range(COUNT):
        assert torch.equal(stream[i][0], plain[i][0])
        assert stream[i][1] == plain[i][1] == i % len(NAMES)
