"""The viewer's API: access control, responses, uploads, caching and bad requests."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp

pytest.importorskip("httpx2", reason="httpx2 is not installed")

from starlette.testclient import TestClient

from locpmap.formats import label_colours, pictures
from locpmap.refining.weights import Weights
from locpmap_viewer import app as viewer_app
from locpmap_viewer import colours, scenes, session
from locpmap_viewer.decoding import METHODS, USED, Decoding, Settings
from locpmap_viewer.decoding import decode as decode_scene
from locpmap_viewer.examples import EXAMPLES, synthetic_scene
from locpmap_viewer.guard import SMALL_BODY
from locpmap_viewer.scenes import Scene, example_scene
from locpmap_viewer.session import Session, Superseded
from locpmap_viewer.summary import differing

REFINER = lp.Refiner.load()
PORT, TOKEN = 8000, "a-secret"
OWN = {"X-Locpmap-Token": TOKEN}
Files = dict[str, tuple[str, bytes]]


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    rng = np.random.default_rng(1)
    image = np.full((18, 24, 3), 60, np.uint8)
    image[4:14, 6:16] = 190
    return image + rng.integers(0, 20, image.shape).astype(np.uint8)


@pytest.fixture(scope="module")
def logits(image: np.ndarray) -> np.ndarray:
    truth = (image[..., 0] > 120).astype(int)
    return (1.5 * np.eye(3)[truth] + np.random.default_rng(2).normal(size=(18, 24, 3))).astype(np.float32)


def png(image: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "PNG")
    return content.getvalue()


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, image: np.ndarray, logits: np.ndarray) -> Path:
    outside = tmp_path_factory.mktemp("outside")
    folder = tmp_path_factory.mktemp("folder")
    (folder / "box.png").write_bytes(png(image))
    (folder / "box.npy").write_bytes(npy(logits))
    (folder / "lonely.png").write_bytes(png(image))
    (folder / "broken.png").write_bytes(png(image))
    (folder / "broken.npy").write_bytes(b"no array")
    for path, content in (("secret.png", png(image)), ("secret.npy", npy(logits))):
        (outside / path).write_bytes(content)
        (folder / path).symlink_to(outside / path)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    app: Any = viewer_app.make_app(Session(folder), TOKEN, PORT, max_upload=1 << 20)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=OWN) as client:
        yield client


def decode(client: TestClient, **order: Any) -> dict[str, Any]:
    answer = client.post("/api/decode", json={"scene": "folder:box", "n_samples": 20, **order})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def check_error(answer: Any, status: int, *parts: str) -> None:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    sentence = answer.json()["error"]
    assert "\n" not in sentence
    assert "/tmp" not in sentence
    assert "Traceback" not in sentence
    for part in parts:
        assert part in sentence


# access control


def test_page_is_complete_and_loads_nothing_from_other_hosts(client: TestClient) -> None:
    html = client.get("/", headers={"X-Locpmap-Token": ""})
    assert html.status_code == 200
    assert "default-src 'self'" in html.headers["content-security-policy"]
    for name in {*re.findall(r'(?:src|href)="([\w.]+)"', html.text)}:
        assert client.get(f"/{name}").status_code == 200, name
    for file in viewer_app.PAGE.iterdir():
        assert set(re.findall(r"https?://[\w./]+", file.read_text())) <= {"http://www.w3.org/2000/svg"}
    for path in ("/docs", "/redoc", "/openapi.json", "/../app.py", "/app.py"):
        check_error(client.get(path), 404)


CALLS = [
    ("GET", "/api/scenes"),
    ("POST", "/api/scenes"),
    ("GET", "/api/scenes/folder:box"),
    ("GET", "/api/scenes/folder:box/image"),
    ("POST", "/api/decode"),
    ("GET", "/api/progress?page=a"),
    ("GET", "/api/decodings/a/layer"),
    ("GET", "/api/decodings/a/difference"),
    ("GET", "/api/decodings/a/pixel"),
    ("GET", "/api/decodings/a/probability"),
]


def test_list_of_calls_is_complete(client: TestClient) -> None:
    guard: Any = client.app
    routes = {route.path for route in guard.app.routes if route.path.startswith("/api/")}
    tried = {re.sub("folder:box", "{id}", re.sub("/a/", "/{key}/", path.split("?")[0])) for _, path in CALLS}
    assert tried == routes


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("token", ["", "a-secre", "a-secret ", "b-secret"])
def test_calls_without_the_token_are_refused(client: TestClient, method: str, path: str, token: str) -> None:
    check_error(client.request(method, path, headers={"X-Locpmap-Token": token}), 401, "token")


@pytest.mark.parametrize("path", ["/", "/api/scenes"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "example.com"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:8001"},
        {"Host": "127.0.0.1.example.com:8000"},
        {"Origin": "http://example.com"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8000"},
        {"Origin": "http://127.0.0.1:8001"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_other_hosts_and_origins_are_refused(client: TestClient, path: str, headers: dict[str, str]) -> None:
    check_error(client.get(path, headers=headers), 403, "viewer answers only")


@pytest.mark.parametrize(
    "headers", [{"Host": "localhost:8000"}, {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}]
)
def test_own_host_and_origin_are_accepted(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/api/scenes", headers=headers).status_code == 200


def test_request_bodies_are_limited_in_size(client: TestClient) -> None:
    long = b" " * (SMALL_BODY + 1)
    check_error(client.post("/api/decode", content=long), 413, "at most 64 kB")
    check_error(client.post("/api/scenes", content=b" " * (2 << 20)), 413, "at most 1 MB")
    check_error(client.post("/api/decode", content=iter([b"{}"])), 411)  # chunked, without a content length
    assert client.post("/api/decode", content=b" " * SMALL_BODY).status_code == 422


# responses


def picture(client: TestClient, key: str, **choice: Any) -> Image.Image:
    answer = client.get(f"/api/decodings/{key}/layer", params=choice)
    assert answer.status_code == 200, answer.text
    return Image.open(io.BytesIO(answer.content))


def probability_of(client: TestClient, key: str) -> np.ndarray:
    array: np.ndarray = np.load(io.BytesIO(client.get(f"/api/decodings/{key}/probability").content))
    return array


@pytest.mark.parametrize(
    "settings",
    [{}, {"smoothing": 1.5, "temperature": 0.5, "seed": 7}, {"smoothing": 0.5, "blocks": "rows+columns"}],
    ids=str,
)
def test_results_equal_those_of_refine(
    client: TestClient, image: np.ndarray, logits: np.ndarray, settings: dict[str, Any]
) -> None:
    found = decode(client, **settings)
    how = {"smoothing": 0.0, "temperature": 1.0, "blocks": "sites", "seed": 0, **settings}
    refiner = REFINER.adjusted(smoothing=how["smoothing"], temperature=how["temperature"])
    decoder = lp.LocPMAP(20, blocks=how["blocks"], start="perturbed")
    expected = lp.refine(image, logits, refiner, decoder=decoder, seed=how["seed"])
    np.testing.assert_array_equal(probability_of(client, found["key"]), expected.probability)
    np.testing.assert_array_equal(picture(client, found["key"], kind="labels"), expected.labels)
    np.testing.assert_allclose(
        found["changed"], (expected.labels != logits.argmax(-1)).mean(), err_msg="labels that changed"
    )
    entropy = np.asarray(picture(client, found["key"], kind="entropy")) / 255
    np.testing.assert_allclose(entropy, expected.entropy / np.log(3), atol=0.51 / 255)
    for kind, values in (("probability", expected.probability), ("variance", 4 * expected.variance)):
        for label in range(3):
            shown = np.asarray(picture(client, found["key"], kind=kind, label=label)) / 255
            np.testing.assert_allclose(shown, values[..., label], atol=0.51 / 255)
        own = np.take_along_axis(values, expected.labels[..., None], 2)[..., 0]
        np.testing.assert_allclose(np.asarray(picture(client, found["key"], kind=kind)) / 255, own, atol=0.51 / 255)


def test_samples_and_areas_equal_those_of_measure(client: TestClient, image: np.ndarray, logits: np.ndarray) -> None:
    found = decode(client, n_samples=45, seed=3, smoothing=0.5)
    area = REFINER.adjusted(smoothing=0.5).measure(
        image, logits, "area", lp.LocPMAP(n_samples=45, start="perturbed"), seed=3
    )
    low, high = area.interval(0.9)
    assert [each["size"] for each in found["areas"]] == np.median(area.values, axis=0).tolist()
    assert [each["low"] for each in found["areas"]] == low.tolist()
    assert [each["high"] for each in found["areas"]] == high.tolist()
    sampler = lp.LocPMAP(45, start="perturbed", keep_samples=True)
    samples = lp.refine(image, logits, REFINER.adjusted(smoothing=0.5), decoder=sampler, seed=3).samples
    assert found["n_stored"] == found["n_samples"] == 45
    for m in (0, 1, 31, 44):
        np.testing.assert_array_equal(picture(client, found["key"], kind="sample", sample=m), samples[m])


def test_error_fields_of_the_refiner_are_used(folder: Path, image: np.ndarray, logits: np.ndarray) -> None:
    errors: dict[str, Any] = {"sizes": [[0.3, 0.39, 0.99, 0.99, 0.62]], "shared": 0.24, "noise": 0.19}
    refiner = lp.Refiner(Weights([1.0], [1.1], pairwise=0.7, **errors))
    app: Any = viewer_app.make_app(Session(folder, refiner), TOKEN, PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=OWN) as client:
        found = decode(client, n_samples=12, seed=6, temperature=1.2)
        decoder = lp.LocPMAP(12, start="perturbed", keep_samples=True)
        expected = lp.refine(image, logits, refiner.adjusted(temperature=1.2), decoder=decoder, seed=6)
        np.testing.assert_array_equal(picture(client, found["key"], kind="labels"), expected.labels)
        np.testing.assert_array_equal(probability_of(client, found["key"]), expected.probability)
        for m in (0, 11):
            np.testing.assert_array_equal(picture(client, found["key"], kind="sample", sample=m), expected.samples[m])
        areas = [np.median((expected.samples == k).sum(axis=(1, 2))) for k in range(3)]
        assert [each["size"] for each in found["areas"]] == pytest.approx(areas)


def test_guaranteed_intervals_are_shown_as_such(folder: Path, image: np.ndarray, logits: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    many = logits + rng.normal(size=(12, *logits.shape)).astype(np.float32)
    truth = rng.integers(0, 3, (12, *image.shape[:2]))
    refiner = REFINER.guaranteed([image] * 12, many, truth, ["area"], layout="hwk", stride=1.0)
    app: Any = viewer_app.make_app(Session(folder, refiner), TOKEN, PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=OWN) as client:
        found = decode(client, method="locpmap", n_samples=60)
        assert found["guaranteed"]
        area = refiner.prepare(image, logits).measure("area", lp.LocPMAP(60, start="perturbed"))
        low, high = area.interval(guarantee=refiner)
        assert [each["low"] for each in found["areas"]] == pytest.approx(low)
        assert [each["high"] for each in found["areas"]] == pytest.approx(high)
        assert not decode(client, method="locpmap", n_samples=20)["guaranteed"]
        assert not decode(client, method="locpmap", n_samples=60, smoothing=1.0)["guaranteed"]
        assert not decode(client, method="locpmap", n_samples=60, blocks="rows+columns")["guaranteed"]
        assert not decode(client, method="icm")["guaranteed"]


def test_sliders_add_to_the_adjustment_of_the_model(folder: Path, image: np.ndarray, logits: np.ndarray) -> None:
    refiner = REFINER.adjusted(strength=0.5, smoothing=1.0, temperature=2.0)
    app: Any = viewer_app.make_app(Session(folder, refiner), TOKEN, PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=OWN) as client:
        for sliders, model in (
            ({}, refiner),
            ({"smoothing": 0.5, "temperature": 0.5}, REFINER.adjusted(strength=0.5, smoothing=1.5)),
        ):
            found = decode(client, method="mean_field", **sliders)
            expected = lp.infer(model.prepare(image, logits).potentials, "mean_field")
            np.testing.assert_allclose(probability_of(client, found["key"]), expected.probability, rtol=1e-5)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("network", "locpmap")])
def test_other_decoders_equal_those_of_infer(
    client: TestClient, image: np.ndarray, logits: np.ndarray, method: str
) -> None:
    found = decode(client, method=method, smoothing=1.5, seed=2)
    potentials = REFINER.adjusted(smoothing=1.5).prepare(image, logits).potentials
    expected = lp.infer(potentials, method, seed=2 if method == "gibbs" else 0)
    np.testing.assert_array_equal(picture(client, found["key"], kind="labels"), expected.labels)
    assert found["probable"] == (expected.probability is not None)
    counts = np.bincount(expected.labels.ravel(), minlength=3)
    assert [each["size"] for each in found["areas"]] == counts.tolist()
    assert found["present"] == (counts > 0).tolist()
    if expected.probability is None:
        check_error(client.get(f"/api/decodings/{found['key']}/probability"), 400, "labels only")
        check_error(client.get(f"/api/decodings/{found['key']}/layer?kind=entropy"), 400, "labels only")


def test_network_method_returns_the_softmax(client: TestClient, logits: np.ndarray) -> None:
    found = decode(client, method="network", smoothing=3.0)
    expected = np.exp(logits.astype(float))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(probability_of(client, found["key"]), expected, rtol=1e-5)
    assert found["changed"] == 0
    assert found["key"] == decode(client, method="network", smoothing=1.0, n_samples=7)["key"]


def test_pixel_call_returns_probabilities(client: TestClient, image: np.ndarray, logits: np.ndarray) -> None:
    found = decode(client)
    pixel = client.get(f"/api/decodings/{found['key']}/pixel", params={"x": 5, "y": 11}).json()
    expected = lp.refine(image, logits, decoder=lp.LocPMAP(20, start="perturbed"))
    assert pixel["probability"] == expected.probability[11, 5].tolist()
    assert pixel["label"] == expected.labels[11, 5]
    np.testing.assert_allclose(
        np.log(pixel["network"]) - np.log(pixel["network"][0]), logits[11, 5] - logits[11, 5, 0], atol=1e-5
    )
    for x, y in ((24, 0), (0, 18), (-1, 0)):
        answer = client.get(f"/api/decodings/{found['key']}/pixel", params={"x": x, "y": y})
        check_error(answer, 400, "outside the image of 24×18")


def test_image_is_returned_unchanged(client: TestClient, image: np.ndarray) -> None:
    content = client.get("/api/scenes/folder:box/image").content
    np.testing.assert_array_equal(Image.open(io.BytesIO(content)), image)
    facts = client.get("/api/scenes/folder:box").json()
    assert (facts["width"], facts["height"], facts["truth"], len(facts["labels"])) == (24, 18, False, 3)


def test_examples_are_reproducible_and_have_true_labels(client: TestClient) -> None:
    for name in EXAMPLES:
        first, second = synthetic_scene(name), synthetic_scene(name)
        for array, again in zip(first, second, strict=True):
            np.testing.assert_array_equal(array, again)
        _, truth, logits = first
        assert len(np.unique(truth)) == len(EXAMPLES[name][2]) == logits.shape[2]
    found = decode(client, scene="example:cells", method="network")
    scene = example_scene("cells")
    assert scene.truth is not None
    assert found["quality"]["accuracy"] == pytest.approx((scene.network_labels == scene.truth).mean())
    shown = np.asarray(picture(client, found["key"], kind="truth").convert("RGB"))
    np.testing.assert_array_equal(shown, label_colours(3)[scene.truth])
    check_error(client.get(f"/api/decodings/{decode(client)['key']}/layer?kind=truth"), 400, "no layer")


def test_colours_and_outlines_are_those_of_the_command_line(client: TestClient, tmp_path: Path) -> None:
    facts = client.get("/api/scenes/example:islands").json()
    assert [each["colour"] for each in facts["labels"]] == colours.hexadecimal(label_colours(6))
    key = decode(client, method="network")["key"]
    labels = np.asarray(picture(client, key, kind="labels"))
    shown = np.asarray(picture(client, key, kind="labels", outline=True).convert("RGB"))
    pictures.write_overlay(tmp_path / "cli.png", labels, labels, np.zeros(labels.shape), 3)
    line = (np.asarray(Image.open(tmp_path / "cli.png")) == 255).all(axis=2)
    assert 0 < line.mean() < 1
    np.testing.assert_array_equal(shown[line], 255)
    np.testing.assert_array_equal(shown[~line], label_colours(3)[labels[~line]])


def test_differences_show_the_pixels_whose_labels_differ(client: TestClient) -> None:
    scene = example_scene("cells")
    assert scene.truth is not None
    order = {"scene": "example:cells", "n_samples": 2}
    keys = {method: decode(client, method=method, **order)["key"] for method in ("network", "locpmap", "icm")}
    labels = {method: np.asarray(picture(client, key, kind="labels")) for method, key in keys.items()}

    def check(expected: np.ndarray, **choice: Any) -> None:
        answer = client.get(f"/api/decodings/{keys['icm']}/difference", params=choice)
        pixels = np.asarray(Image.open(io.BytesIO(answer.content)))
        np.testing.assert_array_equal(pixels[..., 3] > 0, expected)
        np.testing.assert_array_equal(pixels[expected][:, :3], label_colours(3)[labels["icm"][expected]])
        assert float(answer.headers["X-Locpmap-Fraction"]) == pytest.approx(expected.mean(), abs=1e-6)
        assert 0 < expected.mean() < 0.5

    check(labels["icm"] != labels["network"], other=keys["network"])
    either = (labels["icm"] != labels["network"]) | (labels["icm"] != labels["locpmap"])
    check(either, other=[keys["network"], keys["locpmap"]])
    check(labels["icm"] != scene.truth, truth=True)
    path = f"/api/decodings/{keys['icm']}/difference"
    check_error(client.get(path, params={"other": "gone"}), 404, "no longer in memory")
    own = decode(client)["key"]
    check_error(client.get(path, params={"other": own}), 400, "different scenes")
    check_error(client.get(f"/api/decodings/{own}/difference?truth=true"), 400, "true labels of this scene are unknown")


@pytest.mark.parametrize("method", ["icm", "graph_cut"])
def test_temperature_changes_no_maximum(image: np.ndarray, logits: np.ndarray, method: str) -> None:
    scene = Scene("box", image, logits, ("a", "b", "c"), label_colours(3))
    hot = Settings(method, smoothing=1.0, temperature=2.5)
    assert hot.relevant == Settings(method, smoothing=1.0)
    model = REFINER.adjusted(smoothing=1.0, temperature=2.5).prepare(image, logits).potentials
    np.testing.assert_array_equal(decode_scene(scene, hot).labels, lp.infer(model, method).labels)


@pytest.mark.parametrize("method", METHODS)
def test_unused_settings_give_the_same_result(client: TestClient, method: str) -> None:
    others = {"smoothing": 2.0, "temperature": 2.5, "n_samples": 3, "blocks": "rows+columns", "seed": 1}
    key = decode(client, method=method)["key"]
    for name, value in others.items():
        assert (decode(client, method=method, **{name: value})["key"] == key) == (name not in USED[method])


@pytest.mark.parametrize(
    "order",
    [
        {"smoothing": -1},
        {"smoothing": 99},
        {"temperature": 0},
        {"n_samples": 0},
        {"n_samples": 10_000},
        {"blocks": "everything"},
        {"method": "locpmapp"},
        {"seed": -1},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(client: TestClient, order: dict[str, Any]) -> None:
    answer = client.post("/api/decode", json={"scene": "folder:box", **order})
    check_error(answer, 400, *map(str, order))


@pytest.mark.parametrize(
    "content",
    ["", "no json", "[]", "{}", '{"scene": "folder:box", "n_samples": 1.5}', '{"scene": 3}', '{"scene":"x","y":1}'],
)
def test_malformed_requests_are_refused(client: TestClient, content: str) -> None:
    check_error(client.post("/api/decode", content=content, headers={"Content-Type": "application/json"}), 422)


def test_nan_setting_is_refused(client: TestClient) -> None:
    content = '{"scene": "folder:box", "smoothing": NaN}'
    answer = client.post("/api/decode", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert "smoothing" in answer.json()["error"]


def test_missing_results_and_layers_are_refused(client: TestClient) -> None:
    check_error(client.get("/api/decodings/nothing/pixel?x=0&y=0"), 404, "no longer")
    check_error(client.get("/api/decodings/nothing/layer?kind=labels"), 404, "no longer")
    key = decode(client)["key"]
    check_error(client.get(f"/api/decodings/{key}/layer?kind=sample&sample=20"), 400, "no sample 20")
    check_error(client.get(f"/api/decodings/{key}/layer?kind=probability&label=3"), 400, "label is 3")
    check_error(client.get(f"/api/decodings/{key}/layer?kind=mood"), 400, "no layer 'mood'")


# folders


@pytest.mark.parametrize(
    "id", ["folder:../box", "folder:/etc/passwd", "folder:secret", "folder:lonely", "example:../x", "", "box"]
)
def test_only_listed_scenes_can_be_opened(client: TestClient, id: str) -> None:
    assert id not in [each["id"] for each in client.get("/api/scenes").json()["scenes"]]
    answer = client.post("/api/decode", json={"scene": id})
    check_error(answer, 404, "no scene")


def test_list_contains_pairs_of_the_folder_and_examples(client: TestClient) -> None:
    listed = [each["id"] for each in client.get("/api/scenes").json()["scenes"] if each["source"] != "upload"]
    assert listed == ["folder:box", "folder:broken", *(f"example:{name}" for name in EXAMPLES)]


def test_broken_file_in_the_folder_is_refused_by_name(client: TestClient) -> None:
    answer = client.get("/api/scenes/folder:broken")
    assert answer.status_code == 400
    assert "broken.npy is damaged or not a .npy file" in answer.json()["error"]


def test_changed_files_are_read_again(client: TestClient, folder: Path, logits: np.ndarray) -> None:
    (folder / "late.png").write_bytes((folder / "box.png").read_bytes())
    (folder / "late.npy").write_bytes(npy(logits))
    first = decode(client, scene="folder:late", method="network")
    (folder / "late.npy").write_bytes(npy(-logits))
    os.utime(folder / "late.npy", ns=(1, 1))
    second = decode(client, scene="folder:late", method="network")
    (folder / "late.png").unlink()
    np.testing.assert_array_equal(picture(client, first["key"], kind="labels"), logits.argmax(-1))
    np.testing.assert_array_equal(picture(client, second["key"], kind="labels"), (-logits).argmax(-1))


def test_file_name_that_is_not_text(client: TestClient, folder: Path, image: np.ndarray, logits: np.ndarray) -> None:
    """Use a name with bytes that are not UTF-8, which Linux allows and JSON does not."""
    try:
        for ending, content in (("png", png(image)), ("npy", npy(logits))):
            Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9." + ending.encode())).write_bytes(content)
    except OSError:
        pytest.skip("this file system allows text only")
    try:
        (listed,) = (each for each in client.get("/api/scenes").json()["scenes"] if "caf" in each["id"])
        assert listed == {"id": "folder:caf\\udce9", "title": "caf\\udce9", "source": "folder"}
        decode(client, scene=listed["id"], method="network")
        Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.npy")).write_bytes(b"no array")
        answer = client.get("/api/scenes/" + urllib.parse.quote(listed["id"]))
        assert answer.status_code == 400
        assert "caf\\udce9.npy is damaged" in answer.json()["error"]
    finally:
        for path in folder.glob("caf*"):
            path.unlink()


def test_deleted_folder_is_handled(tmp_path: Path, image: np.ndarray, logits: np.ndarray) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "box.png").write_bytes(png(image))
    (tmp_path / "folder" / "box.npy").write_bytes(npy(logits))
    app: Any = viewer_app.make_app(Session(tmp_path / "folder"), TOKEN, PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=OWN) as client:
        key = decode(client, method="network")["key"]
        (tmp_path / "folder").rename(tmp_path / "elsewhere")
        check_error(client.post("/api/decode", json={"scene": "folder:box"}), 404, "There is no scene 'folder:box'")
        assert {each["source"] for each in client.get("/api/scenes").json()["scenes"]} == {"example"}
        np.testing.assert_array_equal(picture(client, key, kind="labels"), logits.argmax(-1))  # still cached


def test_file_deleted_while_reading_is_handled(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted(folder: Path) -> dict[str, scenes.Files]:
        return {"box": scenes.Files(Path("nowhere.png"), Path("nowhere.npy"))}

    monkeypatch.setattr(session, "pairs", deleted)
    check_error(client.get("/api/scenes/folder:box"), 404, "nowhere.png cannot be read: No such file")


# uploads


def upload(
    client: TestClient, image: bytes, scores: bytes, names: tuple[str, str] = ("a.png", "a.npy"), **form: str
) -> Any:
    files = {"image": (names[0], image), "logits": (names[1], scores)}
    return client.post("/api/scenes", files=files, data=form)


def npz(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


@pytest.mark.parametrize(
    ("form", "ending"),
    [
        (lambda x: npy(x), "npy"),
        (lambda x: npy(np.moveaxis(x, 2, 0)), "npy"),
        (lambda x: npy(x[None].astype(np.float64)), "npy"),
        (lambda x: npz(logits=x), "npz"),
        (lambda x: npy(np.exp(x) / np.exp(x).sum(-1, keepdims=True)), "npy"),
    ],
    ids=["hwk", "khw", "batch of one", "npz", "probabilities"],
)
def test_uploads_in_all_forms_give_equal_results(
    client: TestClient, image: np.ndarray, logits: np.ndarray, form: Callable[[np.ndarray], bytes], ending: str
) -> None:
    answer = upload(client, png(image), form(logits), ("box.png", f"box.{ending}"))
    assert answer.status_code == 200, answer.text
    found = decode(client, scene=answer.json()["id"])
    expected = lp.refine(image, logits, decoder=lp.LocPMAP(20, start="perturbed"))
    np.testing.assert_allclose(probability_of(client, found["key"]), expected.probability, atol=2e-4)
    np.testing.assert_array_equal(picture(client, found["key"], kind="labels"), expected.labels)


def test_uploads_of_coarse_logits_need_a_layout(client: TestClient) -> None:
    grey = np.random.default_rng(0).integers(0, 2**16, (16, 16)).astype(np.uint16)
    scores = np.random.default_rng(0).normal(size=(4, 4, 4)).astype(np.float32)
    check_error(upload(client, png(grey), npy(scores)), 400, "a.npy", "layout")
    for layout in ("hwk", "khw"):
        id = upload(client, png(grey), npy(scores), layout=layout).json()["id"]
        found = decode(client, scene=id)
        expected = lp.refine(grey, scores, layout=layout, decoder=lp.LocPMAP(20, start="perturbed"))
        np.testing.assert_array_equal(probability_of(client, found["key"]), expected.probability)


IMAGE = np.zeros((18, 24), np.uint8)
SCORES = np.zeros((18, 24, 3), np.float32)
BAD = {
    "an empty image": (b"", npy(SCORES), "a.png"),
    "no image": (b"some words", npy(SCORES), "a.png is damaged or of another format"),
    "a truncated image": (
        png(np.random.default_rng(0).integers(0, 255, (18, 24, 3), np.uint8))[:300],
        npy(SCORES),
        "a.png",
    ),
    "empty logits": (png(IMAGE), b"", "a.npy"),
    "no array": (png(IMAGE), b"some words", "a.npy is damaged or not a .npy file"),
    "a truncated array": (png(IMAGE), npy(SCORES)[:-4], "a.npy is damaged"),
    "objects": (png(IMAGE), npy(np.array([{}, None], dtype=object)), "a.npy holds Python objects"),
    "NaN": (png(IMAGE), npy(np.full_like(SCORES, np.nan)), "a.npy"),
    "one label": (png(IMAGE), npy(SCORES[..., :1]), "one label"),
    "another size": (png(IMAGE), npy(np.zeros((17, 11, 3), np.float32)), "(17, 11, 3)"),
    "a vector": (png(IMAGE), npy(np.zeros(5, np.float32)), "(5,)"),
    "a label too many": (png(IMAGE), npy(np.zeros((2, 3, 300), np.float32)), "300 labels"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_name(client: TestClient, name: str) -> None:
    image, scores, part = BAD[name]
    check_error(upload(client, image, scores), 400, part)


@pytest.mark.parametrize("names", [("a.svg", "a.npy"), ("a.png", "a.pkl"), ("a", "a.npy"), ("a.png", "../a.exe")])
def test_other_file_extensions_are_refused(client: TestClient, names: tuple[str, str]) -> None:
    check_error(upload(client, png(IMAGE), npy(SCORES), names), 400, "expected a file that ends in")


def test_missing_file_is_refused(client: TestClient) -> None:
    check_error(client.post("/api/scenes", files={"image": ("a.png", png(IMAGE))}), 422, "logits")


def test_paths_in_upload_names_are_ignored(client: TestClient, tmp_path: Path) -> None:
    target = tmp_path / "planted.png"
    answer = upload(client, png(IMAGE), npy(SCORES), (f"../../..{target}", "a.npy"))
    assert answer.status_code == 200
    assert not target.exists()


def test_large_scenes_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "MAX_PIXELS", 400)
    check_error(upload(client, png(IMAGE), npy(SCORES)), 400, "a.png has 24×18 pixels", "too large for the viewer")
    monkeypatch.setattr(scenes, "MAX_PIXELS", 500)
    monkeypatch.setattr(scenes, "MAX_NUMBERS", 1000)
    check_error(upload(client, png(IMAGE), npy(SCORES)), 400, "24×18 pixels with 3 labels")


def test_large_archives_are_refused_before_unpacking(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = npz(logits=np.zeros((1000, 1000, 3), np.float32))
    assert len(bomb) < 1 << 20
    monkeypatch.setattr(scenes, "MAX_FILE", 2 << 20)
    check_error(upload(client, png(IMAGE), bomb, ("a.png", "a.npz")), 400, "a.npz takes 11 MB")


# caching


def test_equal_settings_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Settings] = []

    def counted(scene: Any, settings: Settings, progress: Any) -> Decoding:
        ran.append(settings)
        return Decoding(scene, settings, np.zeros((1, 1), np.uint8), np.zeros((1, 1, 2), np.float32), "done")

    monkeypatch.setattr(session, "decode", counted)
    held = Session()
    first, _ = held.decode("example:cells", Settings(), "page")
    assert held.decode("example:cells", Settings(), "page")[0] == first
    assert held.decode("example:cells", Settings(seed=1), "page")[0] != first
    assert held.decode("example:islands", Settings(), "page")[0] != first
    assert len(ran) == 3
    monkeypatch.setattr(session, "CACHE_BYTES", 20)  # capacity of two results
    held.decode("example:cells", Settings(seed=2), "page")
    with pytest.raises(session.NotFoundError):
        held.decoding(first)


def test_results_differ_from_those_of_a_scene_that_was_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_SCENES", 1)
    held = Session()
    _, first = held.decode("example:cells", Settings("network"), "page")
    held.decode("example:islands", Settings("network"), "page")
    _, second = held.decode("example:cells", Settings("icm"), "page")
    np.testing.assert_array_equal(differing(second, [first], truth=False), first.labels != second.labels)


def test_number_of_stored_uploads_is_limited() -> None:
    held = Session()
    scene = example_scene("cells")
    ids = [held.add(scene) for _ in range(session.MAX_UPLOADS + 1)]
    with pytest.raises(session.NotFoundError):
        held.scene(ids[0])
    assert held.scene(ids[-1]).title == "Cells"


def test_new_request_stops_only_the_run_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    running, resume = threading.Event(), threading.Event()

    def slow(scene: Any, settings: Settings, progress: Callable[[int, int], None]) -> Decoding:
        if settings.seed == 0:
            progress(1, 2)
            running.set()
            assert resume.wait(20)
            progress(2, 2)
        return Decoding(scene, settings, np.zeros((1, 1), np.uint8), None, "done")

    monkeypatch.setattr(session, "decode", slow)
    for page, other_seed, stopped in (("one", 1, True), ("two", 2, False)):
        held = Session()
        ended: list[str] = []
        running.clear()
        resume.clear()

        def first(held: Session = held, ended: list[str] = ended) -> None:
            try:
                held.decode("example:cells", Settings(seed=0), "one")
                ended.append("complete")
            except Superseded:
                ended.append("stopped")

        started = threading.Thread(target=first)
        started.start()
        assert running.wait(20)
        progress = held.progress("one")
        assert progress is not None
        assert progress[:2] == (1, 2)
        again = threading.Thread(target=held.decode, args=("example:cells", Settings(seed=other_seed), page))
        again.start()
        while page not in held._requests or (page == "one" and held._requests["one"] < 2):
            pass
        resume.set()
        started.join(20)
        again.join(20)
        assert ended == ["stopped" if stopped else "complete"]
        assert held.progress("one") is None


def test_closed_page_stops_its_run_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    def closing(scene: Any, settings: Settings, progress: Callable[[int, int], None]) -> Decoding:
        gone.set()
        progress(1, 2)
        return Decoding(scene, settings, np.zeros((1, 1), np.uint8), None, "done")

    monkeypatch.setattr(session, "decode", closing)
    held = Session()
    with pytest.raises(Superseded):
        held.decode("example:cells", Settings(), "page", gone)
    held.decode("example:cells", Settings(), "page", threading.Event())


def test_waiting_request_ends_when_a_newer_one_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    held, ended = Session(), threading.Event()
    done = Decoding(example_scene("cells"), Settings(), np.zeros((1, 1), np.uint8), None, "done")
    monkeypatch.setattr(session, "decode", lambda *_: done)
    held._running.acquire()  # a run of another page that does not end

    def old() -> None:
        with pytest.raises(Superseded):
            held.decode("example:cells", Settings(), "page")
        ended.set()

    threading.Thread(target=old).start()
    while "page" not in held._requests:
        pass
    new = threading.Thread(target=held.decode, args=("example:cells", Settings(), "page"))
    new.start()
    assert ended.wait(20)
    held._running.release()
    new.join(20)
    assert not new.is_alive()


def test_remaining_time_comes_from_the_reports_and_from_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    held, seen = Session(), []

    def timed(scene: Any, settings: Settings, progress: Callable[[int, int], None]) -> Decoding:
        seen.append(held.progress("page"))
        n = settings.n_samples if settings.method == "locpmap" else 10
        for done in (n // 2, n):
            clock[0] += 4.0
            progress(done, n)
            clock[0] += 1.0
            seen.append(held.progress("page"))
        return Decoding(scene, settings, np.zeros((1, 1), np.uint8), None, "done", 10.0)

    monkeypatch.setattr(session, "decode", timed)
    monkeypatch.setattr("locpmap_viewer.session.time", SimpleNamespace(monotonic=lambda: clock[0]))
    for k, expected in enumerate(
        [
            [(0, 0.0, None, True), (25, 5.0, 3.0, True), (50, 10.0, 0.0, True)],  # half took 4 s: 8 s in all
            [(0, 0.0, 6.0, False), (25, 5.0, 3.0, False), (50, 10.0, 0.0, False)],  # 4 of 10 s may be compiling
            [(0, 0.0, 10.0, False), (25, 5.0, 3.0, False), (50, 10.0, 0.0, False)],
        ]
    ):
        held.decode("example:cells", Settings(seed=k), "page")
        assert [(each.done, each.seconds, each.left, each.first) for each in seen] == expected  # type: ignore[union-attr]
        seen.clear()
    held.decode("example:cells", Settings(n_samples=100), "page")
    assert seen[0] == (0, 1, 0.0, 20.0, False, False)
    seen.clear()
    lefts = []
    for smoothing in (0.0, 1.0, 2.0):
        seen.clear()
        held.decode("example:cells", Settings("lbp", smoothing=smoothing), "page")
        lefts.append([(each.left, each.bound) for each in seen])  # type: ignore[union-attr]
    assert lefts[0] == [(None, False), (3.0, True), (0.0, True)]  # may converge before the last sweep
    assert lefts[2] == [(10.0, False), (5.0, False), (0.0, False)]  # an earlier run tells more than the reports
    assert held.progress("page") is None
    run = session._Run(Settings(), clock[0], None, first=True)
    for done, waited in ((10, 30.0), (20, 1.0)):
        clock[0] += waited
        run.report(done, 50)
    assert run.progress().left == pytest.approx(3.0)  # without the 30 s of compiling


# the command


def test_command_serves_until_it_is_interrupted(folder: Path) -> None:
    command = [sys.executable, "-m", "locpmap", "view", str(folder), "--no-browser"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:(\d+)/)#token=([\w-]{32})$", line.strip())
        assert found, line + (process.stderr.read() if process.poll() else "")
        address, port, token = found.groups()
        request = urllib.request.Request(f"{address}api/scenes", headers={"X-Locpmap-Token": token})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert b"folder:box" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}api/scenes", timeout=60)
        others = [each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
        for other in {str(each) for each in others if not str(each).startswith("127.")}:
            with socket.socket() as knock:
                knock.settimeout(5)
                assert knock.connect_ex((other, int(port))) != 0
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), out
    finally:
        process.kill()
        process.communicate()


def test_port_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        Run(capsys, "view", "--no-browser", "--port", port).check_refusal(f"port {port} is in use")


def test_folders_without_pairs_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Run(capsys, "view", tmp_path / "nowhere", "--no-browser").check_refusal("nowhere does not exist")
    Run(capsys, "view", tmp_path, "--no-browser").check_refusal("holds no image")
    (tmp_path / "a.png").write_bytes(png(IMAGE))
    Run(capsys, "view", tmp_path, "--no-browser").check_refusal("holds no image")
    Run(capsys, "view", tmp_path / "a.png", "--no-browser").check_refusal("not a folder")
    Run(capsys, "view", tmp_path / "a.png", tmp_path / "b.npy", "--no-browser").check_refusal("b.npy does not exist")


@pytest.mark.parametrize("given", ["a.nii.gz", ".", "a.nii.gz b.nii"])
def test_volumes_are_refused_with_what_to_do_instead(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, given: str
) -> None:
    (tmp_path / "a.nii.gz").touch()
    words = "a.nii.gz is a volume, expected images: refine it with `locpmap refine SCAN LOGITS -o OUT`"
    Run(capsys, "view", *(tmp_path / name for name in given.split()), "--no-browser").check_refusal(words)
