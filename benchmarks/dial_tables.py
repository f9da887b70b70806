"""The paper's raw columns with the objective chosen on held-out images: `python -m benchmarks.dial_tables --record`.

Four objectives learn the paper's model of noisy intensities. LocPMAP's settings are chosen for each on held-out
images, and then the objective, by mean IoU. Test images are decoded once with the chosen weights and once with those
of the pseudolikelihood, by LocPMAP and by decoders of the paper. `benchmarks.dial_page` writes the table.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.dial_page import RECORD
from benchmarks.report import join_record
from locpmap.metrics import intersection_over_union
from locpmap_paper.experiments.decoders import DECODERS
from locpmap_paper.experiments.denoising import CALTECH, MNIST
from locpmap_paper.experiments.experiment import Case, Part
from locpmap_paper.experiments.model import Fitted
from locpmap_paper.experiments.normal import normal_form
from locpmap_paper.experiments.raw import RAW_MODELS

N_FIT, N_TUNING, N_TEST = 1000, 100, 300  # images
QUICK, N_SAMPLES = 10, 100  # samples for choosing, and of test images
TUNED = DECODERS["locpmap-tuned"]
OTHERS = ("icm", "icm-unary", "icm-iter", "lbp", "mean-field", "gibbs")
LEARNERS = {
    objective: replace(RAW_MODELS[0], name=objective, learning=objective)
    for objective in ("pseudolikelihood", "composite", "contrastive", "consistent")
}


def mean_iou(potentials: lp.Potentials, part: Part, seed: int, method: str, options: dict[str, Any]) -> float:
    """Return the mean IoU of both labels."""
    labels = lp.infer(potentials, method, seed=seed, device="cpu", **options).labels
    return float(np.mean(intersection_over_union(labels, part.truth, 2)))


def measure(case: Case) -> dict[str, Any]:
    """Return held-out IoU by objective, the chosen objective, and test IoU of decoders on its weights and on PL's."""
    held_out, test, seed = case.held_out.first(N_TUNING), case.test.first(N_TEST), case.seed_of("decoding")
    few = replace(case, fit=case.fit.first(N_FIT))
    fitted: dict[str, Fitted] = {}
    held, settings = {}, {}

    def potentials_of(name: str, part: Part) -> lp.Potentials:
        potentials = fitted[name].potentials(part.inputs)
        assert potentials is not None
        return normal_form(potentials)

    for name, model in LEARNERS.items():
        fitted[name] = model.fit(few, None, "cpu", lambda *_: None)  # type: ignore[arg-type]
        potentials = potentials_of(name, held_out)
        quick = [TUNED.options | choice | {"n_samples": QUICK} for choice in TUNED.choices]
        scores = [mean_iou(potentials, held_out, case.seed_of("tuning"), TUNED.method, one) for one in quick]
        held[name], settings[name] = max(scores), TUNED.choices[int(np.argmax(scores))]
    chosen = max(held, key=held.__getitem__)
    rows: dict[str, Any] = {}
    for name in dict.fromkeys(("pseudolikelihood", chosen)):
        potentials = potentials_of(name, test)
        options = TUNED.options | settings[name] | {"n_samples": N_SAMPLES}
        rows[name] = {"locpmap": mean_iou(potentials, test, seed, TUNED.method, options)}
        for other in (DECODERS[one] for one in OTHERS):
            rows[name][other.name] = mean_iou(potentials, test, seed, other.method, other.options)
    return {"held_out": held, "settings": settings, "chosen": chosen, "test": rows}


def cases(data: Path | None, done: dict[str, Any]) -> Iterator[tuple[str, Case]]:
    """Yield the cases that have no results, seed by seed."""
    loaded = [(experiment, experiment.load(data)) for experiment in (MNIST, CALTECH)]
    for seed in range(3):
        for experiment, maps in loaded:
            for level in experiment.levels:
                if f"{experiment.name}, {level}, {seed}" not in done:
                    yield f"{experiment.name}, {level}, {seed}", experiment.case(maps, level, seed)


def main(
    data: Annotated[Path | None, typer.Option(help="Folder of `locpmap data fetch`.")] = None,
    record: Annotated[bool, typer.Option(help="Add each case to the record; a later run continues.")] = False,
) -> None:
    """Measure two data sets at two noise levels with three seeds."""
    here, known = machine.machine(), json.loads(RECORD.read_text())
    found = known.get("tables", {}).get("cases", {}) if record else {}
    about: dict[str, Any] = {"n_fit": N_FIT, "n_tuning": N_TUNING, "n_test": N_TEST}
    about["origin"] = machine.provenance("benchmarks.dial_tables", 0, here)
    for name, case in cases(data, found):
        found[name] = measure(case)
        typer.echo(f"{name}: {found[name]}")
        if record:
            join_record(RECORD, "tables", {**about, "cases": found})


if __name__ == "__main__":
    typer.run(main)
