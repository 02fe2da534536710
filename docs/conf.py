"""How Sphinx builds the site, with ``python scripts/site.py``: its sources are the repository's own Markdown and notebooks."""

import inspect
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.logging import getLogger

import tpt_lib

project = "tpt_lib"
author = copyright = "the tpt_lib authors"  # noqa: A001
release = tpt_lib.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = ["docs/*.md", "examples/*.ipynb", "CHANGELOG.md", "CONTRIBUTING.md"]

html_theme = "furo"
html_title = f"tpt_lib {release}"
html_math_renderer = "mathml"
html_copy_source = False
html_theme_options = {"light_css_variables": {"color-brand-primary": "#2b6cb0", "color-brand-content": "#2b6cb0"}}

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # scripts/notebooks.py executes them; the site shows what they stored
nb_render_markdown_format = "myst"
autodoc_typehints = "none"  # docstrings have the shapes
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_attr_annotations = False

logger = getLogger("tpt_lib")
PUBLIC = set(tpt_lib.__all__)


def read(_app: Sphinx, page: str, source: list[str]) -> None:
    """Turns plain Markdown into what only the site needs: docstrings below the tables of docs/api.md, navigation from the lists
    of links in docs/index.md."""
    if page == "docs/api":
        source[0] = re.sub(
            r"^\| name \|.*?(?=\n\n|\Z)", lambda table: table[0] + directives(table[0]), source[0], flags=re.M | re.S
        )
    if page == "docs/index":
        source[0] = re.sub(
            r"^## (.*?)\n(.*?)(?=^## |\Z)", lambda part: part[0] + toctree(*part.groups()), source[0], flags=re.M | re.S
        )


def toctree(caption: str, part: str) -> str:
    pages = "\n".join(re.findall(r"\]\(([^)#:]+)\.(?:md|ipynb)\)", part))
    return f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{pages}\n```\n\n"


def directives(table: str) -> str:
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    written = "\n".join(map(directive, names))
    return f"\n\n```{{eval-rst}}\n{written}```\n"


def directive(name: str) -> str:
    if inspect.isclass(getattr(tpt_lib, name)):
        return f".. autoclass:: tpt_lib.{name}\n   :members:\n"
    return f".. autofunction:: tpt_lib.{name}\n"


class LinkNames(SphinxTransform):
    """Makes links of the public names that stand as `code` in prose, to their docstrings."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for code in list(self.document.findall(nodes.literal)):
            name = code.astext().removesuffix("()").removeprefix("tpt.")
            if name in PUBLIC and not isinstance(code.parent, nodes.reference | addnodes.pending_xref | nodes.title):
                domain = {"refdomain": "py", "reftype": "obj", "reftarget": f"tpt_lib.{name}", "refwarn": True}
                link = addnodes.pending_xref("", refdoc=self.env.docname, refexplicit=True, **domain)
                code.replace_self(link)
                link += code


def write_math(self: Any, node: nodes.Element) -> None:
    """Equations as MathML, which browsers draw by themselves: no script and no network."""
    try:
        written = str(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
        self.body.append(re.sub(r"<mo>([{}])</mo>", r'<mo stretchy="false">\1</mo>', written))
    except MathError as error:
        logger.warning("%s in %r", error, node.astext(), location=node)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
    app.add_transform(LinkNames)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
