"""Groups of a stream: counted from its start or a saved state, the same ones whatever rows there are."""

import pytest

from tpt_lib.evaluation.run.stream_groups import groups_of, steps_of

ORDER = [20, 21, 22, 23, 24, 25, 26, 27]
USED, ERROR = {"methods": {}}, {"error": "ImageError: no image"}


def samples(steps):
    return [sample for _, sample in steps]


def in_groups(rows, start=0, size=3, failed=(), unit=1):
    steps = steps_of(ORDER, rows, set(failed), unit)
    return [(list(group.positions), group.is_done) for group in groups_of(steps, rows, start, size)]


def test_positions_are_counted_from_the_start():
    groups = groups_of(steps_of(ORDER, {}, set(), 1), {}, 2, 4)
    assert [(group.positions, group.end) for group in groups] == [
        ({22: 2, 23: 3, 24: 4, 25: 5}, 6),
        ({26: 6, 27: 7}, 10),
    ]


def test_rows_do_not_move_groups():
    rows = dict.fromkeys(ORDER[:4], USED)
    assert in_groups(rows) == [([20, 21, 22], True), ([23, 24, 25], False), ([26, 27], False)]
    assert in_groups(rows, start=3) == [([23, 24, 25], False), ([26, 27], False)]


@pytest.mark.parametrize(("missing", "count"), [([], 0), ([20], 1), ([24], 2), ([22, 26], 3)])
def test_the_last_group_has_a_sample_without_a_row_and_is_whole(missing, count):
    rows = {sample: USED for sample in ORDER if sample not in missing}
    assert in_groups(rows) == [
        (group, not set(group) & set(missing)) for group in ([20, 21, 22], [23, 24, 25], [26, 27])[:count]
    ]


def test_an_error_keeps_its_position():
    assert in_groups({21: ERROR}) == [([20, 22], False), ([23, 24, 25], False), ([26, 27], False)]
    assert in_groups(dict.fromkeys(ORDER[3:6], ERROR)) == [([20, 21, 22], False), ([26, 27], False)]


@pytest.mark.parametrize(
    ("used", "unit", "tried"),
    [
        ([], 1, [22, 24, 25]),
        ([20, 21], 1, [22, 24, 25]),
        ([20, 21], 3, [24, 25]),  # 22 failed in a batch with 20 and 21
        ([20, 21, 23], 1, [24, 25]),
        ([20, 21, 23], 3, []),
        ([20, 21, 23], 2, [24, 25]),
        ([27], 1, []),
    ],
)
def test_what_failed_is_tried_again_until_a_later_image_or_one_of_its_batch_was_used(used, unit, tried):
    failed = {22, 24, 25}
    found = samples(steps_of(ORDER, dict.fromkeys(used, USED), failed, unit))
    assert found == [sample for sample in ORDER if sample not in failed or sample in tried]
