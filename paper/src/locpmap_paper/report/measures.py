"""What is measured of a decoder: its name in tables, which direction is better, how it is printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from locpmap_paper.report.record import Row
from locpmap_paper.report.statistics import Estimate

THIN = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True)
class Measure:
    """One column of the tables."""

    title: str
    says: str
    value: Callable[[Row], float | None]
    larger_is_better: bool
    show: Callable[[float], str]
    with_error: bool = False

    def better(self, left: float, right: float) -> bool:
        """Whether the left value is strictly better."""
        return left > right if self.larger_is_better else left < right

    def text(self, value: Estimate | None) -> str:
        """As the tables print it, with the standard error where this measure carries one."""
        if value is None:
            return "–"
        return plus_minus(value) if self.with_error else self.show(value.mean)


def share(value: float) -> str:
    """Four decimals without the leading zero, as the paper prints overlaps: .8203.

    >>> share(0.82034), share(-0.5), share(1.25)
    ('.8203', '−.5000', '1.2500')
    """
    text = f"{abs(value):.4f}"
    sign = "−" if value < 0 and float(text) else ""
    return sign + text.removeprefix("0")


def plus_minus(value: Estimate) -> str:
    """Mean ± standard error of a share; with one seed the mean alone."""
    return share(value.mean) if value.error is None else f"{share(value.mean)}{THIN}±{THIN}{share(value.error)}"


def signed(value: float) -> str:
    """A share with its sign, for differences."""
    text = share(value)
    return text if text.startswith("−") or not float(text) else f"+{text}"


def signed_error(value: Estimate | None) -> str:
    """A difference ± its standard error, as tables print it."""
    if value is None:
        return "–"
    return signed(value.mean) if value.error is None else f"{signed(value.mean)}{THIN}±{THIN}{share(value.error)}"


def seconds(value: float) -> str:
    """Three digits that count, never as a power of ten.

    >>> seconds(0.01234), seconds(1.5), seconds(1234.5)
    ('0.0123', '1.50', '1,234')
    """
    if value >= 100:
        return f"{value:,.0f}"
    decimals = 1 if value >= 10 else 2 if value >= 1 else 3 if value >= 0.1 else 4
    return f"{value:.{decimals}f}"


def label_iou(title: str, index: int) -> Measure:
    """The overlap of one label."""
    return Measure(
        title, "", lambda row: row.iou[index] if row.iou is not None and index < len(row.iou) else None, True, share
    )


BACKGROUND = label_iou("IoU bg", 0)
FOREGROUND = label_iou("IoU fg", 1)
MEAN_IOU = Measure(
    "mean IoU",
    "intersection over union: of the pixels that have a label in the answer or in the truth, the share that has it in "
    "both, counted over all test images, then averaged over background (bg) and foreground (fg); larger is better",
    lambda row: row.mean_iou,
    True,
    share,
    with_error=True,
)
IMAGE_IOU = Measure(
    "image IoU", "the mean IoU of each image, averaged over images", lambda row: row.image_iou, True, share
)
SCORE = Measure(
    "score",
    "the log-score θ(y) of the answer per image: what a decoder that only maximises would maximise; a high score with "
    "a low IoU means that the model, not the search, is wrong",
    lambda row: row.score,
    True,
    lambda value: f"{value:,.1f}".replace("-", "−"),
)
NLL = Measure(
    "NLL",
    "negative log-likelihood per pixel of the truth under the decoder's probabilities; smaller is better",
    lambda row: row.nll,
    False,
    share,
    with_error=True,
)
BRIER = Measure(
    "Brier",
    "mean squared distance of the probabilities from the truth; smaller is better",
    lambda row: row.brier,
    False,
    share,
)
ECE = Measure(
    "ECE",
    "expected calibration error: how far confidence is from accuracy; smaller is better",
    lambda row: row.ece,
    False,
    share,
)
AURC = Measure(
    "AURC",
    "area under the risk-coverage curve: whether the unsure pixels are the wrong ones; smaller is better",
    lambda row: row.aurc,
    False,
    share,
)
SECONDS = Measure(
    "s / 1,000",
    "seconds to decode 1,000 images on the machine named below",
    lambda row: row.seconds_per_thousand,
    False,
    seconds,
)

# Scenes have more labels, and few enough of them are decoded to speak of one.
SCENE_IOU = replace(
    MEAN_IOU,
    says="intersection over union: of the pixels that have a label in the answer or in the truth, the share that has "
    "it in both, counted over all test scenes, then averaged over the labels; larger is better",
)
ACCURACY = Measure(
    "accuracy",
    "the share of pixels that got their true label; common labels weigh more than in mean IoU; larger is better",
    lambda row: row.accuracy,
    True,
    share,
)
IMAGE_SECONDS = Measure(
    "s / image",
    "seconds to decode one image on the machine named below",
    lambda row: None if row.seconds_per_thousand is None else row.seconds_per_thousand / 1000,
    False,
    seconds,
)

MEASURES = (BACKGROUND, FOREGROUND, MEAN_IOU, IMAGE_IOU, SCORE, NLL, BRIER, ECE, AURC, SECONDS)
SCENE_MEASURES = (SCENE_IOU, ACCURACY, NLL, BRIER, ECE, AURC, IMAGE_SECONDS)
