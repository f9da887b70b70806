"""Area intervals of labels that are absent from a scene, with and without a learned presence.

The network is a logistic regression on the features of an ImageNet encoder at strides 8 to 32, fitted in minutes. It
assigns more area to absent labels than a sharper network does, which makes the effect of presence visible.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.refining_measures import areas_of
from locpmap.refining.examples import Example, gather
from locpmap.refining.fitting import learn

Array = npt.NDArray[Any]
Seen = tuple[Array, Array, Array]  # image (H, W, 3), features (h, w, F) at stride 8, labels (H, W)
STRIDE, SIDE = 8, 32  # stride of the scores; the encoder needs sides that are multiples of SIDE
SCENES = {"fit": 150, "held_out": 80, "test": 80}
DECAY = 2e-4


def measured(data: Path, cache: Path | None, seed: int) -> dict[str, Any]:
    """Return coverage, width and CRPS of areas: with independent pixels, with a shared error, and with presence."""
    seen = {part: list(islice(_seen(part, data, cache), n)) for part, n in SCENES.items()}
    head = _Head(seen["fit"])
    held_out, test = (head.examples(seen[part]) for part in ("held_out", "test"))
    fitted = learn(held_out, seed)
    rows = {
        "pixels by themselves": replace(fitted, shared=0.0, presence=0.0),
        "with a shared error": replace(fitted, presence=0.0),
        "and presence": fitted,
    }
    accuracy = [(example.scores.argmax(-1) == example.labels)[example.labels >= 0].mean() for example in test]
    return {
        "scenes": {part: len(scenes) for part, scenes in seen.items()},
        "accuracy": float(np.mean(accuracy)),
        "shared": float(fitted.shared[0]),
        "presence": fitted.presence[0].tolist(),
        "rows": {name: areas_of(test, weights, seed) for name, weights in rows.items()},
    }


def _seen(part: str, data: Path, cache: Path | None) -> Iterator[Seen]:
    """Yield the scenes of a part of `locpmap reproduce stanford` with the encoder's features."""
    import torch
    import torch.nn.functional as F

    from locpmap_paper.data.scenes import TWINS
    from locpmap_paper.experiments.scenes.experiment import STANFORD
    from locpmap_paper.networks.efficientnet import EfficientNetLite0

    encoder = EfficientNetLite0.published(folder=cache).eval()
    loaded, twice = STANFORD.load(data), {name for pair in TWINS for name in pair}
    for number in getattr(STANFORD.case(loaded, "pretrained", 0), part).inputs:
        name, image, labels = loaded.scenes[int(number)]
        if name in twice:
            continue
        height, width = labels.shape
        around = (0, -width % SIDE, 0, -height % SIDE)
        pixels = F.pad(torch.from_numpy(np.array(image)).float().movedim(-1, 0)[None], around, mode="replicate")
        with torch.no_grad():
            levels = encoder(pixels)[2:]
        size = tuple(levels[0].shape[2:])
        joined = torch.cat([F.interpolate(level, size=size, mode="bilinear") for level in levels], dim=1)[0]
        rows, columns = -(-height // STRIDE), -(-width // STRIDE)
        yield image, joined.movedim(0, -1)[:rows, :columns].numpy(), labels.astype(np.int64)


class _Head:
    """Logistic regression of labels on features."""

    def __init__(self, scenes: list[Seen]) -> None:
        import torch

        x = np.concatenate([features.reshape(-1, features.shape[-1]) for _, features, _ in scenes])
        y = np.concatenate([_at_centres(labels, features.shape[:2]).ravel() for _, features, labels in scenes])
        self.middle, self.spread = x[y >= 0].mean(0), x[y >= 0].std(0) + 1e-3
        inputs, truth = torch.from_numpy((x[y >= 0] - self.middle) / self.spread), torch.from_numpy(y[y >= 0])
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
        descent = torch.optim.LBFGS(self.linear.parameters(), max_iter=60)

        def loss() -> Any:
            descent.zero_grad()
            value = torch.nn.functional.cross_entropy(self.linear(inputs), truth)
            value = value + DECAY * (self.linear.weight**2).sum()
            value.backward()
            return value

        descent.step(loss)

    def examples(self, scenes: list[Seen]) -> list[Example]:
        """Return examples with scores at stride 8."""
        weight, bias = (part.detach().numpy() for part in self.linear.parameters())
        logits = [(features - self.middle) / self.spread @ weight.T + bias for _, features, _ in scenes]
        images, labels = [image for image, _, _ in scenes], [labels for _, _, labels in scenes]
        return gather(images, logits, labels, -1, "hwk", "logits", float(STRIDE))


def _at_centres(labels: Array, shape: tuple[int, ...]) -> Array:
    """Return the label at the centre of each cell."""
    sizes = zip(shape, labels.shape, strict=True)
    rows, columns = (np.minimum(np.arange(n) * STRIDE + STRIDE // 2, size - 1) for n, size in sizes)
    found: Array = labels[np.ix_(rows, columns)]
    return found
