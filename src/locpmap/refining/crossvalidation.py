"""Training of a refiner, with a cross-validated report on whether it helps."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import numpy as np

from locpmap.arrays import Restore
from locpmap.errors import InputError, whole_number
from locpmap.formats.pictures import widest_slice
from locpmap.inference import LocPMAP
from locpmap.kernels.threads import available_threads
from locpmap.potentials import Potentials
from locpmap.refining.decided import Confusions, Gain, Judged, checked_objective, confusions
from locpmap.refining.examples import VOID, Example
from locpmap.refining.fitting import learn, sentence_about
from locpmap.refining.fitting_samples import N_STEPS, START, SampleWeights, drawn
from locpmap.refining.groups import places_of, totals_of_groups
from locpmap.refining.map_scores import MapScore, map_score
from locpmap.refining.prepared import Prepared
from locpmap.refining.report import ALONE, NETWORK, REFINED, SAMPLED, SCALED, Illustration, Report
from locpmap.refining.scoring import Score, score, softmax, total
from locpmap.refining.weights import Weights

N_SAMPLES = 19  # the fewest from which 90 % intervals can be estimated without bias
MAX_SAMPLED = 24  # images whose samples are scored
N_SHOWN = 4  # samples in the picture


@dataclass(frozen=True, eq=False)
class Held:
    """Entries of the report for one image."""

    scores: dict[str, Score]  # of probabilities, by row
    maps: dict[str, MapScore]  # of samples, by row; empty if they are not scored
    illustration: Illustration


def cross_validated(
    examples: Sequence[Example],
    n_folds: int,
    seed: int,
    prior: SampleWeights = START,
    progress: Callable[[int, int, float], None] | None = None,
    objective: str | None = None,
) -> tuple[Weights, Report]:
    """Return weights learned from all examples, and a report of held-out scores.

    Each example is scored with weights learned without its fold, which consists of whole groups. ``progress`` is called
    with the number of steps done, the number of steps, and the current loss: that of `fit_samples` while weights are
    learned, and the mean negative log-likelihood per pixel while examples are scored. With an objective, the report
    states the gain from deciding for it.
    """
    objective = checked_objective(objective)
    n_folds = whole_number("n_folds", n_folds, 2)
    labelled = [example for example in examples if (example.labels != VOID).any()]
    members = places_of([example.group for example in labelled])
    unit = "images" if len(members) == len(labelled) else "groups"
    if len(members) < n_folds:
        raise InputError(f"the number of {unit} with labels is {len(members)}, expected at least n_folds={n_folds}")
    order = np.array_split(np.random.default_rng(seed).permutation(len(members)), n_folds)
    folds = [np.concatenate([members[group] for group in fold]) for fold in order]
    done, n_steps = count(1), (n_folds + 1) * N_STEPS + len(labelled)

    def report(value: float) -> None:
        if progress is not None:
            progress(next(done), n_steps, value)

    weights_of_all = learn(labelled, seed, prior, progress=report)
    found: list[Held] = []
    decided: list[Confusions] = []
    with ThreadPoolExecutor(available_threads()) as pool:
        for number, fold in enumerate(folds, start=1):
            rest = [example for n, example in enumerate(labelled) if n not in set(fold.tolist())]
            weights = learn(rest, seed, prior, progress=report)
            n_sampled = sum(bool(one.maps) for one in found)
            waiting = [
                pool.submit(held_out, labelled[n], weights, seed, sampled=place < MAX_SAMPLED * number // n_folds)
                for place, n in enumerate(fold, start=n_sampled)
            ]
            judged: list[Judged] = []
            for one in waiting:
                held, image = one.result()
                found.append(held)
                judged += [] if objective is None else [image]
                report(total([each.scores[REFINED] for each in found]).nll)
            decided += [] if objective is None else confusions(objective, judged)
    groups = [labelled[n].group for fold in folds for n in fold]
    scores = {row: totals_of_groups([one.scores[row] for one in found], groups) for row in (NETWORK, SCALED, REFINED)}
    maps = {row: [one.maps[row] for one in found if one.maps] for row in (ALONE, SAMPLED)}
    gain = None if objective is None else Gain(objective, decided, groups)
    volumes = examples[0].given.spacing is not None
    learned = sentence_about(weights_of_all)
    return weights_of_all, Report(scores, maps, found[0].illustration, gain, unit, volumes, learned)


def held_out(example: Example, weights: Weights, seed: int, *, sampled: bool) -> tuple[Held, Judged]:
    """Score an example with weights that were learned without it; with ``sampled``, also its samples."""
    scaled = np.float32(weights.scales[0]) * example.scores
    prepared = Prepared.of(example.given, weights, stride=example.stride)
    result = prepared.refine(LocPMAP(N_SAMPLES, start="perturbed", keep_samples=True), seed=seed)
    whole, truth, n_labels = Restore()(result.samples), example.labels, scaled.shape[-1]
    network, refined = scaled.argmax(-1), Restore()(result.labels)
    scores = {NETWORK: score(softmax(example.scores), truth), SCALED: score(softmax(scaled), truth)}
    scores[REFINED] = score(Restore()(result.probability), truth, refined)
    maps = {}
    if sampled:
        rows = Potentials.grid(scaled.reshape(len(scaled), -1, n_labels), 0.0)  # a volume, too: pixels are independent
        alone = drawn(rows, LocPMAP(N_SAMPLES, start="perturbed"), 0, seed)
        maps = {
            ALONE: map_score(alone.reshape(-1, *truth.shape), truth, n_labels),
            SAMPLED: map_score(whole, truth, n_labels),
        }
    image = None if example.given.image is None else Restore()(example.given.image)[0]
    shown = Illustration(image, network, refined, truth, whole[:N_SHOWN])
    held = Held(scores, maps, shown if truth.ndim == 2 else shown.plane(widest_slice(refined, 0)))
    return held, Judged(refined, Restore()(result.probability).astype(np.float16), truth)
