"""``--decide`` of ``locpmap refine``: labels for a measure, in one image or over the images of a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from locpmap.errors import InputError, LocpmapError, one_of, within

if TYPE_CHECKING:
    from locpmap.cli.refine_inputs import Pair
    from locpmap.deciding import Decider, Decision
    from locpmap.result import Result

IMAGE, DATASET = "image", "dataset"
MAX_PIXELS = 2**28  # of the samples of an image, with two bytes each
MAX_IMAGES = 32  # of a folder, used for the statistics


def checksums_of(pair: Pair) -> list[str]:
    """Return the checksums of an input, none if it cannot be read, which is reported when it is refined."""
    try:
        return pair.checksums()
    except (LocpmapError, OSError):
        return []


@dataclass(frozen=True)
class Deciding:
    """Options of ``--decide``, and the statistics that they need."""

    measure: str
    abstain: float | None
    statistics: tuple[Pair, ...] = ()  # inputs whose statistics are used; empty to use those of each image
    decider: Decider | None = None

    @classmethod
    def of(
        cls, measure: str | None, abstain: float | None, pairs: Sequence[Pair], over: str = DATASET
    ) -> Deciding | None:
        """Return the options, or None without ``--decide``; a data set has the statistics of at most 32 inputs."""
        one_of("--over", over, (DATASET, IMAGE))
        if measure is None:
            for name, given in (("--abstain", abstain is not None), ("--over", over != DATASET)):
                if given:
                    raise InputError(f"{name} is given without --decide, expected both, such as --decide accuracy")
            return None
        from locpmap.deciding.inputs import MEASURES, unknown_measure
        from locpmap.deciding.measures import OVERLAPS

        if measure not in MEASURES:
            raise unknown_measure("--decide", measure)
        if abstain is not None:
            within("--abstain", abstain, 0, 1)
        if len(pairs) < 2 or measure not in OVERLAPS or over == IMAGE:
            return cls(measure, abstain)
        places = np.linspace(0, len(pairs) - 1, min(MAX_IMAGES, len(pairs))).round().astype(int)
        return cls(measure, abstain, tuple(pairs[n] for n in places))

    def n_maps(self, n_samples: int, n_pixels: int) -> int:
        """Return how many of the samples of an image its decision reads: all of them, or as many as memory allows."""
        if self.statistics or self.measure == "accuracy":
            return 0
        return min(n_samples, max(1, MAX_PIXELS // max(1, n_pixels)))

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the decision, for the record of a run."""
        over = IMAGE
        if self.statistics:
            sums = "".join(checksum for pair in self.statistics for checksum in checksums_of(pair))
            over = f"{len(self.statistics)} images {hashlib.sha256(sums.encode()).hexdigest()[:16]}"
        return {"decide": self.measure, "abstain": self.abstain, "over": over}

    def with_statistics(self, refine: Callable[[Pair], Result], progress: Callable[[int, int], None]) -> Deciding:
        """Return the same with the statistics of its inputs; those that cannot be refined are left out."""
        if not self.statistics:
            return self
        from locpmap.deciding import Decider

        decider = Decider(self.measure)
        for n, pair in enumerate(self.statistics):
            with suppress(LocpmapError, OSError, MemoryError):  # reported when the input itself is refined
                decider.add(refine(pair))
            progress(n + 1, len(self.statistics))
        return replace(self, decider=decider) if decider.n_images else self

    def __call__(self, result: Result) -> Decision:
        return result.decide(self.measure, over=self.decider or IMAGE, abstain=self.abstain)

    def record(self, decision: Decision) -> dict[str, Any]:
        """Return the rule, the expected value and the risk of a decision, for the record of an input."""
        numbers = {name: float(getattr(decision, name)) for name in ("expected", "risk", "kept")}
        if self.decider is None:
            return {"measure": self.measure, "over": IMAGE, **numbers}
        slope, offset, _ = self.decider.rule
        rule = [[float(a), float(b)] if b > -np.inf else None for a, b in zip(slope, offset, strict=True)]
        return {"measure": self.measure, "over": f"{self.decider.n_images} images", **numbers, "rule": rule}


def count_of(record: dict[str, Any]) -> int:
    """Return the number of pixels or voxels in the record of an input or of a label."""
    return int(record["pixels"] if "pixels" in record else record["voxels"])


def decided_sentence(records: Sequence[dict[str, Any]]) -> str:
    """Return a sentence with the mean expected value of decided inputs, and the fraction of sites with a label."""
    from locpmap.deciding.inputs import TITLES

    decisions, pixels = [record["decision"] for record in records], [count_of(record) for record in records]
    expected = np.mean([one["expected"] for one in decisions])
    kept = np.dot([one["kept"] for one in decisions], pixels) / max(1, sum(pixels))
    one, sites = ("image", "pixels") if "pixels" in records[0] else ("volume", "voxels")
    over = decisions[0]["over"].replace("image", one)
    where = f"over {over}" if over != one else f"in each {one}" if len(records) > 1 else f"in the {one}"
    measure = decisions[0]["measure"]
    text = f"decided for {measure} {where}: expected {TITLES[measure]} {expected:.4f}"
    if kept == 1:
        return text
    wrong = np.dot([one["risk"] * one["kept"] for one in decisions], pixels) / max(1e-9, kept * sum(pixels))
    return f"{text} before abstention; {kept:.1%} of the {sites} labelled, of which {wrong:.1%} expected to be wrong"
