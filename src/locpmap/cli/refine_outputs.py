"""Write the files of ``locpmap refine``, and a record by which a later run skips finished inputs."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.cli.refine_inputs import Content, Pair
from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.cli.refine_deciding import Deciding
    from locpmap.formats.rasters import Place
    from locpmap.guarantees import Guarantee
    from locpmap.measuring import Measurement
    from locpmap.result import Result


INTERVAL = 0.9  # fraction of the samples inside the interval of a label's area
MAX_MAPS = 1000  # sampled maps per input, numbered by three digits
FILES = {  # what --keep chooses from, and the ending of the file
    "labels": "labels.png",
    "overlay": "overlay.png",
    "probability": "probability.npy",
    "variance": "variance.npy",
    "entropy": "entropy.npy",
}
DEFAULT = ("labels", "overlay")


class Decoded(NamedTuple):
    """Results of one input, to be written to files."""

    result: Result
    areas: Measurement  # pixels per sample and label, or volumes in mm³
    samples: Iterable[Array] = ()  # label maps (H, W), drawn while they are written
    guarantee: Guarantee | None = None
    learned_on: str = "images"  # or volumes, or no error fields: data of the refiner's error fields


@dataclass(frozen=True)
class Outputs:
    """Files written for one input."""

    folder: Path
    pair: Pair
    tiff: bool
    n_maps: int = 0  # number of sampled label maps
    keep: tuple[str, ...] = DEFAULT  # names in FILES
    names: tuple[str, ...] | None = None  # of the labels

    def path(self, ending: str) -> Path:
        """Return the path of ``NAME.ending``."""
        return self.folder / f"{self.pair.name}.{ending}"

    def ending(self, name: str) -> str:
        """Return the ending of a kept file: ``.nii.gz`` for maps of a volume."""
        return f"{name}.nii.gz" if self.pair.is_volume and name != "overlay" else FILES[name]

    @property
    def record(self) -> Path:
        """Path of the record, which holds settings, checksums of the inputs and a summary."""
        return self.path("json")

    def targets(self, georeferenced: bool) -> list[Path]:
        samples = [*map(_sample, range(self.n_maps))]
        endings = [
            *map(self.ending, self.keep),
            *(f"{name}.{self.ending('labels').partition('.')[2]}" for name in samples),
        ]
        if self.tiff or georeferenced:
            endings += [f"{name}.tif" for name in (*self.keep, *samples) if name != "overlay"]
        return [*map(self.path, endings), self.record]

    def earlier(self) -> dict[str, Any]:
        """Return the record of an earlier run; empty if there is none or it is damaged.  Raise for any other file."""
        try:
            record = json.loads(self.record.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(record, dict) or "settings" not in record:
            raise InputError(
                f"{self.record} is not a record of `locpmap refine`, which would replace it: expected another folder"
            )
        return record

    def finished(self, settings: dict[str, Any], inputs: list[str]) -> dict[str, Any] | None:
        """Return the record of a finished run with these settings and inputs, or None."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = self.earlier()
            same = record["settings"] == settings and record["inputs"] == inputs and "changes" in record
            same = same and all("area" in row or "mean_volume" in row for row in record["labels"])  # not of 0.1.0
            if same and all((self.folder / name).is_file() for name in record["files"]):
                return record
        return None

    def write(
        self,
        content: Content,
        decoded: Decoded,
        settings: dict[str, Any],
        inputs: list[str],
        deciding: Deciding | None = None,
    ) -> dict[str, Any]:
        """Write all files or none, and return the record, which is written last.  Create the folder if missing.

        ``inputs`` holds the checksums of the input files, computed before the files were read.
        """
        from locpmap.formats import naming
        from locpmap.formats.atomic import together, write_text
        from locpmap.refining import interval_of

        result, areas, samples, guarantee, learned_on = decoded
        with naming(self.pair.scores):
            decision = None if deciding is None else deciding(result)
        inside = result.labels >= 0
        shown = result if decision is None else replace(result, labels=decision.labels)
        low, high, guaranteed = interval_of(areas, INTERVAL, guarantee)
        n_labels, counted = len(areas.names), "pixels" if content.spacing is None else "voxels"
        files = [path.name for path in self.targets(content.place is not None)]
        record = {
            "name": self.pair.name,
            "settings": settings,
            "inputs": inputs,
            "files": files,
            counted: int(inside.sum()),
            "changed": shown.n_changed,
            "changes": shown.changes,
            "spacing": content.spacing,
            "n_labels": n_labels,
            "labels": _labels(shown, areas, low, high, self.names, content.spacing),
            "level": INTERVAL,
            "guaranteed": guaranteed,
            "learned_on": learned_on,
            "calibration_images": guarantee.n_images if guarantee is not None and guaranteed else None,
            "mean_entropy": float(result.entropy.astype(np.float32)[inside].mean()) if inside.any() else 0.0,
            "decoding": str(result.status),
            "decoding_seconds": round(result.seconds, 4),
        }
        if deciding is not None and decision is not None:
            record["decision"] = deciding.record(decision)
        earlier = self._written_earlier()
        with together(self.record):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write_maps(content, shown, n_labels)
            for number, labels in enumerate(samples):
                self._write_labels(_sample(number), labels, n_labels, content)
            write_text(self.record, [json.dumps(record, indent=1), "\n"])
        for name in earlier - set(files):  # for example of a run with more samples
            (self.folder / name).unlink(missing_ok=True)
        return record

    def _written_earlier(self) -> set[str]:
        """Return the names of the files of this input that an earlier record lists, without those that are inputs."""
        record, inputs = self.earlier(), {path.resolve() for path in self.pair.paths}
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            names = {name for name in record["files"] if name.startswith(f"{self.pair.name}.")}
            return {name for name in names if Path(name).name == name and (self.folder / name).resolve() not in inputs}
        return set()

    def _write_maps(self, content: Content, result: Result, n_labels: int) -> None:
        from locpmap.formats.arrays import write_array
        from locpmap.formats.nifti import write_nifti
        from locpmap.formats.pictures import write_overlay, write_slices

        if "labels" in self.keep:
            self._write_labels("labels", result.labels, n_labels, content)
        if "overlay" in self.keep:
            shown = content.image, result.labels, result.entropy, n_labels
            if content.spacing is None:
                write_overlay(self.path(FILES["overlay"]), *shown)
            else:
                write_slices(self.path(FILES["overlay"]), *shown, content.spacing, self.names)
        for name in ("probability", "variance", "entropy"):
            if name in self.keep:
                values, path = getattr(result, name).astype(np.float32, copy=False), self.path(self.ending(name))
                write_array(path, values) if content.scan is None else write_nifti(path, values, content.scan)
        if self.tiff or content.place is not None:
            self._write_tiff(result, n_labels, content.place)

    def _write_labels(self, name: str, labels: Array, n_labels: int, content: Content) -> None:
        """Write a label map as NIfTI, or as PNG and, if wanted, as TIFF.  Masked pixels (-1) get the largest number."""
        from locpmap.formats.nifti import write_nifti
        from locpmap.formats.pictures import write_label_map
        from locpmap.formats.rasters import write_numbers

        kind, place = np.uint8 if n_labels < 256 else np.uint16, content.place
        masked, void = labels < 0, int(np.iinfo(kind).max)
        numbers = np.where(masked, void, labels).astype(kind)
        if content.scan is not None:
            write_nifti(self.path(f"{name}.nii.gz"), numbers, content.scan)
            return
        # Masked pixels are written as 255, or as 65535 in 16 bits, so the palette must have that entry.
        write_label_map(self.path(f"{name}.png"), labels, void + 1 if masked.any() else n_labels)
        if self.tiff or place is not None:
            write_numbers(self.path(f"{name}.tif"), numbers, f"labels: {void} is no data", place, void)

    def _write_tiff(self, result: Result, n_labels: int, place: Place | None) -> None:
        """Write TIFF files of the labels' probability and variance, and of the entropy, with a nodata tag."""
        from locpmap.formats.rasters import write_map

        own = np.take_along_axis(result.probability, result.labels.clip(0)[..., None], axis=-1)[..., 0]
        for name, values, top, what in (
            ("probability", own, 1.0, "probability of the label"),
            ("variance", own * (1 - own), 0.25, "variance p(1 - p) of the label"),
            ("entropy", result.entropy, math.log(n_labels), "entropy"),
        ):
            if name in self.keep:
                write_map(self.path(f"{name}.tif"), values, top, what, place, result.labels < 0)


def _sample(number: int) -> str:
    return f"sample-{number:03d}"


def _labels(
    result: Result,
    areas: Measurement,
    low: Array,
    high: Array,
    names: tuple[str, ...] | None,
    spacing: tuple[float, ...] | None,
) -> list[dict[str, Any]]:
    """Return the area of each label that occurs, largest first: in the label map, and its distribution in samples.

    The keys "area" and "mean_volume" are means over the samples; "pixels", "voxels" and "volume" are of the label map.
    """
    mean, spread, median = areas.mean, areas.std, np.median(areas.values, axis=0)
    counts = np.bincount(result.labels[result.labels >= 0], minlength=len(mean))
    present = np.flatnonzero((mean > 0) | (counts > 0))
    return [
        {
            "label": int(k),
            "name": None if names is None else names[k],
            "pixels" if spacing is None else "voxels": int(counts[k]),
            **({} if spacing is None else {"volume": int(counts[k]) * math.prod(spacing)}),
            "area" if spacing is None else "mean_volume": float(mean[k]),
            "std": None if np.isnan(spread[k]) else float(spread[k]),
            "median": float(median[k]),
            "interval": [float(low[k]), float(high[k])],
        }
        for k in present[np.argsort(-mean[present], kind="stable")]
    ]
