"""The layers of the library; ``python -m tests.layers`` writes them into CONTRIBUTING.md."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
BEGIN, END = "<!-- layers: python -m tests.layers -->\n```\n", "```\n<!-- end of layers -->\n"

# From the bottom to the top; parts of one layer do not import one another.  "" is the package itself, `locpmap`.
LAYERS: tuple[dict[str, str], ...] = (
    {"errors": "exceptions, and checks of arguments"},
    {
        "arrays": "NumPy arrays and torch tensors behind one set of functions",
        "progress": "progress bars, and calls of the caller's function",
    },
    {"guarantees": "conformal prediction over images"},
    {"kernels": "loops over plain arrays behind one contract (spec): reference (NumPy), numba (CPU), triton (GPU)"},
    {
        "deciding": "labels with the best expected value of a measure",
        "graphs": "sites, edges, colour classes, blocks",
        "noise": "seeds and keys of the random generator",
    },
    {
        "pairwise": "the forms of pairwise terms: weights, tables, factored tables",
        "unaries": "checks of unary scores, masks, windows and spacings",
    },
    {"views": "a model as kernels read it"},
    {"potentials": "a validated, frozen model: the input of inference"},
    {"features": "inputs of a log-linear model", "result": "what every decoder returns"},
    {
        "formats": "model, image, raster and UAI files",
        "inference": "one file per decoder, and the loop that runs them",
        "learning": "objectives, optimisers, standard errors",
        "metrics": "accuracy and calibration measures",
    },
    {
        "crf": "the model that users fit, save and load",
        "measuring": "areas, counts and other quantities of sampled label maps",
    },
    {"refining": "refinement of a network's segmentation: refine, Refiner"},
    {"scale": "rasters and folders in tiles, on several processes"},
    {"": "the public names"},
    {
        "compat": "the interface of pydensecrf",
        "estimators": "scikit-learn estimators",
        "integrations": "refinement inside xarray and MONAI",
        "nn": "PyTorch losses and modules",
    },
    {"cli": "commands; heavy imports happen inside them"},
)


def rendered() -> str:
    """Return the list as text, from the top to the bottom."""
    lines = []
    for layer in reversed(LAYERS):
        for place, (part, role) in enumerate(layer.items()):
            lines.append(f"{'|' if place else ' '} {part or 'locpmap':<12} {role}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def page_with_layers(page: str) -> str:
    """Return a page with the list replaced by that of `LAYERS`."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + rendered() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page_with_layers(PAGE.read_text()))
