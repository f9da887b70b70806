"""Configuration of Sphinx. `make docs` builds the pages without network access."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: its threads slow down small fits
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), *(str(HERE.parent / folder) for folder in ("src", "viewer/src", "paper/src"))]

from locpmap import __version__ as release  # noqa: E402 - needs the path above

project = "locpmap"
author = "The locpmap authors"
copyright = author
version = release

extensions = [
    "command_help",
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxext.opengraph",
]
exclude_patterns = ["_build", "_templates", "gallery"]
templates_path = ["_templates"]

copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

# The preview that other sites show for a link to a page; publishing sets its address: -D ogp_site_url=ADDRESS.
ogp_image = "_static/social-card.png"
ogp_image_alt = "A photograph, the labels of a network, and the refined labels"
ogp_social_cards = {"enable": False}

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    # Methods for authors of decoders (see extending.md), and methods that scikit-learn adds.
    "exclude-members": "init, step, finish, work, locality, separable, "
    + ", ".join(f"set_{what}_request" for what in ("fit", "predict", "predict_proba", "predict_variance", "score")),
}
autodoc_typehints = "none"  # the docstrings state types and defaults
autoclass_content = "class"
napoleon_numpy_docstring = False


sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "generated/gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("calm_figures.reset",),
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "thumbnail_size": (560, 380),
    "min_reported_time": 1e9,  # do not print times of the build machine
    "write_computation_times": False,
    "show_signature": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

html_theme = "furo"
html_title = "locpmap"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["calm.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f8a", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ec", "color-brand-content": "#7cc4ec"},
}


def setup(app: Any) -> None:
    """Link to the pages of the gallery instead of its scripts, to which the Markdown links."""
    app.connect("source-read", _link_to_gallery)


def _link_to_gallery(app: Any, name: str, source: list[str]) -> None:
    source[0] = re.sub(r"\]\(gallery/(plot_\w+)\.py\)", r"](generated/gallery/\1.rst)", source[0])
    source[0] = source[0].replace("](gallery)", "](generated/gallery/index.rst)")
