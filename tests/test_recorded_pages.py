"""Pages contain the numbers of the benchmark records."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


PAGES = [
    "deciding_page",
    "dial_page",
    "fields_page",
    "guarantees_page",
    "arena.page",
    "samplers.page",
    "volume_intervals",
]


@pytest.mark.parametrize("name", PAGES)
def test_page_matches_the_record(name: str) -> None:
    page = pytest.importorskip(f"benchmarks.{name}")
    if not page.PAGE.exists():
        pytest.skip("the docs are not here")
    prose = page.PAGE.read_text()
    assert page.filled(prose, page.tables_of(json.loads(page.RECORD.read_text()))) == prose


def test_sentences_about_contrastive_learning_follow_from_the_record() -> None:
    """Check docs/mathematics.md."""
    page = pytest.importorskip("benchmarks.dial_page")
    record = json.loads(page.RECORD.read_text())
    rows = record["digits"]["rows"]
    for decoder in page.DECODERS:
        none, one, ten = (rows[name][decoder] for name in ("pseudolikelihood", "contrastive, 1", "contrastive, 10"))
        assert none["iou"] < one["iou"] < ten["iou"]
        assert none["nll"] > one["nll"] > ten["nll"]
    assert min(rows, key=lambda name: rows[name]["locpmap"]["nll"]) == "consistent"
    assert rows["consistent"]["locpmap"]["iou"] < rows["contrastive, 10"]["locpmap"]["iou"]
    valid = page.SHOWN[: page.SHOWN.index("climb, 1") + 1]
    for name, model in record["couplings"]["models"].items():
        errors = {method: row["coupling_rmse"] for method, row in model.items()}
        worst = max(errors[method] for method in valid if method in errors)
        assert min(errors[method] for method in ("climb, 10", "climb, rows, 10", "PMP", "LocPMAP")) > 1.5 * worst
        biased = [model[method]["coupling_mean_error"] for method in ("climb, 10", "climb, rows, 10", "consistent")]
        assert max(biased) < -0.04
        then = errors["LocPMAP, then 10"]
        assert then > 0.5 if "strong" in name else then <= worst
        seconds = {method: row["cpu_seconds"] for method, row in model.items()}
        assert min(seconds, key=seconds.__getitem__) == "pseudolikelihood"
        if "3 labels, strong" in name:
            for method in ("contrastive, 30", "contrastive, strips of 4, 4"):
                assert errors[method] == pytest.approx(0.5 * errors["pseudolikelihood"], rel=0.15)


def test_sentences_about_the_chosen_objectives_follow_from_the_record() -> None:
    page = pytest.importorskip("benchmarks.dial_page")
    cases = json.loads(page.RECORD.read_text())["tables"]["cases"]
    assert len(cases) == 8
    digits, noisy, *silhouettes = page.columns(cases).values()
    assert digits["gain"] > digits["error"]
    assert digits["lead"] > digits["lead_error"]
    assert noisy["gain"] < -noisy["error"]
    assert (noisy["decoder"], noisy["lead"] < -noisy["lead_error"]) == ("lbp", True)
    for one in silhouettes:
        assert one["gain"] > one["error"]
        assert abs(one["lead"]) < one["lead_error"]
    for seed in (0, 1):
        held_out = cases[f"mnist, amplitude, {seed}"]["held_out"]
        assert held_out["contrastive"] > held_out["pseudolikelihood"]


def test_sentences_about_volumes_follow_from_the_record() -> None:
    """Check docs/volumes.md."""
    page = pytest.importorskip("benchmarks.volume_intervals")
    record = json.loads(page.RECORD.read_text())[page.DATASET]
    rows, gains = record["rows"], record["pixels"]
    for name in page.QUANTITIES:
        fitted, bundled, *others = (rows[kind][name] for kind in (page.FITTED, page.BUNDLED, page.SOFTMAX, page.SCALED))
        assert max(one["coverage"] for one in others) < 0.15
        assert bundled["coverage"] > 0.97
        assert fitted["width"] < 0.6 * bundled["width"]
        share = 0.7 if name == "volume" else 1 / 6
        assert max(fitted["crps"], bundled["crps"]) < share * min(one["crps"] for one in others)
        assert fitted["crps"] > bundled["crps"]
    assert 0.87 < rows[page.FITTED]["volume"]["coverage"] < 0.935
    assert rows[page.FITTED]["surface"]["coverage"] < 0.8
    assert 145 < rows[page.FITTED]["volume"]["mean error"][0] < 155
    assert gains[page.FITTED]["NLL"][0] < -2 * gains[page.FITTED]["NLL"][1]
    assert gains[page.FITTED]["ECE"][0] > 2 * gains[page.FITTED]["ECE"][1]
    assert abs(gains[page.BUNDLED]["IoU"][0]) < 1e-4
    assert {round(fold["network"]["test"]["mean_iou"], 2) for fold in record["folds"]} == {0.84, 0.86}
    stack = json.loads(page.RECORD.read_text())[page.STACK]
    rows, between = stack["rows"], stack["volume - slices"]["fitted"]
    assert [round(number, 4) for number in between["IoU"]] == [0.0046, 0.0004]
    assert abs(between["NLL"][0]) < 2 * between["NLL"][1]
    for kind in ("slices, fitted", "volume, fitted"):
        (iou, error), (nll, its_error) = (rows[kind]["gains"][name] for name in ("IoU", "NLL"))
        assert iou > 3 * error
        assert nll < -3 * its_error
    assert rows["volume, fitted"]["surface"]["coverage"] < rows["slices, fitted"]["surface"]["coverage"] < 0.75
    assert 0 < rows["slices, fitted"]["surface"]["mean error"][0] < rows["volume, fitted"]["surface"]["mean error"][0]
    assert min(rows[kind]["volume"]["coverage"] for kind in ("slices, fitted", "volume, fitted")) > 0.9
    assert min(rows[kind]["gains"]["NLL"][0] for kind in ("slices, bundled", "volume, bundled")) > 0


def test_sentences_about_annotators_follow_from_the_record() -> None:
    """Check docs/whole-maps.md."""
    record = json.loads(pytest.importorskip("benchmarks.fields_page").ANNOTATORS.read_text())
    for name in ("vessels", "boundaries"):
        alone, bundled, fitted = (
            record[name]["rows"][kind] for kind in ("independent pixels", "lp.refine, bundled", "lp.refine, fitted")
        )
        assert alone["coverage of areas"] < 0.05
        assert min(bundled["coverage of areas"], fitted["coverage of areas"]) >= 0.865
        assert alone["distance"] < min(bundled["distance"], fitted["distance"])
        assert round(fitted["annotators"], 2) == {"boundaries": 0.33, "vessels": 0.2}[name]
    assert abs(fitted["diversity"] - fitted["annotators"]) < 0.005
    vessels = record["vessels"]["rows"]["lp.refine, fitted"]
    assert vessels["coverage of areas"] == 1.0
    assert vessels["diversity"] < 0.75 * vessels["annotators"]


def test_readme_has_the_numbers_of_the_records() -> None:
    readme, records = (ROOT / "README.md").read_text(), ROOT / "benchmarks/results"
    decided, guaranteed, sampled, timed = (
        json.loads((records / f"{name}.json").read_text()) for name in ("deciding", "guarantees", "fields", "refining")
    )
    rows = {
        "`lp.refine`, fitted": "lp.refine",
        "pydensecrf2, tuned": "pydensecrf2, tuned",
        "RankSEG": "network: RankSEG, IoU",
        '`decide("iou")` on the network': "network: IoU per image",
        '`decide("iou")` on `lp.refine`': "lp.refine: IoU per image",
    }
    names = ("stanford", "msrc", "nuclei", "silhouettes")
    alone = [decided[name]["rows"]["network: argmax"]["values"]["IoU per image"] for name in names]
    assert f"most probable labels | {' | '.join(f'{value:.3f}'[1:] for value in alone)} |" in readme
    for begins, row in rows.items():
        gains = [decided[name]["rows"][row]["gains"]["IoU per image"] for name in names]
        shown = [f"{gain:+.3f} ± {error:.3f}".replace("0.", ".").replace("-", "−") for gain, error in gains]
        line = next(line for line in readme.splitlines() if line.startswith(f"| {begins}"))
        assert [cell.strip() for cell in line.split("|")[2:-1]] == shown
    decisions = [decided[name]["rows"]["network: IoU per image"]["gains"]["IoU per image"][0] for name in names]
    eight, many = (f"{gain:+.2f}".replace("0.", ".") for gain in decisions[:2])
    text = " ".join(readme.split())
    assert f"IoU per image {eight} with 8 labels, {many} with 21" in text

    def span(values: list[float]) -> str:
        return f"{100 * min(values):.0f} to {100 * max(values):.0f} %"

    covered = [guaranteed[name]["rows"]["area"]["coverage"] for name in names]
    assert f"[coverage](docs/guarantees.md) of {span(covered)} on the same data sets" in text
    fitted, alone = (
        [sampled[name]["rows"][row]["coverage"] for name in names]
        for row in ("lp.refine, fitted", "independent pixels")
    )
    areas, independent = ([one["area whole"] for one in rows] for rows in (fitted, alone))
    assert f"contain a label's area in {span(areas)} of the cases on four data sets" in text
    assert f"those of independent pixels in {span(independent)}" in text
    assert f"perimeters: {span([one['perimeter'] for one in fitted])}" in text
    ours, theirs = (timed["speed"]["medians"][name] for name in ("lp.refine", "pydensecrf2"))
    own = f"{ours['seconds']:.2f} s on two cores ({ours['cpu_seconds']:.2f} s of processor time)"
    assert f"takes {own}, and pydensecrf2 with 10 iterations {theirs['seconds']:.2f} s on one" in text


def gains_of(page: Any, cells: dict[str, Any], method: str, measure: str) -> list[float]:
    """Return the sizes of the gains of the networks that a method improves, in increasing order."""
    gains = [cell["methods"][method]["gains"][measure] for cell in cells.values()]
    return sorted(abs(gain) for gain, error in gains if page.verdict(gain, error, measure) > 0)


def test_sentences_about_other_networks_follow_from_the_record() -> None:
    """Check the counts in README.md, docs/refining.md and docs/arena.md."""
    page = pytest.importorskip("benchmarks.arena.page")
    methods = pytest.importorskip("benchmarks.arena.methods")
    cells = json.loads(page.RECORD.read_text())["cells"]
    found = {measure: page.counts(cells, methods.DEFAULT, measure) for measure in page.JUDGED}
    assert len(cells) == 22
    assert found["IoU"] == (10, 12, 0)
    assert found["NLL"] == (9, 13, 0)
    assert {worse for _, _, worse in found.values()} == {0}
    words = " ".join(page.PAGE.read_text().split())
    refining = " ".join((ROOT / "docs/refining.md").read_text().split())
    for name, measure, verb in (
        (methods.DEFAULT, "IoU", "raises the IoU of 10 networks by {:.3f} to {:.3f} (median {:.3f})"),
        (methods.DEFAULT, "NLL", "lowers the NLL of 9 by {:.3f} to {:.3f} (median {:.3f})"),
        (methods.TUNED, "IoU", "raises the IoU of 10 networks by {:.3f} to {:.3f}"),
    ):
        sizes = gains_of(page, cells, name, measure)
        assert verb.format(sizes[0], sizes[-1], statistics.median(sizes)) in words
    every = [gains_of(page, cells, methods.DEFAULT, measure) for measure in found]
    ends = [f"{sizes[0]:.3f} to {sizes[-1]:.3f}" for sizes in every]
    assert "IoU rises by {0}, the boundary IoU by {1}, and the NLL falls by {3}".format(*ends) in refining
    fitted = {
        measure: page.counts(cells, methods.FITTED.format("all"), measure, "gains_on_scaled") for measure in page.JUDGED
    }
    assert fitted["NLL"][0] == 14
    harm = {measure: worse for measure, (_, _, worse) in fitted.items() if worse}
    assert harm == {"boundary IoU": 1, "ECE": 2}
    gains = [
        cells[name]["methods"][methods.FITTED.format("all")]["gains_on_scaled"] for name in cells if "hippo" in name
    ]
    words = " ".join(page.PAGE.read_text().split())
    assert f"The boundary IoU of the U-Net falls by {-gains[0]['boundary IoU'][0]:.3f}" in words
    assert "Both ECEs rise, by {:.4f} and {:.4f}".format(*(one["ECE"][0] for one in gains)) in words
    readme = " ".join((ROOT / "README.md").read_text().split())
    gains = [cell["methods"][methods.DEFAULT]["gains"]["IoU"] for cell in cells.values()]
    better = [f"{gain:.3f}"[1:] for gain, error in sorted(gains) if gain > 2 * error]
    assert f"the mean IoU rises in {len(better)}, by {better[0]} to {better[-1]} |" in readme
    assert "neither the IoU nor the likelihood of any combination falls by more than two standard errors" in readme
    first = {measure: page.first_in(cells, measure) for measure in ("IoU", "NLL")}
    assert (
        f"On {len(cells) - first['IoU']['ours']} of the 22, another tool has a higher IoU than all variants" in readme
    )
    above = [
        any(row["values"]["IoU"] > cell["methods"][methods.DEFAULT]["values"]["IoU"] for row in others)
        for cell in cells.values()
        for others in [[row for name, row in cell["methods"].items() if name not in methods.OURS]]
    ]
    assert f"On {sum(above)} of the 22 combinations, another method has a higher IoU than `lp.refine` alone" in readme
    assert (first["IoU"]["ours"], first["NLL"]["ours"], first["NLL"][methods.TUNED]) == (15, 15, 1)
    assert f"Vector scaling has the best likelihood on {first['NLL'][methods.VECTOR]}." in readme
    better, _, worse = page.counts(cells, methods.TUNED, "IoU")
    assert f"tuned on held-out images, improves the mean IoU of {better} and makes that of {worse} worse" in readme


def test_fits_help_on_images_of_other_kinds() -> None:
    page, methods = (pytest.importorskip(f"benchmarks.arena.{name}") for name in ("page", "methods"))
    cells = json.loads(page.RECORD.read_text())["shifted"]
    assert len(cells) == 12
    for name in (methods.FITTED.format("all"), methods.FITTED.format(20)):
        found = {measure: page.counts(cells, name, measure, "gains_on_scaled") for measure in page.JUDGED}
        assert found["NLL"][0] > 6
        assert all(found[measure][2] == 0 for measure in page.JUDGED if measure != "ECE")
    fitted = {key: cell["methods"][methods.FITTED.format("all")] for key, cell in cells.items()}
    raised = [fitted[f"nuclei-{key}"]["gains_on_scaled"]["ECE"][0] for key in ("pyramid-8", "linear-16")]
    assert "by {:.3f} and {:.3f}: how confident".format(*raised) in " ".join(page.PAGE.read_text().split())


def test_pydensecrf_page_follows_from_the_records() -> None:
    """Check the tables, and the counts of better and worse networks."""
    ours = pytest.importorskip("benchmarks.coming_from_pydensecrf")
    page, methods = (pytest.importorskip(f"benchmarks.arena.{name}") for name in ("page", "methods"))
    if not ours.PAGE.exists():
        pytest.skip("the docs are not here")
    prose, record = ours.PAGE.read_text(), json.loads(ours.RECORD.read_text())
    assert ours.measured(record) in prose
    for case in record["timed"].values():
        assert case["systems"]["locpmap.compat.densecrf"]["ratio"] < 1
        assert case["systems"]["locpmap.compat.densecrf"]["agreement"] >= 0.98
        if "lp.refine" in case["systems"]:
            assert case["systems"]["lp.refine"]["ratio"] > 1
            assert case["systems"]["lp.refine"]["accuracy"] < case["systems"]["pydensecrf2"]["accuracy"]
    assert {row["least"] for row in list(record["agreement"].values())[1]["rows"]} == {1}
    cells = json.loads(page.RECORD.read_text())["cells"]
    dense, refined = (
        {measure: page.counts(cells, name, measure) for measure in ("NLL", "IoU")}
        for name in (methods.USUAL, methods.DEFAULT)
    )
    assert (dense["NLL"][2], dense["IoU"][2], len(cells)) == (22, 13, 22)
    assert (refined["NLL"], refined["IoU"]) == ((9, 13, 0), (10, 12, 0))
    words = " ".join(prose.split())
    assert "raises the NLL of 22 and lowers the [IoU](glossary.md#iou) of 13" in words
    assert "`lp.refine` lowers the NLL of 9 and raises the IoU of 10 (by 0.002 to 0.036)" in words
    tuned = {measure: page.counts(cells, methods.TUNED, measure) for measure in ("NLL", "IoU")}
    assert (tuned["NLL"][0], tuned["NLL"][2], tuned["IoU"][0], tuned["IoU"][2]) == (9, 5, 10, 9)
    equal = [100 * row["agreement"] for row in next(iter(record["agreement"].values()))["rows"]]
    assert f"{min(equal):.1f} to {max(equal):.1f} % of its labels are equal" in words
    compat, refine = (
        [case["systems"][name]["ratio"] for case in record["timed"].values() if name in case["systems"]]
        for name in ("locpmap.compat.densecrf", "lp.refine")
    )
    assert f"takes {min(compat):.2f} to {max(compat):.2f} times as long" in words
    assert f"`lp.refine` takes {min(refine):.1f} to {max(refine):.1f} times as long" in words
    scene = [f"{100 * row['accuracy']:.1f}" for row in record["timed"]["T2-hard"]["systems"].values()]
    assert "({2} % against {0} and {1} %)".format(*scene) in words
    other = json.loads((ROOT / "benchmarks/results/refining.json").read_text())
    rows = [
        (record["provenance"]["machine"], 5, record["timed"]["T3-hard"]["systems"]),
        (other["origin"]["machine"], other["speed"]["iterations"], other["speed"]["medians"]),
    ]
    for where, updates, systems in rows:
        times = [
            f"{systems[name]['seconds']:.2f} ({systems[name]['cpu_seconds']:.2f})"
            for name in ("pydensecrf2", "lp.refine")
        ]
        assert f"load {where['load']} | {updates} | {' | '.join(times)} |" in words


def test_sentences_about_samplers_follow_from_the_record() -> None:
    page = pytest.importorskip("benchmarks.samplers.page")
    record = json.loads(page.RECORD.read_text())
    cases = record["random"]["cases"]
    last = {
        case: {name: row["error"][-1] for name, row in one["samplers"].items() if row["error"][-1] is not None}
        for case, one in cases.items()
    }
    hard = [case for case, one in cases.items() if one["side"] == 20]
    assert len(hard) == 2
    strips = "Gibbs, strips of 8"
    good = {name for name in last[hard[0]] if all(last[case][name] < page.TARGET for case in hard)}
    assert good == {strips}
    assert all(
        cases[case]["budgets"][-1] == 10 and not cases[case]["samplers"][strips]["not_mixed"][-1] for case in hard
    )
    for case, errors in last.items():  # LocPMAP is behind the best sampler, and does not improve with time
        ours = {name: error for name, error in errors.items() if name.startswith("LocPMAP")}
        assert min(ours.values()) > 2 * min(errors.values())
        for name in ours:
            first, *_, end = cases[case]["samplers"][name]["error"]
            assert end > 0.8 * first
    strong = "attractive, strong: 0 to 5"
    assert min(last[strong], key=last[strong].__getitem__) == "Swendsen-Wang"
    assert cases[strong]["samplers"][strips]["not_mixed"][-1]
    helped = {case for case, errors in last.items() if errors["Gibbs, trees, 8 temperatures"] < errors["Gibbs, trees"]}
    assert helped == {strong, *hard}


def test_time_of_volumes_on_a_gpu_is_the_recorded_one() -> None:
    page = ROOT / "docs/volumes.md"
    if not page.exists():
        pytest.skip("the docs are not here")
    record = json.loads((ROOT / "benchmarks/results/volumes.json").read_text())
    found = record["256³ × 4 × 50, 6 neighbours, cuda"]
    text = " ".join(page.read_text().split())
    copied = f"and {found['seconds']:.2f} s if the scores are copied there"
    assert f"50 samples takes {found['seconds of tensors']:.2f} s on an H200, {copied}" in text


def test_sentences_about_learned_models_and_thrml_follow_from_the_record() -> None:
    page = pytest.importorskip("benchmarks.samplers.page")
    record = json.loads(page.RECORD.read_text())
    cases = record["learned"]["cases"]
    last = {case: {name: row["error"][-1] for name, row in one["samplers"].items()} for case, one in cases.items()}
    ours = [name for name in next(iter(last.values())) if name.startswith("LocPMAP")]
    assert all(errors[name] > 10 * errors["Gibbs, strips of 8"] for errors in last.values() for name in ours)
    ratios = [
        last[f"{data}, pseudolikelihood"][name] / last[f"{data}, consistent"][name]
        for data in ("digits", "silhouettes")
        for name in ours
    ]
    assert [round(end, 1) for end in (min(ratios), max(ratios))] == [2.4, 5.1]
    updates = json.loads((ROOT / "benchmarks/results/updates.json").read_text())
    one, four = (updates[f"256², {n} chains, cpu"]["updates per CPU nanosecond"] for n in (1, 4))
    gpu = updates["256², 64 chains, cuda"]["updates per nanosecond"]
    ratios = [round(rates["THRML"] / rates["lp.Gibbs"], 1) for rates in (one, four, gpu)]
    assert ratios == [0.7, 1.6, 2.1]
    four = updates["256², 4 chains, cpu"]["updates per nanosecond"]
    assert round(four["THRML"] / four["lp.Gibbs"], 1) == 2.6
    said = "THRML is slower with one chain, and faster with several: 1.6 times with four chains on the CPU, and twice"
    assert said in " ".join(page.PAGE.read_text().split())
