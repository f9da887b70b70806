"""Cross-validation report of a refiner: a table of metrics and a verdict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.formats.atomic import PathLike
from locpmap.formats.pictures import label_colours, write_panels
from locpmap.guarantees.guarantee import in_words_of_volumes
from locpmap.learning.proper_scores import PERIMETER, WINDOWS, name_of
from locpmap.refining.decided import Gain
from locpmap.refining.map_scores import COMPONENTS, MapScore, mean_scores
from locpmap.refining.scoring import METRICS, N_STANDARD_ERRORS, Score, difference, total

NETWORK, SCALED, REFINED = "network", "network, scaled", "refined"
ALONE, SAMPLED = "independent pixels", "samples"
LOWER = "Lower CRPS and energy are better; area 8 is of windows of 8 × 8 pixels."
ENOUGH = 20  # images or groups for a reliable fit
RELIABLE = 0.8  # coverage of 90 % intervals below which the report warns
AREAS = tuple(map(name_of, WINDOWS))


@dataclass(frozen=True, eq=False)
class Illustration:
    """An image with its labels and samples."""

    image: Array | None  # (C, H, W)
    network: Array  # (H, W) labels, as the next two
    refined: Array
    truth: Array  # VOID where it is unknown
    samples: Array  # (M, H, W)
    title: str = "image"

    def plane(self, number: int) -> Self:
        """Return a plane (H, W) of a volume (D, H, W)."""
        image, labels = self.image, (self.network[number], self.refined[number], self.truth[number])
        shown, title = None if image is None else image[:, number], f"plane {number} of 0 to {len(self.truth) - 1}"
        return type(self)(shown, *labels, self.samples[:, number], title)


@dataclass(frozen=True, eq=False)
class Report:
    """Cross-validated scores of the network, of the network with temperature scaling, and of refinement.

    Each image is scored with weights that were learned without it. ``str(report)`` holds a table of probabilities with
    a verdict, and tables of samples: coverage of 90 % intervals, CRPS and energy score, for areas in windows of 8, 32
    and 90 pixels and of the whole image, for the number of connected components of 12 or more pixels, and for
    perimeters.

    Attributes:
        scores (dict): One score per image or group, for each of the rows "network", "network, scaled" and "refined".
        maps (dict): One score of sampled label maps per image, for up to 24 images, for each of the rows "independent
            pixels" (drawn from the softmax of the scaled network) and "samples" (label maps drawn by the refiner).
        illustration (Illustration): One image with samples, for :meth:`picture`.
        decided (Gain or None): Gain from deciding for a measure, if :meth:`Refiner.fit` had an objective.
        unit (str): Unit over which standard errors are computed: "images", or "groups" if :meth:`Refiner.fit` was
            called with ``groups``.
        volumes (bool): Whether the images are volumes. Then "area" is a volume, and "perimeter" a number of faces.
        learned (str): One sentence on what the fit to all images changes, and why it leaves the rest out.
    """

    scores: dict[str, list[Score]]
    maps: dict[str, list[MapScore]]
    illustration: Illustration
    decided: Gain | None = None
    unit: str = "images"
    volumes: bool = False
    learned: str = ""

    def value(self, row: str, metric: str) -> float:
        """Return the "IoU", "ECE" or "NLL" of a row ("network", "network, scaled" or "refined") over all images."""
        return METRICS[metric](total(self.scores[row]))

    def gain(self, metric: str) -> tuple[float, float]:
        """Return the metric of "refined" minus that of "network, scaled", and the standard error over images.

        For ECE and NLL, lower is better.
        """
        return difference(self.scores[REFINED], self.scores[SCALED], METRICS[metric])

    @property
    def better(self) -> list[str]:
        """Metrics that refinement improves by more than two standard errors."""
        return [name for name in METRICS if self._sign(name) > 0]

    @property
    def worse(self) -> list[str]:
        """Metrics that refinement makes worse by more than two standard errors."""
        return [name for name in METRICS if self._sign(name) < 0]

    @property
    def helps(self) -> bool:
        """Whether refinement improves IoU or NLL, and makes neither of them worse."""
        return bool({"IoU", "NLL"} & set(self.better)) and not {"IoU", "NLL"} & set(self.worse)

    @property
    def verdict(self) -> str:
        """One sentence on whether refinement helps, with the gain in each metric."""
        changes = ", ".join(f"{name} {value:+.4f} ± {error:.4f}" for name, (value, error) in self._gains().items())
        worse = " and ".join(self.worse)
        if self.helps:
            says = "Refinement helps these data" + (f", but makes the {worse} worse" if worse else "")
        elif worse:
            says = f"Refinement makes the {worse} of these data worse"
        else:
            says = "Refinement does not help these data: temperature scaling is as good"
        return f"{says} ({changes}, compared with the scaled network)."

    def __str__(self) -> str:
        words: Callable[[str], str] = in_words_of_volumes if self.volumes else str
        rows = {row: [self.value(row, name) for name in METRICS] for row in self.scores}
        n, m = len(self.scores[REFINED]), len(self.maps[SAMPLED])
        note = f"{n} {self.unit}; ± is one standard error. Higher IoU is better, and lower ECE and NLL."
        lines = [*_table("", METRICS, rows), f"{self.verdict}  {note}"]
        if n < ENOUGH:
            lines.append(
                f"{n} {self.unit} are few: {ENOUGH} or more are needed to rely on weights and standard errors."
            )
        lines += [self.learned, ""] if self.learned else [""]
        means = {row: mean_scores(scores) for row, scores in self.maps.items()}
        names = [name for name in (*AREAS, COMPONENTS, PERIMETER) if name in means[SAMPLED]["coverage"]]
        found = {row: [mean["coverage"].get(name, np.nan) for name in names] for row, mean in means.items()}
        low = [name for name, share in zip(names, found[SAMPLED], strict=True) if share < RELIABLE]
        lines += _table("coverage", map(words, names), found, ".2f")
        limit = f"{RELIABLE:.0%}: use them with a guarantee only."
        lines += [f"Intervals of {', '.join(low)} cover less than {limit}", ""] if low else [""]
        names = [name for name in AREAS if name in means[SAMPLED]["crps"]]
        found = {row: [*(mean["crps"][name] for name in names), mean["energy"]] for row, mean in means.items()}
        lines += _table("CRPS", [*map(words, names), "energy"], found)
        lines.append(f"Coverage of 90 % intervals, CRPS of areas and energy of whole maps, in {m} images. {LOWER}")
        lines += [] if self.decided is None else ["", str(self.decided)]
        return "\n".join(map(words, lines))

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of numbers and strings, for a file."""
        rows = {row: {name: self.value(row, name) for name in METRICS} for row in self.scores}
        gains = {name: list(pair) for name, pair in self._gains().items()}
        samples = {row: mean_scores(scores) for row, scores in self.maps.items()}
        found = {"rows": rows, "gains": gains, "says": self.verdict, "learned": self.learned, "samples": samples}
        if self.decided is None:
            return found
        values = {where: list(numbers) for where, numbers in self.decided.values().items()}
        return {**found, "decided": {"measure": self.decided.measure, **values, "says": self.decided.verdict}}

    def picture(self, path: PathLike) -> None:
        """Write a PNG of one image, or one plane of a volume, its network, refined and true labels, and four samples.

        The samples are drawn with weights that were learned without the image.

        Args:
            path (str or os.PathLike): The file to write.

        Example:
            >>> refiner.report.picture("samples.png")  # doctest: +SKIP
        """
        shown = self.illustration
        maps = {"network": shown.network, "refined": shown.refined, "true": shown.truth}
        maps |= {f"sample {n}": sample for n, sample in enumerate(shown.samples, start=1)}
        n_labels = len(self.scores[NETWORK][0].confusion)
        colours = np.concatenate([label_colours(n_labels), [[255, 255, 255]]])
        panels = {name: colours[labels].astype(np.uint8) for name, labels in maps.items()}  # white where -1
        if shown.image is not None:
            panels = {shown.title: _visible(shown.image), **panels}
        seen = np.isin(np.arange(n_labels), np.concatenate([labels.ravel() for labels in maps.values()]))
        legend = [f"label {k}" if seen[k] else "" for k in range(n_labels)]
        write_panels(path, panels, len(panels) // 2 + len(panels) % 2, legend)

    def _gains(self) -> dict[str, tuple[float, float]]:
        return {name: self.gain(name) for name in METRICS}

    def _sign(self, metric: str) -> int:
        value, error = self.gain(metric)
        if not abs(value) > N_STANDARD_ERRORS * error:
            return 0
        return 1 if (value > 0) == (metric == "IoU") else -1


def _table(title: str, columns: Iterable[str], rows: dict[str, list[float]], digits: str = ".4f") -> list[str]:
    """Return the lines of a table of numbers."""
    lines = [f"{title:18}" + "".join(f"{name:>13}" for name in columns)]
    return lines + [f"{row:18}" + "".join(f"{value:13{digits}}" for value in values) for row, values in rows.items()]


def _visible(image: Array) -> Array:
    """Return colours (C, H, W) of any range as RGB (H, W, 3) uint8; other than three channels become grey."""
    values = image if len(image) == 3 else np.repeat(image.mean(axis=0, keepdims=True), 3, axis=0)
    low, high = float(values.min()), float(values.max())
    return (255 * (values - low) / (high - low or 1)).astype(np.uint8).transpose(1, 2, 0)
