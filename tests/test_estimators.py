"""scikit-learn estimators: scikit-learn's own checks, logistic regression, graphs, images and all decoders."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import locpmap as lp
from locpmap.estimators import CRFClassifier, ImageCRF
from locpmap.inference.registry import DECODERS
from locpmap.learning import FitOptions

LABELLINGS_ONLY = {"icm", "annealing", "graph_cut", "max_product"}


def centred(weights):
    """Return weights that sum to 0 over classes; scikit-learn's single row for two classes is their difference."""
    if len(weights) == 1:
        weights = np.concatenate([-weights, weights]) / 2
    return weights - weights.mean(axis=0)


def weather(n_sites=60, noise=0.7):
    """Return features, labels and edges of a chain with two states, each of which lasts for several sites."""
    rng = np.random.default_rng(1)
    y = np.repeat(["calm", "rain", "calm", "rain", "calm", "rain"], n_sites // 6)
    X = (y == "rain")[:, None] + noise * rng.normal(size=(n_sites, 2))
    return X, y, chain(n_sites)


def chain(n_sites):
    return np.column_stack([np.arange(n_sites - 1), np.arange(1, n_sites)])


def noisy_images(n_images=8, side=2):
    """Return noisy images of square patches of two classes, and their label maps."""
    rng = np.random.default_rng(2)
    label_maps = np.where(rng.random((n_images, side, 3)) < 0.5, "sky", "sea").repeat(3, axis=1).repeat(3, axis=2)
    return (label_maps == "sky") + 0.3 * rng.normal(size=label_maps.shape), label_maps


# sites without edges


@parametrize_with_checks([CRFClassifier()])
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("l2", "weighted"), [(1.0, False), (10.0, True)])
def test_without_edges_the_model_is_logistic_regression(l2, n_classes, weighted):
    X, y = load_iris(return_X_y=True)
    X, y = X[y >= 3 - n_classes], y[y >= 3 - n_classes]
    weights = np.random.default_rng(0).integers(0, 3, len(y)) if weighted else None
    ours = CRFClassifier(l2=l2).fit(X, y, sample_weight=weights)
    theirs = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, centred(theirs.coef_), rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, centred(theirs.intercept_[:, None])[:, 0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    assert not ours.tables_.any()


def test_l2_of_zero_applies_no_penalty():
    X, y, _ = weather(noise=2.0)
    ours = CRFClassifier(l2=0).fit(X, y)
    np.testing.assert_allclose(ours.coef_, centred(LogisticRegression(C=1e9, tol=1e-10).fit(X, y).coef_), atol=1e-4)


@pytest.mark.parametrize("kind", [np.str_, object, np.int8, bool])
def test_predictions_have_the_dtype_of_the_labels(kind):
    X, y, _ = weather()
    labels = y.astype(kind) if kind in (np.str_, object) else (y == "rain").astype(kind)
    found = CRFClassifier().fit(X, labels).predict(X)
    assert found.dtype == labels.dtype
    assert (found == labels).mean() > 0.8


# sites with edges


def test_probabilities_on_a_graph_follow_the_documented_score():
    X, y, edges = weather()
    y = np.where(np.arange(len(y)) % 7 == 0, "snow", y)
    edge_features = np.random.default_rng(3).normal(size=(len(edges), 2))
    model = CRFClassifier(method="exact").fit(X, y, edges, edge_features)
    pairs, features = np.array([[1, 0], [1, 2]]), edge_features[:2]
    unary = X[:3] @ model.coef_.T + model.intercept_
    pairwise = np.einsum("ef,fab->eab", features, model.tables_)
    expected = np.zeros((3, 3))
    for labels in itertools.product(range(3), repeat=3):
        score = unary[range(3), labels].sum() + sum(pairwise[e, labels[a], labels[b]] for e, (a, b) in enumerate(pairs))
        expected[range(3), labels] += np.exp(score)
    expected /= expected.sum(axis=1, keepdims=True)
    found = model.predict_proba(X[:3], pairs, features)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(model.predict_variance(X[:3], pairs, features), expected * (1 - expected), rtol=1e-10)
    assert np.abs(model.tables_ - model.tables_.swapaxes(1, 2)).max() > 0.01  # so the order of the ends matters


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite", "likelihood", "consistent"])
def test_with_edges_the_model_equals_a_crf_of_the_same_objective(objective):
    X, y, edges = weather()
    blocks = np.arange(60).reshape(10, 6).tolist() if objective == "composite" else None
    model = CRFClassifier(0.25, objective=objective, blocks=blocks, random_state=5, n_samples=7, max_iter=20, tol=1e-6)
    model.fit(X, y, edges)
    crf, features = lp.CRF(2, features=None), lp.Features.graph(X, edges)
    # With two classes the penalty applies to their difference, as in scikit-learn.
    how: dict[str, Any] = {
        "blocks": blocks,
        "l2": 2 * 0.25,
        "seed": 5,
        "options": FitOptions(max_iterations=20, tolerance=1e-6),
    }
    crf.fit(features, (y == "rain").astype(int), objective, **how)
    np.testing.assert_array_equal(model.coef_.T, crf.weights[:-1])
    np.testing.assert_array_equal(model.tables_, crf.tables[0])
    result = crf.infer(features, "locpmap", n_samples=7, probability="conditional", seed=5)
    np.testing.assert_array_equal(model.predict_proba(X, edges), result.probability)
    np.testing.assert_array_equal(model.predict(X, edges), model.classes_[result.labels])


def test_tables_satisfy_the_requested_constraints():
    X, y, edges = weather()
    features = np.random.default_rng(3).normal(size=(len(edges), 2))
    tables = CRFClassifier(symmetric=True).fit(X, y, edges, features).tables_
    np.testing.assert_array_equal(tables, tables.swapaxes(1, 2))
    for non_negative in (False, True):  # labels that alternate along the chain
        model = CRFClassifier(potts=True, non_negative=non_negative).fit(X, np.tile(["calm", "rain"], 30), edges)
        assert (model.tables_ == 0).all() if non_negative else (np.diagonal(model.tables_[0]) < -0.1).all()


def test_edges_improve_the_score():
    X, y, edges = weather(noise=1.0)
    model = CRFClassifier(objective="likelihood", method="exact").fit(X, y, edges)
    assert model.score(X, y, edges=edges) > model.score(X, y) + 0.1
    weights = (model.predict(X, edges) == y).astype(float)
    assert model.score(X, y, sample_weight=weights, edges=edges) == 1


@pytest.mark.parametrize("method", sorted(DECODERS))
def test_every_decoder_can_be_selected_by_name(method):
    X, y, edges = weather(18)
    model = CRFClassifier(potts=True, non_negative=True, method=method, n_samples=3, random_state=0)
    model.set_params(options={"backend": "reference"}).fit(X, y, edges)
    few = X[:4], edges[:3]
    assert set(model.predict(*few)) <= {"calm", "rain"}
    if method in LABELLINGS_ONLY:
        with pytest.raises(ValueError, match=f"method='{method}' gives labels without probabilities"):
            model.predict_proba(*few)
    else:
        np.testing.assert_allclose(model.predict_proba(*few).sum(axis=1), 1, rtol=1e-6)


def test_a_configured_decoder_is_used_unchanged():
    X, y, edges = weather()
    model = CRFClassifier(method=lp.LocPMAP(n_samples=3, probability="votes"), random_state=0).fit(X, y, edges)
    thirds = model.predict_proba(X, edges) * 3
    np.testing.assert_allclose(thirds, np.round(thirds), atol=1e-6)


def test_predictions_are_reproducible_and_independent_of_threads():
    X, y, edges = weather(noise=1.0)
    model = CRFClassifier(n_samples=5).fit(X, y, edges)
    first = model.predict_proba(X, edges)
    np.testing.assert_array_equal(model.predict_proba(X, edges), first)
    np.testing.assert_array_equal(model.set_params(n_jobs=2).predict_proba(X, edges), first)
    seeds = {CRFClassifier(random_state=s).fit(X, y).seed_ for s in (3, 2**64 - 1, np.random.RandomState(0), None)}
    assert len(seeds) == 4
    assert {3, 2**64 - 1} < seeds


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2": -1}, "l2 is -1, expected a number at least 0"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"symmetric": "yes"}, "symmetric is 'yes', expected True or False"),
        ({"potts": float("nan")}, "potts is nan, expected True or False"),
        ({"non_negative": None}, "non_negative is None, expected True or False"),
        ({"options": "x"}, "options is 'x', expected a dictionary or None"),
        ({"objective": "x"}, "unknown objective 'x'"),
        ({"random_state": -1}, "random_state is -1, expected a whole number of at least 0"),
        ({"random_state": 2**64}, f"random_state is {2**64}, expected a whole number of at most {2**64 - 1}"),
        ({"random_state": "x"}, r"random_state is 'x', expected a whole number from 0 to 2\^64 - 1, None or a numpy"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"tol": -1.0}, "tol is -1"),
        ({"method": "gibs"}, "unknown method 'gibs': did you mean 'gibbs'"),
        ({"options": {"temprature": 1}}, "did you mean 'temperature'"),
        ({"n_samples": 0}, "n_samples is 0"),
        ({"objective": "pseudo"}, "unknown objective 'pseudo'"),
        ({"method": lp.LocPMAP(), "options": {"blocks": "rows"}}, "already configured"),
    ],
)
def test_errors_name_the_bad_parameter(parameters, message):
    X, y, edges = weather()
    with pytest.raises((ValueError, TypeError), match=message):
        CRFClassifier(**parameters).fit(X, y, edges)


def test_bad_edges_are_refused():
    X, y, edges = weather()
    with pytest.raises(ValueError, match="edge_features is given without edges"):
        CRFClassifier().fit(X, y, edge_features=np.ones((59, 1)))
    with pytest.raises(ValueError, match=r"^edges is given, expected none .* fitted without edges"):
        CRFClassifier().fit(X, y).predict(X, edges)
    with pytest.raises(ValueError, match=r"^edge_features is given, expected none"):
        CRFClassifier().fit(X, y).predict(X, edge_features=np.ones((59, 1)))
    with pytest.raises(ValueError, match=r"edges\[0\] is \(0, 60\)"):
        CRFClassifier().fit(X, y, [[0, 60]])
    with pytest.raises(ValueError, match="features constant, expected feature 0, feature 1"):
        CRFClassifier().fit(X, y, edges, np.ones((59, 2))).predict(X, edges)
    with pytest.raises(NotFittedError):
        CRFClassifier().predict(X, edges)


def test_a_fit_that_reaches_max_iter_warns():
    X, y, _ = weather()
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        CRFClassifier(max_iter=1).fit(X, y)


# images


def test_image_crf_fits_and_decodes_as_the_crf_does():
    images, label_maps = noisy_images()
    model = ImageCRF(l2=0.5, potts=True, tied=True, n_samples=4, random_state=3).fit(images, label_maps)
    crf = lp.CRF(2, potts=True, tied=True)
    crf.fit(images, (label_maps == "sky").astype(int), l2=0.5, options=lp.learning.FitOptions(standard_errors=False))
    np.testing.assert_array_equal(model.crf_.weights, crf.weights)
    np.testing.assert_array_equal(model.crf_.tables, crf.tables)
    result = crf.infer(images, n_samples=4, probability="conditional", seed=3)
    np.testing.assert_array_equal(model.predict(images), np.where(result.labels, "sky", "sea"))
    np.testing.assert_array_equal(model.predict_proba(images), result.probability)
    np.testing.assert_array_equal(model.predict_variance(images), result.variance)
    assert model.predict(images).dtype == label_maps.dtype
    assert model.score(images, label_maps) == np.mean(model.predict(images) == label_maps) > 0.8


def test_image_crf_uses_the_requested_objective():
    images, label_maps = noisy_images()
    model = ImageCRF(objective="composite", blocks="columns", symmetric=True).fit(images, label_maps)
    crf = lp.CRF(2, symmetric=True)
    crf.fit(
        images,
        (label_maps == "sky").astype(int),
        "composite",
        blocks="columns",
        options=lp.learning.FitOptions(standard_errors=False),
    )
    np.testing.assert_array_equal(model.crf_.tables, crf.tables)
    bounded = ImageCRF(potts=True, non_negative=True, options={"blocks": "rows"}).fit(images, label_maps)
    assert bounded.crf_.tables.min() >= 0 > ImageCRF(potts=True).fit(images, label_maps).crf_.tables.min()


def test_images_may_have_different_sizes():
    images, label_maps = noisy_images()
    sizes = [slice(0, 6 - n % 2) for n in range(len(images))]
    images, label_maps = ([x[s] for x, s in zip(xs, sizes, strict=True)] for xs in (images, label_maps))
    model = ImageCRF(n_samples=4, random_state=0).fit(images, label_maps)
    found = model.predict(images)
    assert isinstance(found, list)
    assert [x.shape for x in found] == [x.shape for x in images]
    assert [x.shape for x in model.predict_proba(images)] == [(*x.shape, 2) for x in images]
    right = sum((a == b).sum() for a, b in zip(found, label_maps, strict=True))
    assert model.score(images, label_maps) == right / sum(x.size for x in images)
    as_objects = np.empty(len(images), object)
    as_objects[:] = images
    assert model.score(as_objects, label_maps) == model.score(images, label_maps)


def test_lists_and_arrays_give_the_same_model():
    images, label_maps = noisy_images()
    models = [
        ImageCRF(random_state=0).fit(xs, ys) for xs, ys in ((images, label_maps), (list(images), list(label_maps)))
    ]
    np.testing.assert_allclose(models[0].crf_.weights, models[1].crf_.weights, rtol=1e-12)
    np.testing.assert_array_equal(models[0].predict(images), np.array(models[0].predict(list(images))))


def test_channels_of_images_can_be_scores():
    images, label_maps = noisy_images()
    scores = np.stack([-images, images], axis=-1)
    features = lp.ImageFeatures(pairwise=("constant",))
    model = ImageCRF(features, unary="scale", random_state=0).fit(scores, label_maps)
    assert model.crf_.features == lp.ImageFeatures(pairwise=("constant",), channels=2)
    np.testing.assert_array_equal(model.crf_.weights[:2], model.crf_.weights[0, 0] * np.eye(2))
    assert features.channels is None  # the caller's object is not modified
    assert model.score(scores, label_maps) > 0.8


@pytest.mark.parametrize("void", ["void", 255, -1])
def test_void_pixels_have_no_influence(void):
    images, label_maps = noisy_images()
    labels = label_maps.astype("<U4") if isinstance(void, str) else (label_maps == "sky").astype(int)
    cut = labels.copy()
    cut[:, :, :3] = void
    model = ImageCRF(ignore_label=void, random_state=0, tol=1e-9).fit(images, cut)
    alone = ImageCRF(random_state=0, tol=1e-9).fit(images[:, :, 3:], labels[:, :, 3:])
    np.testing.assert_allclose(model.crf_.weights, alone.crf_.weights, atol=1e-5)
    assert model.classes_.tolist() == alone.classes_.tolist()
    assert model.score(images, cut) == np.mean(model.predict(images)[:, :, 3:] == labels[:, :, 3:])
    cut[:] = void
    with pytest.raises(ValueError, match="no pixel has a label that counts"):
        model.score(images, cut)
    with pytest.raises(ValueError, match="expected at least two classes"):
        model.fit(images, cut)


def test_sample_weights_are_equivalent_to_repetitions():
    images, label_maps = noisy_images()
    weights = np.array([3, 0, 1, 1, 2, 1, 0, 1])
    weighted = ImageCRF(tol=1e-9).fit(images, label_maps, sample_weight=weights)
    repeated = ImageCRF(tol=1e-9).fit(images.repeat(weights, axis=0), label_maps.repeat(weights, axis=0))
    np.testing.assert_allclose(weighted.crf_.weights, repeated.crf_.weights, rtol=1e-6)
    np.testing.assert_allclose(weighted.crf_.tables, repeated.crf_.tables, rtol=1e-6, atol=1e-9)
    found = weighted.predict(images) == label_maps
    expected = np.average(found.mean(axis=(1, 2)), weights=weights)
    assert weighted.score(images, label_maps, sample_weight=weights) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, list])
def test_grid_search_over_images(kind):
    images, label_maps = (kind(values) for values in noisy_images())
    grid = {"l2": [1e6, 1.0]}
    search = GridSearchCV(ImageCRF(n_samples=4, random_state=0, tol=1e-3), grid, cv=2, error_score="raise")
    search.fit(images, label_maps, sample_weight=np.ones(len(images)))
    assert search.best_params_["l2"] == 1.0
    assert search.best_score_ > 0.8
    assert search.predict(images)[0].shape == label_maps[0].shape


def test_features_can_be_computed_by_the_caller():
    images, label_maps = noisy_images()
    features = lp.ImageFeatures()(images)
    model = ImageCRF(features=None, n_samples=4, random_state=0).fit(features, label_maps)
    own = ImageCRF(n_samples=4, random_state=0).fit(images, label_maps)
    np.testing.assert_array_equal(model.predict(features), own.predict(images))
    np.testing.assert_array_equal(own.predict(features), own.predict(images))  # features= is for images
    with pytest.raises(ValueError, match="Features of one input"):
        model.predict(lp.ImageFeatures()(images[0]))


def test_images_and_label_maps_of_wrong_shape_are_refused():
    images, label_maps = noisy_images()
    model = ImageCRF(n_samples=2)
    with pytest.raises(NotFittedError):
        model.predict(images)
    with pytest.raises(NotFittedError):
        model.score(images, label_maps)
    model.fit(images, label_maps)
    with pytest.raises(ValueError, match=r"images has shape \(6, 9\), expected \(N, H, W\) or a list"):
        model.predict(images[0])
    with pytest.raises(ValueError, match="label_maps holds 7 label maps, expected one for each of the 8 images"):
        model.fit(images, label_maps[1:])
    with pytest.raises(ValueError, match=r"label_maps holds the shape \(9,\), expected \(H, W\)"):
        model.fit(images[0], label_maps[0])
    with pytest.raises(ValueError, match="expected one shape, as images are an array"):
        model.fit(images, [label_maps[0][1:], *label_maps[1:]])
    with pytest.raises(ValueError, match=r"labels\[0\] has shape \(5, 9\)"):
        model.fit(list(images), [label_maps[0][1:], *label_maps[1:]])
    with pytest.raises(ValueError, match="label_maps is None"):
        model.fit(images, None)
    with pytest.raises(ValueError, match=r"label_maps holds the shape \(5, 9\), expected \(6, 9\)"):
        model.score(images, label_maps[:, 1:])
    with pytest.raises(ValueError, match="fractions or NaN"):
        model.fit(images, images)
    with pytest.raises(TypeError, match="images is a NoneType, expected an array or a list"):
        model.fit(None, label_maps)
    with pytest.raises(TypeError, match=r"ignore_label is \[\], expected one label or None"):
        ImageCRF(ignore_label=[]).fit(images, label_maps)
    with pytest.raises(TypeError, match="features is 'x', expected a function of an input"):
        ImageCRF(features="x").fit(images, label_maps)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="labels of different kinds"):
        model.fit(images, [np.array([["a", 1]], object)] * 8)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(images, label_maps, sample_weight=np.ones(3))


def test_tags_declare_three_dimensional_input():
    tags = ImageCRF().__sklearn_tags__()
    assert tags.input_tags.three_d_array
    assert not tags.input_tags.two_d_array


# both


@pytest.mark.parametrize("estimator", [CRFClassifier(), ImageCRF()], ids=lambda e: type(e).__name__)
def test_constructors_store_parameters_and_clones_are_equal(estimator):
    given = {name: object() for name in estimator.get_params()}
    made = type(estimator)(**given)
    assert vars(made) == given
    assert made.get_params() == given
    copy = clone(estimator.set_params(l2=3.0, options={"blocks": "rows"}))
    assert repr(copy) == repr(estimator)
    assert copy.get_params() == estimator.get_params()


def test_fitted_estimators_can_be_pickled():
    images, label_maps = noisy_images()
    model = ImageCRF(n_samples=4).fit(images, label_maps)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(images), model.predict_proba(images))
    X, y, edges = weather()
    sites = CRFClassifier(n_samples=4).fit(X, y, edges)
    again = pickle.loads(pickle.dumps(sites))
    np.testing.assert_array_equal(again.predict_proba(X, edges), sites.predict_proba(X, edges))
