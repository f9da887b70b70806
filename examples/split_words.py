"""Find the words in text without spaces: a CRF on chains, learned by three objectives.

Result: the exact likelihood of a chain is best, by a small margin. There are two labels (a word begins here or not).
The features of a site are the single letters around it. F1 of the beginnings in held-out text is

- 0.628 without edges (logistic regression),
- 0.646 by pseudolikelihood,
- 0.654 by the exact likelihood, which is the composite likelihood with the whole chain as one block.

The last gain over no edges is 0.026 ± 0.004. Half of it comes from the decoder: the best labelling of a chain contains
more beginnings than there are letters with p > 1/2. By p > 1/2 the chain gains 0.012. LocPMAP's probabilities are close
to the marginals: the negative log-likelihood is 0.315 compared with 0.314. Calibration adds nothing.

More labels need better learning and decoding. With ``--places 4`` (first, second, third, later letter) a label almost
determines its neighbours' labels. The exact likelihood gains 0.046 ± 0.005 (F1 0.707), but pseudolikelihood loses
0.088. It relies on the true labels of the neighbours and gives the letters about half the weight that they have without
edges. LocPMAP has to update whole chains (``blocks``: 0.688), since climbs over single sites stop too early (0.435).

Run ``python examples/split_words.py``. The text is the prose in the docstrings of Python's own modules, so no network
access is needed. Numbers vary slightly with the version of Python.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import locpmap as lp

# Modules whose docstrings are the text.
TRAINING = (
    "bdb codecs collections configparser decimal difflib doctest fileinput http.client http.server inspect logging"
    " pathlib pdb smtplib socketserver tarfile threading urllib.request"
)
CALIBRATION = "cmd optparse mailbox"
HELD_OUT = "argparse ast calendar random shutil statistics subprocess tempfile textwrap timeit zipfile"

PROSE = re.compile(r"[A-Z][A-Za-z ,;:.'()\"-]{40,}\.")  # a paragraph of sentences, without code or numbers
LENGTH = 80  # letters per chain
WHOLE = [list(range(LENGTH))]  # the chain as one block
WINDOW = np.arange(-3, 4)  # offsets of the letters that are features of a site
SURE = (0.25, 0.75)  # beginnings with a probability in this range are marked as uncertain
NO_EDGES, PSEUDO, EXACT = "no edges", "pseudolikelihood", "exact likelihood"


@dataclass(frozen=True)
class Text:
    """Text cut into N chains of LENGTH letters."""

    letters: np.ndarray  # (N, LENGTH) from 0 for "a" to 25 for "z"
    place: np.ndarray  # (N, LENGTH) position of the letter in its word, 0 where a word begins
    unary: np.ndarray  # (N, LENGTH, window · 26) one-hot letters around each site, also beyond the ends of the chain

    @property
    def begins(self) -> np.ndarray:
        """Whether a word begins at each letter, (N, LENGTH)."""
        return self.place == 0


@dataclass(frozen=True)
class Row:
    """One row of the table: the held-out text decoded by one model and one decoder."""

    model: str
    decoder: str
    begins: np.ndarray  # (N, LENGTH) from the labels
    probability: np.ndarray  # (N, LENGTH) of a beginning


def main(
    chains: Annotated[int, typer.Option(min=10, help="Maximum number of training chains of 80 letters.")] = 500,
    places: Annotated[int, typer.Option(min=2, max=8, help="Number of labels: positions of a letter in its word.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of LocPMAP's noise.")] = 0,
) -> list[Row]:
    """Learn to split words with and without a chain, and print a table and a few lines of text."""
    training, calibration, test = (cut(modules) for modules in (TRAINING, CALIBRATION, HELD_OUT))
    training = Text(training.letters[:chains], training.place[:chains], training.unary[:chains])
    rows = list(learn_and_decode(training, calibration, test, places, seed))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table(rows, training, test))
    console.print(f"\nHeld-out text; {EXACT} splits it with a blank where it is certain and with ? where it is not:")
    best = next(row for row in rows if (row.model, row.decoder) == (EXACT, "exact"))
    for n in range(0, len(test.letters), len(test.letters) // 4):
        certain = test.begins[n].astype(float)
        console.print(f"\n  true   {split(test.letters[n], certain)}", highlight=False, soft_wrap=True)
        console.print(f"  split  {split(test.letters[n], best.probability[n])}", highlight=False, soft_wrap=True)
    return rows


def cut(modules: str) -> Text:
    """Return the prose of the given modules as chains; letters that do not fill the last chain are dropped."""
    words = re.findall(r"[a-z]+", " ".join(p for name in modules.split() for p in prose(name)).lower())
    letters = np.frombuffer("".join(words).encode(), np.uint8) - ord("a")
    place = np.concatenate([np.arange(len(word)) for word in words])
    near = np.arange(len(letters))[:, None] + WINDOW
    inside = (near >= 0) & (near < len(letters))
    seen = np.eye(26, dtype=np.float32)[letters[near.clip(0, len(letters) - 1)]] * inside[:, :, None]
    n = len(letters) // LENGTH
    whole = slice(n * LENGTH)
    return Text(letters[whole].reshape(n, -1), place[whole].reshape(n, -1), seen[whole].reshape(n, LENGTH, -1))


def prose(name: str) -> list[str]:
    """Return the distinct paragraphs in the docstrings of a module and its public classes, methods and functions."""
    module = importlib.import_module(name)
    documented: list[Any] = [module]
    for key, item in sorted(vars(module).items()):
        if not key.startswith("_") and getattr(item, "__module__", None) == name:
            documented.append(item)
            if inspect.isclass(item):
                documented += [m for k, m in sorted(vars(item).items()) if not k.startswith("_") and callable(m)]
    paragraphs = (" ".join(p.split()) for d in documented for p in re.split(r"\n\s*\n", inspect.getdoc(d) or ""))
    return list(dict.fromkeys(p for p in paragraphs if PROSE.fullmatch(p)))


def learn_and_decode(training: Text, calibration: Text, test: Text, places: int, seed: int) -> Iterator[Row]:
    """Fit three models of the same letters and decode each exactly and by LocPMAP with three settings."""
    edges = np.stack([np.arange(LENGTH - 1), np.arange(1, LENGTH)], axis=1)
    models: dict[str, tuple[np.ndarray, str, Any]] = {
        NO_EDGES: (edges[:0], "pseudolikelihood", None),  # logistic regression
        PSEUDO: (edges, "pseudolikelihood", None),
        EXACT: (edges, "composite", WHOLE),  # one block of all sites: the likelihood itself
    }
    seeded = {"seed": seed}
    decoders: dict[str, tuple[str, dict[str, Any]]] = {
        "exact": ("exact", {}),
        "locpmap": ("locpmap", seeded),
        "locpmap, whole chain": ("locpmap", seeded | {"blocks": WHOLE}),
        "locpmap, calibrated": ("locpmap", seeded),
    }
    columns = (TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(models) * (1 + len(decoders)))
        for model, (wires, objective, blocks) in models.items():
            bar.update(task, description=f"{model}: fit")
            crf = lp.CRF(n_labels=places, features=None)
            labels = np.minimum(training.place, places - 1)
            features = lp.Features.graph(training.unary, wires)
            crf.fit(
                features,
                labels,
                objective,
                blocks=blocks,
                options=lp.learning.FitOptions(tolerance=1e-4, standard_errors=False),
            )
            for decoder, (method, options) in decoders.items():
                bar.update(task, advance=1, description=f"{model}: {decoder}")
                if decoder.endswith("calibrated"):  # last, since later decoders would use the new scale
                    held_out = np.minimum(calibration.place, places - 1)
                    crf.calibrate(lp.Features.graph(calibration.unary, wires), held_out, seed=seed, max_evaluations=20)
                result = crf.infer(lp.Features.graph(test.unary, wires), method, **options)
                yield Row(model, decoder, np.asarray(result.labels) == 0, np.asarray(result.probability)[..., 0])
            bar.update(task, advance=1)


def table(rows: list[Row], training: Text, test: Text) -> Table:
    """Return the table of F1, its gain from edges, and the negative log-likelihood."""
    title = f"Words in {test.begins.size:,} letters without spaces, learned from {training.begins.size:,}"
    caption = (
        f"F1: of the labels, ± one standard error over {len(test.begins)} chains.  gain: over no edges, ± the standard"
        " error of the paired difference.  p > ½: F1 if a word begins wherever its probability is above ½.  NLL:"
        " negative log-likelihood per letter, lower is better."
    )
    report = Table(title=title, caption=caption, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("learned by", "decoder", "F1", "gain", "p > ½", "NLL"):
        report.add_column(heading, justify="left" if heading in ("learned by", "decoder") else "right", no_wrap=True)
    for row in rows:
        score, error = f1(row.begins, test.begins)
        gain, gain_error = gain_over(rows[0], row, test)
        shown = "-" if row.model == NO_EDGES else f"{gain:+.3f} ± {gain_error:.3f}"
        likely, _ = f1(row.probability > 0.5, test.begins)
        values = (f"{score:.3f} ± {error:.3f}", shown, f"{likely:.3f}", f"{surprise(row, test):.4f}")
        report.add_row(row.model if row.decoder == "exact" else "", row.decoder, *values)
    return report


def f1(begins: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return F1 and its jackknife standard error over chains."""
    whole, without = f1_without_each(begins, truth)
    return whole, jackknife(without)


def gain_over(first: Row, second: Row, test: Text) -> tuple[float, float]:
    """Return the difference in F1 of the second row and its standard error."""
    whole, without = f1_without_each(first.begins, test.begins)
    other, other_without = f1_without_each(second.begins, test.begins)
    return other - whole, jackknife(other_without - without)


def f1_without_each(begins: np.ndarray, truth: np.ndarray) -> tuple[float, np.ndarray]:
    """Return F1 = 2 hits / (found + true) of all chains, and (N,) with each chain left out."""
    hits, both = (begins & truth).sum(axis=1), begins.sum(axis=1) + truth.sum(axis=1)
    return float(2 * hits.sum() / both.sum()), 2 * (hits.sum() - hits) / (both.sum() - both)


def jackknife(without: np.ndarray) -> float:
    """Return the standard error of a statistic from its N leave-one-out values."""
    return float(np.sqrt((len(without) - 1) * without.var()))


def surprise(row: Row, test: Text) -> float:
    """Return the mean negative log-likelihood per letter of the true beginnings."""
    p = row.probability.astype(np.float64)
    return float(-np.log(np.where(test.begins, p, 1 - p).clip(1e-6)).mean())


def split(letters: np.ndarray, probability: np.ndarray) -> str:
    """Return the letters with a blank before likely beginnings and a question mark before uncertain ones."""
    low, high = SURE
    marks = np.where(probability > high, " ", np.where(probability > low, "?", ""))
    return "".join(f"{mark}{chr(ord('a') + k)}" for mark, k in zip(marks, letters, strict=True)).strip()


if __name__ == "__main__":
    typer.run(main)
