"""How Sphinx builds the site, with ``python scripts/site.py``: its sources are the repository's own Markdown and notebooks."""

import inspect
import operator
import re
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
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
include_patterns = ["docs/*.md", "examples/*.ipynb", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]

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
ROWS = re.compile(r"^\| (`.*?) \| (.*) \|$", flags=re.MULTILINE)


METHODS = (FunctionType, property, cached_property, classmethod, staticmethod)


def documented(page: str) -> dict[str, str]:
    """The names in the tables of docs/api.md, as ``wrap`` and ``views.Crops``, with what is said about them."""
    return {name: text for names, text in ROWS.findall(page) for name in re.findall(r"`([\w.]+)`", names)}


PUBLIC = documented((Path(__file__).parent / "api.md").read_text(encoding="utf-8"))
BARE = {name.rpartition(".")[2]: name for name in PUBLIC}
TARGETS = {name: name for name in PUBLIC} | {
    bare: name for bare, name in BARE.items() if "_" in bare or not bare.islower()
}


def read(_app: Sphinx, page: str, source: list[str]) -> None:
    """Turn plain Markdown into what only the site needs: docstrings below the tables of docs/api.md, navigation from the lists
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
    written = "\n".join(directive(name, text) for name, text in documented(table).items())
    return f"\n\n```{{eval-rst}}\n{written}```\n"


def directive(name: str, text: str) -> str:
    value = operator.attrgetter(name)(tpt_lib)
    if inspect.isclass(value) and value.__module__.startswith("tpt_lib."):
        defaults = ", ".join(key for key, member in vars(value).items() if not isinstance(member, METHODS))
        return f".. autoclass:: tpt_lib.{name}\n   :members:\n   :exclude-members: {defaults}\n"
    if inspect.isfunction(value) or hasattr(value, "__wrapped__"):
        return f".. autofunction:: tpt_lib.{name}\n"
    return f".. py:data:: tpt_lib.{name}\n\n   {text.replace('`', '``')}\n"


class LinkNames(SphinxTransform):
    """Make links of the public names that are `code` in prose, to their docstrings.

    A name of a room is a link with its room, ``tpt.views.Crops`` or ``views.Crops``, and without it where it is not a plain
    word, as ``method`` is.
    """

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for code in list(self.document.findall(nodes.literal)):
            name = TARGETS.get(code.astext().removesuffix("()").removeprefix("tpt.").removeprefix("tpt_lib."))
            if name and not isinstance(code.parent, nodes.reference | addnodes.pending_xref | nodes.title):
                domain = {"refdomain": "py", "reftype": "obj", "reftarget": f"tpt_lib.{name}", "refwarn": True}
                link = addnodes.pending_xref("", refdoc=self.env.docname, refexplicit=True, **domain)
                code.replace_self(link)
                link += code


def mend_backlinks(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Point the [docs] links of source pages to the public address; viewcode takes one address for all names of a module."""

    def address(link: re.Match[str]) -> str:
        first, *rest = [part for part in link[1].split(".") if not isinstance(getattr(tpt_lib, part, None), ModuleType)]
        return "#tpt_lib." + ".".join([BARE.get(first, first), *rest])

    if page.startswith("_modules/tpt_lib"):
        context["body"] = re.sub(r"#tpt_lib\.([\w.]+)", address, context["body"])


def write_math(self: Any, node: nodes.Element) -> None:
    """Write equations as MathML, which browsers draw without a script or the network."""
    try:
        written = str(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
        self.body.append(re.sub(r"<mo>([{}])</mo>", r'<mo stretchy="false">\1</mo>', written))
    except MathError as error:
        logger.warning("%s in %r", error, node.astext(), location=node)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
    app.connect("html-page-context", mend_backlinks)
    app.add_transform(LinkNames)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
