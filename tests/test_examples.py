"""The worked examples run, and the conclusions in their headers also hold in smaller settings."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the examples need the extra [demo]")
pytest.importorskip("skimage", reason="the examples need the extra [demo]")

from examples import split_words, superpixels


def test_a_chain_beats_independent_letters(capsys):
    rows = {(row.model, row.decoder): row for row in split_words.main(chains=60, places=2, seed=0)}
    test = split_words.cut(split_words.HELD_OUT)
    alone = rows[split_words.NO_EDGES, "exact"]
    chain = rows[split_words.EXACT, "exact"]
    gain, error = split_words.gain_over(alone, chain, test)
    assert gain > 2 * error
    assert split_words.surprise(chain, test) < split_words.surprise(alone, test)
    # Without edges LocPMAP's conditional probabilities are the marginals.
    assert abs(rows[split_words.NO_EDGES, "locpmap"].probability - alone.probability).max() < 1e-5
    assert "Held-out text" in capsys.readouterr().out


def test_a_space_precedes_every_first_letter():
    assert split_words.split(np.array([0, 1, 2, 3]), np.array([0.9, 0.0, 0.5, 1.0])) == "ab?c d"
    text = split_words.cut("textwrap")
    words = set(re.findall("[a-z]+", " ".join(split_words.prose("textwrap")).lower()))
    line = split_words.split(text.letters[0], text.begins[0].astype(float)).split()
    assert set(line[:-1]) <= words  # the end of a chain may cut its last word


def test_consistent_learning_reduces_the_loss_of_pseudolikelihood_on_superpixels(tmp_path, capsys):
    rows = {row.name: row for row in superpixels.main(superpixels=600, seed=0, out=tmp_path)}
    found = superpixels.regions(superpixels.photograph(), 600)
    boxes = superpixels.held_out_boxes(found, superpixels.marked(superpixels.MARKED, found.of_pixel))
    loss = {name: superpixels.surprise(row, boxes) for name, row in rows.items()}
    repaired = loss["pseudolikelihood"] - loss["consistent"]
    assert repaired.mean() > 2 * superpixels.standard_error(repaired)
    gain = loss["no edges"] - loss["consistent, marks kept"]
    assert gain.mean() > 2 * superpixels.standard_error(gain)
    assert (tmp_path / "superpixels.png").stat().st_size > 100_000
    assert "held-out boxes" in capsys.readouterr().out


def test_held_out_boxes_share_no_pixel_with_training_marks():
    taken = set()
    for _, top, bottom, left, right in superpixels.MARKED:
        taken |= {(y, x) for y in range(top, bottom) for x in range(left, right)}
    for _, top, bottom, left, right in superpixels.HELD_OUT:
        assert not taken & {(y, x) for y in range(top, bottom) for x in range(left, right)}
