"""Hypothesis strategies for graphs and models."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from tests.oracles.models import KINDS, random_tables, random_unary

from locpmap.graphs import Graph
from locpmap.potentials import Potentials


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph of up to nine sites with edges in any order and either direction."""
    n_sites = draw(st.integers(1, 9))
    pairs = [(i, j) for i in range(n_sites) for j in range(i)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    oriented = [(j, i) if draw(st.booleans()) else (i, j) for i, j in chosen]
    return Graph(n_sites, oriented)


@st.composite
def models(draw: st.DrawFn) -> Potentials:
    """Draw a graph of up to nine sites and four labels with any kind of table and some forbidden labels and pairs."""
    graph = draw(graphs())
    n_labels, kind = draw(st.integers(1, 4)), draw(st.sampled_from(KINDS))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    unary = random_unary((graph.n_sites,), n_labels, draw(st.sampled_from([0.0, 0.3])), rng)
    tables = random_tables(kind, (len(graph.edges()),), n_labels, 2.0, rng)
    if draw(st.booleans()):
        tables = np.where(rng.random(tables.shape) < 0.1, -np.inf, tables)
    return Potentials.graph(unary, graph, tables)
