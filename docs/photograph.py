"""Draw the picture of the README and the preview of links to the pages: `python docs/photograph.py`, in a clone.

The photograph is `china.jpg` of scikit-learn (by danielbuechele, CC BY 2.0), scaled down. The network is bundled in
results/stanford/networks: a feature pyramid on EfficientNet-Lite0, trained on Stanford Background. Its logits are
averaged over 8 × 8 pixels, like those of a network with stride 8.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from skimage.transform import resize
from sklearn.datasets import load_sample_image

import locpmap as lp
from locpmap_paper.data.scenes import CLASSES
from locpmap_paper.experiments.scenes.networks import load_network, predict_logits

ROOT = Path(__file__).parents[1]
PICTURE, CARD = ROOT / "docs/figures/photograph.png", ROOT / "docs/_static/social-card.png"
HEIGHT, WIDTH, STRIDE = 320, 480, 8
N_SHOWN = 4  # samples
CREDIT = "photograph: danielbuechele, CC BY 2.0, scaled and coloured"
COLOURS = np.array(  # of Okabe and Ito; in the order of CLASSES
    [
        *([86, 180, 233], [0, 158, 115], [120, 120, 120], [240, 228, 66]),
        *([0, 114, 178], [204, 121, 167], [110, 80, 40], [230, 120, 0]),
    ]
)


def logits_of(photo: np.ndarray) -> np.ndarray:
    """Return the network's logits at stride 8 (h, w, 8)."""
    file = sorted((ROOT / "results/stanford/networks").glob("*/network.safetensors"))[0]
    logits = predict_logits(load_network(file), photo, mirrored=False)
    cells = (HEIGHT // STRIDE, STRIDE, WIDTH // STRIDE, STRIDE, len(CLASSES))
    return logits.reshape(cells).mean(axis=(1, 3))


def overlay(photo: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the photograph with its labels as colours."""
    return (0.45 * photo + 0.55 * COLOURS[labels]).astype(np.uint8)


def drawn(photo: np.ndarray, network: np.ndarray, result: lp.Result) -> Figure:
    """Return the picture of the README."""
    panels = {
        "photograph": photo,
        "network, stride 8": overlay(photo, network),
        "lp.refine: labels": overlay(photo, result.labels),
    }
    figure, axes = plt.subplots(2, N_SHOWN, figsize=(12, 4.7), layout="constrained")
    for ax, (title, picture) in zip(axes[0], panels.items(), strict=False):
        ax.imshow(picture)
        ax.set_title(title, fontsize=11)
    credit = axes[0, 0].text(0.01, 0.02, CREDIT, transform=axes[0, 0].transAxes, color="white", fontsize=6)
    credit.set_in_layout(False)
    entropy = axes[0, -1].imshow(result.entropy, cmap="magma", vmin=0)
    axes[0, -1].set_title("uncertainty (entropy)", fontsize=11)
    figure.colorbar(entropy, ax=axes[0, -1], shrink=0.8, pad=0.01)
    for n, ax in enumerate(axes[1]):
        ax.imshow(overlay(photo, result.samples[n]))
        ax.set_title(f"sample {n + 1}", fontsize=11)
    for ax in axes.flat:
        ax.axis("off")
    shown = [network, result.labels, *result.samples[:N_SHOWN]]
    present = [k for k in range(len(CLASSES)) if max((labels == k).mean() for labels in shown) > 0.002]
    patches = [Patch(color=COLOURS[k] / 255, label=CLASSES[k]) for k in present]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(present), frameon=False, fontsize=10)
    return figure


def card(photo: np.ndarray, network: np.ndarray, result: lp.Result) -> Figure:
    """Return the preview that other sites show for a link to the pages, 1200 × 630 pixels."""
    figure = plt.figure(figsize=(12, 6.3), facecolor="#0f6b66")
    figure.text(0.04, 0.83, "locpmap", color="#f3c969", fontsize=54, weight="bold")
    figure.text(0.04, 0.73, "Better labels and error bars from your segmentation network", color="white", fontsize=25)
    figure.text(0.04, 0.02, CREDIT, color="white", fontsize=10)
    pictures = (photo, overlay(photo, network), overlay(photo, result.labels))
    for n, (title, picture) in enumerate(zip(("photograph", "network", "lp.refine"), pictures, strict=True)):
        ax = figure.add_axes((0.04 + 0.31 * n, 0.12, 0.3, 0.5))
        ax.imshow(picture)
        ax.axis("off")
        ax.set_title(title, y=-0.14, color="white", fontsize=18)
    return figure


def draw() -> None:
    """Refine the photograph and write both pictures."""
    photo = np.round(255 * resize(load_sample_image("china.jpg"), (HEIGHT, WIDTH), anti_aliasing=True)).astype(np.uint8)
    logits = logits_of(photo)
    result = lp.refine(photo, logits, decoder=lp.LocPMAP(start="perturbed", keep_samples=True), seed=0)
    network = logits.argmax(axis=-1).repeat(STRIDE, axis=0).repeat(STRIDE, axis=1)
    drawn(photo, network, result).savefig(PICTURE, dpi=110)
    card(photo, network, result).savefig(CARD, dpi=100)


if __name__ == "__main__":
    draw()
