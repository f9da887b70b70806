"""Ablation of LocPMAP: the effect of each choice on mean IoU and negative log-likelihood.

The reference is the paper's algorithm: noise, random start, single sites, votes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from locpmap_paper.report.findings import SURE
from locpmap_paper.report.measures import THIN, four_decimals, plus_minus
from locpmap_paper.report.record import Level, Model, Record, Setting
from locpmap_paper.report.statistics import Estimate, estimate, paired

PAPER_SAMPLES = 50
VISIBLE = 5e-5  # the smallest difference visible in four decimals


@dataclass(frozen=True, order=True)
class Form:
    """The settings of LocPMAP that the ablation varies."""

    noise: bool = True
    start: str = "random"
    probability: str = "votes"
    blocks: str = "sites"
    n_samples: int = PAPER_SAMPLES

    def __str__(self) -> str:
        noise = "noise" if self.noise else "no noise"
        return f"{noise}, {self.start} start, {self.blocks}, {self.probability}"


@dataclass(frozen=True)
class Change:
    """The effect of one changed setting: paired differences, changed - reference."""

    title: str
    form: Form
    iou: Estimate | None
    nll: Estimate | None
    iou_change: Estimate | None
    nll_change: Estimate | None
    seconds: Estimate | None


class Ablation:
    """The ablation of one model at one level, by form and seed."""

    def __init__(self, record: Record, level: Level, model: Model) -> None:
        self.level, self.model, self.place = level, model, f"{model.title}, {record.place(level)}"
        self._cells: dict[Form, dict[int, Setting]] = {}
        for cell in record.ablation:
            if (cell.level, cell.model) == (level.name, model.name):
                form = Form(cell.noise, cell.start, cell.probability, cell.blocks, cell.n_samples)
                self._cells.setdefault(form, {})[cell.seed] = cell

    @property
    def forms(self) -> list[Form]:
        """All forms that were run."""
        return list(self._cells)

    @property
    def counts(self) -> list[int]:
        """The numbers of samples that were run, sorted."""
        return sorted({form.n_samples for form in self._cells})

    @property
    def n_samples(self) -> int:
        """The number of samples at which forms are compared: the paper's if it was run, else the largest."""
        return PAPER_SAMPLES if PAPER_SAMPLES in self.counts else self.counts[-1]

    def values(self, form: Form, what: str) -> dict[int, float]:
        """Return the values of a measure, by seed."""
        found = {seed: getattr(cell, what) for seed, cell in self._cells.get(form, {}).items()}
        return {seed: value for seed, value in sorted(found.items()) if value is not None}

    def mean(self, form: Form, what: str) -> Estimate | None:
        """Return a measure's mean over seeds."""
        return estimate(self.values(form, what).values())

    def change(self, form: Form, reference: Form, what: str) -> Estimate | None:
        """Return the paired difference form - reference."""
        return paired(self.values(form, what), self.values(reference, what))

    @property
    def reference(self) -> Form:
        """The paper's algorithm."""
        return Form(n_samples=self.n_samples)

    def changes(self) -> list[Change]:
        """Return the reference, and every recorded form that differs from it in one, two or three settings."""
        base = self.reference
        wanted = {
            "the paper's: noise, random start, votes, sites": base,
            "without noise": replace(base, noise=False),
            "start at the perturbed unaries' argmax": replace(base, start="perturbed"),
            "start at the unaries' argmax": replace(base, start="unary"),
            "conditional probabilities": replace(base, probability="conditional"),
            "blocks of rows and columns": replace(base, blocks="rows+columns"),
            "blocks and conditional": replace(base, probability="conditional", blocks="rows+columns"),
            "blocks and conditional, without noise": Form(
                False, "random", "conditional", "rows+columns", self.n_samples
            ),
        }
        wanted |= {_samples(n): replace(base, n_samples=n) for n in self.counts if n != self.n_samples}
        return [self._change(title, form) for title, form in wanted.items() if form in self._cells]

    def _change(self, title: str, form: Form) -> Change:
        iou, nll, seconds = (self.mean(form, what) for what in ("mean_iou", "nll", "seconds"))
        iou_change, nll_change = (self.change(form, self.reference, what) for what in ("mean_iou", "nll"))
        return Change(title, form, iou, nll, iou_change, nll_change, seconds)

    def conclusions(self) -> Iterator[tuple[str, str]]:
        """Yield the effect of each choice as a heading and a sentence, the summary first."""
        base = self.reference
        answers, sizes = [], {}
        for word, action, form in (
            ("Noise", "without noise", replace(base, noise=False)),
            ("Start", "starting from the unaries' argmax, not random labels", replace(base, start="unary")),
            ("Perturbed start", "starting from the argmax of the perturbed unaries", replace(base, start="perturbed")),
            ("Probability", "with conditional probabilities, not votes", replace(base, probability="conditional")),
            ("Blocks", "with rows and columns, not single sites", replace(base, blocks="rows+columns")),
        ):
            iou, nll = (self.change(form, base, what) for what in ("mean_iou", "nll"))
            if iou is not None:
                text = f"{action}, mean IoU {_effect(iou, larger_is_better=True)}"
                text += "" if nll is None else f"; negative log-likelihood {_effect(nll, larger_is_better=False)}"
                answers.append((word, f"{text}."))
                sizes[word] = abs(iou.mean)
        yield from self._in_short(sizes)
        yield from answers
        yield from self._on_samples()

    def noise_helps(self, start: str) -> Iterator[bool]:
        """Yield for each setting with a random start, or with any other start, whether noise raises mean IoU."""
        for form in self.forms:
            if form.noise and form.n_samples == self.n_samples and (form.start == "random") == (start == "random"):
                # Without noise, a perturbed start is the start at the unaries.
                change = self.change(form, replace(form, noise=False, start=start), "mean_iou")
                if change is not None:
                    yield change.mean > VISIBLE

    def noise_effect(self, start: str) -> str:
        """Return the effect of noise on the paper's form from a start, as the end of a sentence."""
        form, words = replace(self.reference, start=start), []
        for what, title in (("nll", "the negative log-likelihood of the votes"), ("mean_iou", "mean IoU")):
            without, given = (self.mean(replace(form, noise=noise), what) for noise in (False, True))
            if without is not None and given is not None:
                verb = "raises" if given.mean > without.mean else "lowers"
                words.append(f"{verb} {title} from {four_decimals(without.mean)} to {four_decimals(given.mean)}")
        return f": noise {' and '.join(words)}" if words else ""

    def _in_short(self, sizes: dict[str, float]) -> Iterator[tuple[str, str]]:
        """Yield the choices with the largest and smallest effect on mean IoU, and the best combination."""
        forms = [form for form in self.forms if form.n_samples == self.n_samples]
        means = {form: value for form in forms if (value := self.mean(form, "mean_iou")) is not None}
        if not means:
            return
        best = max(sorted(means), key=lambda form: means[form].mean)
        text = f"the best combination is {best} ({plus_minus(means[best])})"
        if len(sizes) > 1 and max(sizes.values()) >= VISIBLE:
            most, least = max(sizes, key=lambda word: sizes[word]), min(sizes, key=lambda word: sizes[word])
            text = f"{most.lower()} has the largest effect on mean IoU, {least.lower()} the smallest; {text}"
        yield "Summary", f"{text}."

    def _on_samples(self) -> Iterator[tuple[str, str]]:
        """Yield the mean IoU with the fewest samples, the paper's number and the most."""
        base = self.reference
        counts = sorted({self.counts[0], self.n_samples, self.counts[-1]})
        means = [(n, self.mean(replace(base, n_samples=n), "mean_iou")) for n in counts]
        known = [(n, value) for n, value in means if value is not None]
        if len(known) > 1:
            steps = ", ".join(f"{plus_minus(value)} with {_samples(n)}" for n, value in known)
            yield "Samples", f"mean IoU is {steps}."


def ablations(record: Record) -> list[Ablation]:
    """Return the ablations that were run, in the order of the catalogue."""
    there = {(cell.level, cell.model) for cell in record.ablation}
    return [
        Ablation(record, level, model)
        for model in record.models
        for level in record.levels
        if (level.name, model.name) in there
    ]


def noise_in_words(found: list[Ablation]) -> str | None:
    """Return a paragraph on what LocPMAP's noise does and when; None if the ablation did not vary it."""
    fixed, random = ([helps for cells in found for helps in cells.noise_helps(start)] for start in ("unary", "random"))
    if not fixed or not random:
        return None
    cells = found[0]
    return (
        "LocPMAP adds random noise to the score before each ascent, so that samples differ. From a fixed start, such "
        "as the unaries' argmax, all ascents without noise end in the same labels, and votes are certain even where "
        f"they are wrong{cells.noise_effect('unary')} ({cells.place}). From random starts, ascents differ even without "
        f"noise{cells.noise_effect('random')}. Over the whole ablation, noise raises mean IoU in {sum(fixed)} of "
        f"{len(fixed)} settings with a fixed or perturbed start, and in {sum(random)} of {len(random)} with a random "
        "start."
    )


def _samples(n: int) -> str:
    return "1 sample" if n == 1 else f"{n} samples"


def _effect(change: Estimate, larger_is_better: bool) -> str:
    if abs(change.mean) < VISIBLE:
        return "does not change"
    helps = (change.mean > 0) == larger_is_better
    verb = "improves" if helps else "worsens"
    sure = "" if change.error is None else f"{THIN}±{THIN}{four_decimals(change.error)}"
    doubt = change.errors is not None and abs(change.errors) < SURE
    return f"{verb} by {four_decimals(abs(change.mean))}{sure}{' (within two standard errors)' if doubt else ''}"
