"""PACS and Office-Home: a folder per domain."""

import pytest
from support.miniatures import put

from tpt_lib.evaluation import load_dataset

DOMAINS = {"art": 4, "real_world": 4}


@pytest.fixture
def homes(tmp_path, published):
    published("office-home", classes=2, counts=DOMAINS, confirmed=True)
    for domain in ("Art", "Real World"):
        put(
            *(tmp_path / "OfficeHome" / domain / name / f"{i}.jpg" for name in ("Bed", "Alarm_Clock") for i in range(2))
        )
    return tmp_path


def test_a_domain_is_a_split_whatever_its_folder_is_called(homes):
    for root in (homes, homes / "OfficeHome"):
        found = load_dataset("office-home", root, split="real_world")
        assert (found.name, found.split, found.classes) == ("office-home", "real_world", ("Alarm_Clock", "Bed"))
        assert found.labels == [0, 0, 1, 1]
        assert {"Real World"} == {path.split("/")[-3] for path in found.samples.paths}


def test_a_domain_that_is_not_there(homes, published):
    with pytest.raises(ValueError, match="office-home: split must be one of art, real_world, but got 'test'"):
        load_dataset("office-home", homes)
    (homes / "OfficeHome/Art").rename(homes / "OfficeHome/Paintings")
    with pytest.raises(
        FileNotFoundError, match=r"no folder 'art' in .*; found 'OfficeHome', 'Paintings', 'Real World'"
    ):
        load_dataset("office-home", homes, split="art")


def test_counts_are_checked(homes):
    (homes / "OfficeHome/Art/Bed/1.jpg").unlink()
    with pytest.raises(ValueError, match="found 3 images of 'art', fewer than the published 4"):
        load_dataset("office-home", homes, split="art")
    assert len(load_dataset("office-home", homes, split="art", subset=True)) == 3
    (homes / "OfficeHome/Art/Bed/0.jpg").unlink()
    with pytest.raises(ValueError, match="1 of 2 classes have no images: 'Bed'"):
        load_dataset("office-home", homes, split="art")
    put(homes / "OfficeHome/Art/Cup/1.jpg")
    with pytest.raises(ValueError, match="found 3 classes, 'Alarm_Clock', 'Bed', 'Cup', expected 2"):
        load_dataset("office-home", homes, split="art")


def test_a_set_whose_counts_are_not_confirmed_is_loaded_as_a_subset_only(homes, published):
    published("office-home", confirmed=False)
    with pytest.raises(ValueError, match=r"found 4 images of 'art'; catalogs of datasets say 4, .* Pass subset=True"):
        load_dataset("office-home", homes, split="art")
    assert len(load_dataset("office-home", homes, split="art", subset=True)) == 4
