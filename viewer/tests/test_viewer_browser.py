"""The viewer in a browser: loading, sliders, pointer, keys, uploads and downloads."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image

import locpmap as lp

pytestmark = pytest.mark.usefixtures("browser")  # first: without one, nothing else is set up

TOKEN = "a-secret"
SIZE = (40, 60)
DONE = "[aria-busy=false] .frame:not(.stale) .overlay:not([hidden])"


def synthetic() -> tuple[np.ndarray, np.ndarray]:
    """Return an image of a bright square on a dark background, and noisy logits."""
    rng = np.random.default_rng(0)
    truth = np.zeros(SIZE, np.int64)
    truth[10:30, 20:40] = 1
    image = (70 + 120 * truth + rng.integers(0, 20, SIZE)).astype(np.uint8)
    return image, (np.eye(3)[truth] + rng.normal(size=(*SIZE, 3))).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    image, logits = synthetic()
    Image.fromarray(image).save(folder / "square.png")
    np.save(folder / "square.npy", logits)
    np.save(folder / "wrong.npy", logits[:, :17])
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    from locpmap_viewer.app import make_app
    from locpmap_viewer.server import _listening
    from locpmap_viewer.session import Session

    with _listening(0) as listener:
        port = listener.getsockname()[1]
        app = make_app(Session(folder), TOKEN, port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{port}/#token={TOKEN}"
        server.should_exit = True
        thread.join(30)


class Visit:
    """An open page, with its errors and requests."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def ready(self) -> None:
        self.page.wait_for_selector(DONE, timeout=60_000)

    def until(self, condition: str) -> None:
        """Poll until the condition is true; the page's security policy forbids playwright's own method."""
        for _ in range(600):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(condition)

    def status(self) -> str:
        return str(self.page.locator("#status").inner_text())

    def layer(self, key: str, name: str) -> None:
        """Press a key and wait for its layer."""
        self.page.keyboard.press(key)
        self.page.wait_for_selector(f".overlay[alt^='{name} ']")

    def overlay(self) -> np.ndarray:
        """Return the pixels of the displayed overlay, (H, W, 4)."""
        script = """async () => {
            const image = document.querySelector('.overlay');
            await image.decode();
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const pen = canvas.getContext('2d');
            pen.drawImage(image, 0, 0);
            return [canvas.height, canvas.width, [...pen.getImageData(0, 0, canvas.width, canvas.height).data]];
        }"""
        height, width, values = self.page.evaluate(script)
        return np.array(values, np.uint8).reshape(height, width, 4)

    def move(self, slider: str, value: float) -> None:
        self.page.locator(f"#{slider}").fill(str(value))
        self.ready()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    visit = Visit(browser, address)
    visit.ready()
    yield visit
    visit.context.close()
    assert visit.problems == []


def in_colours(labels: np.ndarray) -> np.ndarray:
    """Return labels in the viewer's colours."""
    from locpmap.formats import label_colours

    return label_colours(3)[labels]


def test_page_loads_without_errors_or_external_requests(visit: Visit, address: str) -> None:
    image, logits = synthetic()
    expected = lp.refine(image, logits)
    np.testing.assert_array_equal(visit.overlay()[..., :3], in_colours(expected.labels))
    visit.until("document.querySelector('#status')?.textContent.includes('50 samples')")
    own = address.split("#")[0]
    assert [url for url in visit.requests if not url.startswith((own, f"blob:{own}"))] == []
    assert visit.page.title() == "square · locpmap viewer"
    assert visit.page.locator("#areas .area").count() == 3


def test_late_progress_does_not_hide_the_result(visit: Visit) -> None:
    samples: list[Any] = []
    progress: list[Any] = []

    def hold(run: Any) -> None:
        if "locpmap" in run.request.post_data:
            samples.append(run)
        else:
            run.continue_()

    visit.page.route(re.compile("api/decode"), hold)
    visit.page.route(re.compile("api/progress"), lambda request: progress.append(request))
    visit.page.locator("#n_samples").fill("7")
    for _ in range(600):
        if samples and progress:
            break
        visit.page.wait_for_timeout(50)
    samples.pop().continue_()
    visit.ready()
    with visit.page.expect_response(re.compile("api/progress")):
        progress.pop().continue_()
    visit.page.wait_for_timeout(100)
    assert "7 samples" in visit.status()
    assert visit.page.locator("#progress").is_hidden()
    for late in progress:
        late.abort("aborted")  # otherwise the browser logs an error


def test_sliders_change_the_result(visit: Visit) -> None:
    image, logits = synthetic()
    visit.layer("5", "Entropy")
    before = visit.overlay()
    visit.move("temperature", 3)
    assert (before != visit.overlay()).any()
    visit.layer("1", "Labels")
    for smoothing in (1.0, 3.0):
        visit.move("smoothing", smoothing)
        expected = lp.refine(image, logits, lp.Refiner.load().adjusted(smoothing=smoothing, temperature=3.0))
        np.testing.assert_array_equal(visit.overlay()[..., :3], in_colours(expected.labels))
    visit.move("n_samples", 7)
    assert "7 samples" in visit.status()
    visit.page.locator("input[value='rows+columns']").check(force=True)
    visit.ready()
    visit.layer("5", "Entropy")
    visit.page.click("#reset")
    visit.ready()
    np.testing.assert_array_equal(visit.overlay(), before)


def test_pointer_and_arrow_keys_show_a_pixel(visit: Visit) -> None:
    image, logits = synthetic()
    expected = lp.refine(image, logits).probability
    box = visit.page.locator(".frame").bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] * 38.5 / 60, box["y"] + box["height"] * 12.5 / 40)
    visit.until("document.querySelector('#where').textContent === 'column 38, row 12'")
    widths = "[...document.querySelectorAll('#pixel .track i')].map(bar => parseFloat(bar.style.width))"
    np.testing.assert_allclose(visit.page.evaluate(widths), 100 * expected[12, 38], atol=0.01)
    visit.page.locator(".frame").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("Shift+ArrowUp")
    visit.until("document.querySelector('#where').textContent === 'column 39, row 2'")
    np.testing.assert_allclose(visit.page.evaluate(widths), 100 * expected[2, 39], atol=0.01)


def test_layers_samples_and_opacity_can_be_chosen(visit: Visit) -> None:
    image, logits = synthetic()
    labels = visit.overlay()
    visit.layer("5", "Entropy")
    assert (visit.overlay() != labels).any()
    visit.layer("6", "Sample")
    samples = lp.refine(image, logits, decoder=lp.LocPMAP(50, start="perturbed", keep_samples=True)).samples
    for m in (49, 12):
        visit.page.locator("#sample").fill(str(m))
        visit.page.wait_for_selector(f".overlay[alt^='Sample {m + 1} ']")
        np.testing.assert_array_equal(visit.overlay()[..., :3], in_colours(samples[m]))
    for button, shown in (("previous", 12), ("next", 13), ("next", 14)):
        visit.page.click(f"#{button}")
        visit.page.wait_for_selector(f".overlay[alt^='Sample {shown} ']")
        assert visit.page.locator("output[for=sample]").inner_text() == f"{shown} of 50"
    visit.page.locator("#sample").fill("49")
    visit.page.click("#next")
    visit.page.wait_for_selector(".overlay[alt^='Sample 1 ']")
    visit.page.click("#play")
    visit.page.wait_for_selector(".overlay[alt^='Sample 3 ']")
    visit.page.click("#previous")  # also stops playing
    visit.until("document.querySelector('#play').getAttribute('aria-label') === 'Play the samples'")
    visit.page.locator("#opacity").fill("0.2")
    visit.until("getComputedStyle(document.querySelector('.overlay')).opacity === '0.2'")


def test_compare_view_shows_all_decoders(visit: Visit) -> None:
    visit.page.locator("input[name=view][value=compare]").check(force=True)
    visit.until("document.querySelectorAll('.frame:not(.stale)').length === 5")
    titles = visit.page.locator("figcaption b").all_inner_texts()
    assert titles == ["Network", "LocPMAP", "ICM", "Mean field", "Loopy BP"]
    visit.page.locator(".frame").nth(3).hover()
    visit.until("[...document.querySelectorAll('.here')].every(place => place.textContent)")
    visit.page.keyboard.press("5")
    visit.until("document.querySelector('[data-method=icm] .none').textContent === 'returns labels only'")


def test_upload_shows_an_error_for_bad_files_and_opens_good_ones(visit: Visit, folder: Path) -> None:
    page = visit.page
    page.click("#open")
    page.set_input_files("#file-image", folder / "square.png")
    page.set_input_files("#file-logits", folder / "wrong.npy")
    page.click("#upload")
    visit.until("document.querySelector('#dialog-error').textContent.includes('wrong.npy')")
    assert "(40, 17, 3)" in page.locator("#dialog-error").inner_text()
    visit.problems.clear()  # browsers log every failed request
    page.set_input_files("#file-logits", folder / "square.npy")
    page.click("#upload")
    visit.until("!document.querySelector('#dialog').open")
    assert page.locator("#scene").input_value().startswith("upload:")
    visit.ready()


def test_displayed_results_are_saved(visit: Visit) -> None:
    image, logits = synthetic()
    expected = lp.refine(image, logits)
    saved = {}
    for what in ("picture", "labels", "probability"):
        with visit.page.expect_download() as download:
            visit.page.click(f"#save-{what}")
        saved[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    assert list(saved) == ["square-locpmap-labels.png", "square-labels.png", "square-probability.npy"]
    picture, labels, probability = saved.values()
    np.testing.assert_array_equal(np.load(io.BytesIO(probability)), expected.probability)
    np.testing.assert_array_equal(Image.open(io.BytesIO(labels)), expected.labels)
    mixed = 0.35 * image[..., None] + 0.65 * in_colours(expected.labels)
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"), float)
    np.testing.assert_allclose(pixels, mixed, atol=2)


@pytest.mark.parametrize("width", [1600, 1000, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_layout_fits_the_width_of_the_window(browser: Any, address: str, width: int, scheme: str) -> None:
    visit = Visit(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    visit.ready()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == scheme
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    outside = """width => [...document.querySelectorAll('h1, h2, p, button, label, select, output')]
        .filter(element => element.getBoundingClientRect().right > width + 1).map(element => element.outerHTML)"""
    assert visit.page.evaluate(outside, width) == []
    visit.context.close()
    assert visit.problems == []


def test_page_without_token_shows_instructions(browser: Any, address: str) -> None:
    visit = Visit(browser, address.split("#")[0])
    visit.page.wait_for_selector("#alert:not([hidden])")
    assert "open the address that the command printed" in visit.page.locator("#alert p").inner_text()
    visit.context.close()


def test_page_reports_a_lost_server(browser: Any, address: str) -> None:
    visit = Visit(browser, address)
    visit.ready()
    visit.context.set_offline(True)
    visit.page.locator("#smoothing").fill("3")
    visit.page.wait_for_selector("#alert:not([hidden])", timeout=10_000)
    assert "still running" in visit.page.locator("#alert p").inner_text()
    visit.context.close()
