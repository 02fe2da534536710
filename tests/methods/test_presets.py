"""The settings that the authors of online methods used on each dataset, transcribed from their papers and code."""

import pytest

from tpt_lib import get_method

SETTINGS = """
                 TDA           Boost  DPE
imagenet-a       2     5       3      6    5     3e-4  2.5
imagenet-v2      1     8       1      3    8     5e-4  0.5
imagenet-r       1     8       3      3    8     6e-4  0
imagenet-sketch  2.363 7.45    1      7    7.45  6e-4  0.2
caltech101       5     5       2      15   5     6e-4  0.2
dtd              2     3       0      6    3     6e-4  0.2
eurosat          4     8       0      3    8     5e-5  0.2
aircraft         2     2       2      6    2     6e-4  0.2
food101          1     1       3      3    1     2e-4  0.2
flowers102       1     5       0      2.5  5     1e-4  0.2
pets             2     7       0      4    7     5e-5  0.2
cars             1     7       3      3    7     1e-4  1.5
sun397           2     3       1      6    3     2e-4  0.2
ucf101           3     8       0      9    8     4e-4  0.2
"""
ROWS = [line.split() for line in SETTINGS.splitlines()[2:]]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_online_presets_are_the_authors_settings(row):
    dataset, numbers = row[0], [float(number) for number in row[1:]]
    recipe = {"recipe": "views"} if dataset.startswith("imagenet") else {}
    tda = {"alpha": numbers[0], "beta": numbers[1], **recipe}
    assert get_method("tda").presets[dataset] == tda
    assert get_method("boostadapter").presets[dataset] == {**tda, "boost": numbers[2]}
    found = dict(get_method("dpe").presets[dataset])
    assert found.pop("read", "plain") == ("views" if dataset == "imagenet-a" else "plain")
    assert found == {
        "alpha": numbers[3], "beta": numbers[4], "lr": numbers[5], "align": numbers[6], "recipe": "plain", **recipe,
    }  # fmt: skip


def test_every_preset_is_in_the_table():
    datasets = {row[0] for row in ROWS}
    assert all(set(get_method(name).presets) == datasets for name in ("tda", "boostadapter", "dpe"))
