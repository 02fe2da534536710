"""Tables as HTML."""

from tpt_lib.html_tables import html_table


def test_texts_are_escaped_and_numbers_aligned_right():
    table = html_table(["<b>", "n"], [["</td><script>\"'&", "1"]], left=[True, False])
    assert table == (
        '<table><thead><tr><th scope="col">&lt;b&gt;</th><th scope="col" style="text-align:right">n</th></tr></thead>'
        "<tbody><tr><td>&lt;/td&gt;&lt;script&gt;&quot;&#x27;&amp;</td>"
        '<td style="text-align:right">1</td></tr></tbody></table>'
    )
