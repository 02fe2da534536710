"""Bongard-HOI in miniature: its problems, its queries, its errors."""

import json
from pathlib import Path

import pytest
from support.miniatures import bongard, put, text

from tpt_lib.evaluation import load_dataset
from tpt_lib.evaluation.data.registry import SPLITS_OF_BONGARD


def test_bongard_problems(tmp_path):
    for split in SPLITS_OF_BONGARD:
        words = split.split("_")
        in_files = "_".join(words[2:] + words[:2])
        bongard(tmp_path, in_files)
        found = load_dataset("bongard-hoi", tmp_path, split=split)
        assert (found.split, len(found), found.classes) == (split, 3, ("positive", "negative"))
        assert load_dataset("bongard-hoi", tmp_path / "bongard-hoi", split=in_files).split == split
        for n in range(3):
            positives, negatives, queries, truths = found.samples[n]
            assert truths == ("positive", "negative")
            for supports, query, kind in zip((positives, negatives), queries, ("yes", "no"), strict=True):
                assert len(supports) == 6
                assert {Path(p).name for p in (*supports, query)} == {
                    f"{in_files}_{n}_{kind}_{i}.jpg" for i in range(7)
                }
                assert all(Path(p).is_file() for p in (*supports, query))


@pytest.mark.parametrize(("files", "images"), [("cache", "assets/data/hake"), ("bongard_splits", "hake"), (".", ".")])
def test_bongard_in_other_places(files, images, tmp_path):
    bongard(tmp_path, files=files, images=images)
    assert len(load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")) == 3


def test_bongard_queries_are_seeded_for_each_problem(tmp_path):
    bongard(tmp_path, problems=12)

    def queries(**options):
        found = load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj", **options).samples
        assert [found[i] for i in range(12)] == [found[i] for i in range(12)]
        return [tuple(Path(q).stem[-1] for q in found[i].queries) for i in range(12)]

    assert queries() == queries()
    assert queries() != queries(seed=1)
    assert len(set(queries())) > 6
    file = tmp_path / "bongard-hoi/bongard_hoi_release/bongard_hoi_test_seen_obj_seen_act.json"
    before = queries()
    text(file, json.loads(file.read_text())[::-1])
    assert queries() == before[::-1]


def test_bongard_images_that_moved_or_are_missing(tmp_path):
    bongard(tmp_path)
    folder = tmp_path / "bongard-hoi/hake/images/pic/image"
    put(folder / "train/x.jpg")
    (folder / "val/seen_obj_seen_act_1_no_3.jpg").rename(folder / "train/seen_obj_seen_act_1_no_3.jpg")
    found = load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    assert str(folder / "train/seen_obj_seen_act_1_no_3.jpg") in (
        *found.samples[1].negatives,
        found.samples[1].queries[1],
    )
    (folder / "val/seen_obj_seen_act_2_no_3.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="1 images of 1 of 3 problems"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    assert len(load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj", subset=True)) == 2


def test_bongard_errors(tmp_path):
    with pytest.raises(ValueError, match=r"one of seen_act_seen_obj, .* but got 'test'"):
        load_dataset("bongard-hoi", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no bongard_hoi_test_unseen_obj_seen_act.json"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_unseen_obj")
    made = bongard(tmp_path, files="deep/er")
    with pytest.raises(FileNotFoundError, match=r"It is in .*deep/er"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    made[1][0].pop()
    text(tmp_path / "bongard_hoi_test_seen_obj_seen_act.json", made)
    with pytest.raises(ValueError, match=r"problem 1 .* has 6 positives and 7 negatives, expected 7"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    text(tmp_path / "bongard_hoi_test_seen_obj_seen_act.json", [])
    with pytest.raises(ValueError, match="holds no problems"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")


def changed(tmp_path, change):
    made = bongard(tmp_path)
    change(made)
    return made


@pytest.mark.parametrize(("content", "says"), [
    (lambda p: "", "is empty. Download it again"),
    (lambda p: json.dumps(bongard(p))[:-40], "is cut short or broken at line 1"),
    (lambda p: {"a": 1}, "must hold a list of problems, but holds a dict"),
    (lambda p: changed(p, lambda made: made.insert(1, 5)), "problem 1 of .* must be .positives, negatives, .* but is 5"),
    (lambda p: changed(p, lambda made: made[2][1][3].clear()), "problem 2 of .* lists of images with 'im_path'"),
    (lambda p: changed(p, lambda made: made[0][0][0].update(im_path=7)), "problem 0 of .* lists of images with 'im_path'"),
    (lambda p: changed(p, lambda made: made[0][0].insert(0, None)), "problem 0 of .* lists of images with 'im_path'"),
    (lambda p: changed(p, lambda made: made[2].clear()), "problem 2 of .* must be .positives, negatives"),
    (lambda p: changed(p, lambda made: made[0][0][2].update(im_path="../../x.jpg")), "points outside of the dataset's folder"),
])  # fmt: skip
def test_damaged_files(content, says, tmp_path):
    bongard(tmp_path)
    file = tmp_path / "bongard-hoi/bongard_hoi_release/bongard_hoi_test_seen_obj_seen_act.json"
    text(file, content(tmp_path))
    with pytest.raises(ValueError, match=rf"^bongard-hoi: .*{says}"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj", subset=True)


def test_an_absolute_path_is_not_followed(tmp_path):
    put(tmp_path / "out.jpg")
    made = changed(tmp_path / "root", lambda made: made[0][0][2].update(im_path=str(tmp_path / "out.jpg")))
    text(tmp_path / "root/bongard-hoi/bongard_hoi_release/bongard_hoi_test_seen_obj_seen_act.json", made)
    found = load_dataset("bongard-hoi", tmp_path / "root", split="seen_act_seen_obj", subset=True)
    assert len(found) == 2
