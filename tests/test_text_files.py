"""Text and JSON in any encoding a user may have, whole and damaged."""

import pytest

from tpt_lib.text_files import read_json, read_text

NAMES = "Löwe\nKäfer\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf8_with_and_without_a_mark(encoding, tmp_path):
    (tmp_path / "names.txt").write_text(NAMES, encoding=encoding)
    assert read_text("f", tmp_path / "names.txt") == NAMES
    (tmp_path / "names.json").write_text('["Löwe"]', encoding=encoding)
    assert read_json("f", tmp_path / "names.json") == ["Löwe"]


@pytest.mark.parametrize(("encoding", "says"), [
    ("utf-16", "from line 1 on; it may be UTF-16. Convert it with 'iconv -f UTF-16 -t UTF-8'"),
    ("utf-16-le", "from line 1 on; it may be UTF-16"),
    ("utf-16-be", "from line 1 on; it may be UTF-16"),
    ("latin-1", "from line 2 on; it may be Latin-1. Convert it with 'iconv -f Latin-1 -t UTF-8'"),
    ("cp1252", "from line 2 on; it may be Latin-1"),
])  # fmt: skip
def test_other_encodings(encoding, says, tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("cat\nKäfer\n", encoding=encoding)
    for read in (read_text, read_json):
        with pytest.raises(ValueError, match=rf"^f: '.*names.txt' is not UTF-8, {says}"):
            read("f", path)


@pytest.mark.parametrize(("text", "says"), [
    ("", "is empty"),
    (" \n", "is empty"),
    ('{"test": [\n["a.jpg", 0,', "is cut short or broken at line 2"),
    ('{"test": []}}', "is cut short or broken at line 1: Extra data"),
    ("[" * 100_000, "is nested too deeply"),
])  # fmt: skip
def test_damaged_json(text, says, tmp_path):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(ValueError, match=rf"^f: '.*split.json' {says}.*\. Download it again$"):
        read_json("f", tmp_path / "split.json")


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^f: '.*' is a folder, not a file$"):
        read_text("f", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^f: '.*none' does not exist$"):
        read_text("f", tmp_path / "none")
