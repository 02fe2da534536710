"""Names in another order are found; other names are not taken for a mistake."""

import pytest

from tpt_lib.evaluation.data.class_names import permutation


@pytest.mark.parametrize(
    ("names", "wanted", "said"),
    [
        (["cat", "dog"], ["cat", "dog"], None),
        (["dog", "cat"], ["cat", "dog"], "class 0 is 'dog' and should be 'cat'"),
        (["cat", "red panda", "Dog"], ["cat", "dog", "red_panda"], "class 1 is 'red panda' and should be 'dog'"),
        (["Cat", "red  panda"], ["cat", "red_panda"], None),
        (["tabby cat", "dog"], ["cat", "dog"], None),
        (["dog", "tabby cat"], ["cat", "dog"], None),
        (["cat"], ["cat", "dog"], None),
        (["crane", "crane", "hen"], ["crane", "hen", "crane"], "class 1 is 'crane' and should be 'hen'"),
    ],
)
def test_the_first_difference_of_a_permutation(names, wanted, said):
    assert permutation(names, wanted) == said
