"""The measures of a decoder: title, description, direction, and number format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from locpmap_paper.report.record import Row
from locpmap_paper.report.statistics import Estimate

THIN = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True)
class Measure:
    """A column of the result tables."""

    title: str
    description: str
    value: Callable[[Row], float | None]
    larger_is_better: bool
    show: Callable[[float], str]
    with_error: bool = False

    def better(self, left: float, right: float) -> bool:
        """Return whether the left value is strictly better."""
        return left > right if self.larger_is_better else left < right

    def text(self, value: Estimate | None) -> str:
        """Return the table entry, with the standard error if this measure shows one."""
        if value is None:
            return "–"
        return plus_minus(value) if self.with_error else self.show(value.mean)


def four_decimals(value: float) -> str:
    """Format a number with four decimals and no leading zero, as in the paper: .8203.

    >>> four_decimals(0.82034), four_decimals(-0.5), four_decimals(1.25)
    ('.8203', '−.5000', '1.2500')
    """
    text = f"{abs(value):.4f}"
    sign = "−" if value < 0 and float(text) else ""
    return sign + text.removeprefix("0")


def plus_minus(value: Estimate) -> str:
    """Format mean ± standard error, or the mean alone if there is one seed."""
    return (
        four_decimals(value.mean)
        if value.error is None
        else f"{four_decimals(value.mean)}{THIN}±{THIN}{four_decimals(value.error)}"
    )


def signed(value: float) -> str:
    """Format a difference with its sign."""
    text = four_decimals(value)
    return text if text.startswith("−") or not float(text) else f"+{text}"


def signed_error(value: Estimate | None) -> str:
    """Format a difference ± its standard error."""
    if value is None:
        return "–"
    return (
        signed(value.mean) if value.error is None else f"{signed(value.mean)}{THIN}±{THIN}{four_decimals(value.error)}"
    )


def seconds(value: float) -> str:
    """Format seconds with three significant digits and no exponent.

    >>> seconds(0.01234), seconds(1.5), seconds(1234.5)
    ('0.0123', '1.50', '1,234')
    """
    if value >= 100:
        return f"{value:,.0f}"
    decimals = 1 if value >= 10 else 2 if value >= 1 else 3 if value >= 0.1 else 4
    return f"{value:.{decimals}f}"


def label_iou(title: str, index: int) -> Measure:
    """Return the measure "intersection over union of one label"."""
    return Measure(
        title,
        "",
        lambda row: row.iou[index] if row.iou is not None and index < len(row.iou) else None,
        True,
        four_decimals,
    )


BACKGROUND = label_iou("IoU bg", 0)
FOREGROUND = label_iou("IoU fg", 1)
MEAN_IOU = Measure(
    "mean IoU",
    "intersection over union: of the pixels with a label in the prediction or the ground truth, the fraction with it "
    "in both, pooled over all test images, then averaged over background (bg) and foreground (fg); larger is better",
    lambda row: row.mean_iou,
    True,
    four_decimals,
    with_error=True,
)
IMAGE_IOU = Measure(
    "image IoU",
    "mean IoU computed per image, then averaged over images",
    lambda row: row.image_iou,
    True,
    four_decimals,
)
SCORE = Measure(
    "score",
    "log-score θ(y) of the predicted labels per image, the objective of MAP decoders; a high score with a low IoU "
    "means that the model is wrong, not the search",
    lambda row: row.score,
    True,
    lambda value: f"{value:,.1f}".replace("-", "−"),
)
NLL = Measure(
    "NLL",
    "negative log-likelihood per pixel of the true labels under the decoder's probabilities; smaller is better",
    lambda row: row.nll,
    False,
    four_decimals,
    with_error=True,
)
BRIER = Measure(
    "Brier",
    "mean squared distance between the probabilities and the true labels; smaller is better",
    lambda row: row.brier,
    False,
    four_decimals,
)
ECE = Measure(
    "ECE",
    "expected calibration error: mean absolute difference between confidence and accuracy; smaller is better",
    lambda row: row.ece,
    False,
    four_decimals,
)
AURC = Measure(
    "AURC",
    "area under the risk-coverage curve: low if errors are among the least confident pixels; smaller is better",
    lambda row: row.aurc,
    False,
    four_decimals,
)
SECONDS = Measure(
    "s / 1,000",
    "seconds to decode 1,000 images on the machine given below",
    lambda row: row.seconds_per_thousand,
    False,
    seconds,
)

# Scenes have more labels, and their time is given per image because few are decoded.
SCENE_IOU = replace(
    MEAN_IOU,
    description="intersection over union: of the pixels with a label in the prediction or the ground truth, the "
    "fraction with it in both, pooled over all test scenes, then averaged over the labels; larger is better",
)
ACCURACY = Measure(
    "accuracy",
    "fraction of pixels with the correct label; frequent labels weigh more than in mean IoU; larger is better",
    lambda row: row.accuracy,
    True,
    four_decimals,
)
IMAGE_SECONDS = Measure(
    "s / image",
    "seconds to decode one image on the machine given below",
    lambda row: None if row.seconds_per_thousand is None else row.seconds_per_thousand / 1000,
    False,
    seconds,
)

MEASURES = (BACKGROUND, FOREGROUND, MEAN_IOU, IMAGE_IOU, SCORE, NLL, BRIER, ECE, AURC, SECONDS)
SCENE_MEASURES = (SCENE_IOU, ACCURACY, NLL, BRIER, ECE, AURC, IMAGE_SECONDS)
