"""The viewer in a browser: loading, sliders, pointer, keys, uploads and downloads."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
NAMES = ["ground", "square", "nothing"]
DONE = "[aria-busy=false] .frame:not(.stale) .overlay:not([hidden])"


def synthetic() -> tuple[np.ndarray, np.ndarray]:
    """Return an image of a bright square on a dark background, and noisy logits."""
    rng = np.random.default_rng(0)
    truth = np.zeros(SIZE, np.int64)
    truth[10:30, 20:40] = 1
    image = (70 + 120 * truth + rng.integers(0, 20, SIZE)).astype(np.uint8)
    return image, (np.eye(3)[truth] + rng.normal(size=(*SIZE, 3))).astype(np.float32)


SURE = np.full((*SIZE, 3), -6, np.float32)  # no pixel has the third label
SURE[..., 0], SURE[:, :20, 0], SURE[:, :20, 1] = 4, 0, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    image, logits = synthetic()
    Image.fromarray(image).save(folder / "square.png")
    np.save(folder / "square.npy", logits)
    (folder / "names.txt").write_text("\n".join(NAMES))
    Image.fromarray(image).save(folder / "still.png")
    np.save(folder / "still.npy", SURE)
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

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.notes = {
            "console": lambda message: self.problems.append(message.text),
            "pageerror": lambda error: self.problems.append(str(error)),
            "request": lambda request: self.requests.append(request.url),
        }
        for event, note in self.notes.items():
            self.page.on(event, note)
        self.page.goto(address)

    def leave(self) -> None:
        """Empty the page, so that nothing of this visit remains for the next one."""
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.evaluate("localStorage.clear()")
        self.page.goto("about:blank")
        for event, note in self.notes.items():
            self.page.remove_listener(event, note)

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

    def overlay(self, selector: str = ".overlay") -> np.ndarray:
        """Return the pixels of the displayed overlay, (H, W, 4)."""
        script = """async (selector) => {
            const image = document.querySelector(selector);
            await image.decode();
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const pen = canvas.getContext('2d');
            pen.drawImage(image, 0, 0);
            return [canvas.height, canvas.width, [...pen.getImageData(0, 0, canvas.width, canvas.height).data]];
        }"""
        height, width, values = self.page.evaluate(script, selector)
        return np.array(values, np.uint8).reshape(height, width, 4)

    def move(self, slider: str, value: float) -> None:
        self.page.locator(f"#{slider}").fill(str(value))
        self.ready()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    """Return an empty page, in which each visit loads the viewer anew: opening one per visit takes far longer."""
    page = browser.new_page()
    yield page
    page.context.close()


@contextmanager
def visiting(tab: Any, address: str, width: int = 1280, height: int = 860, scheme: str = "light") -> Iterator[Visit]:
    tab.set_viewport_size({"width": width, "height": height})
    tab.emulate_media(color_scheme=scheme)
    tab.mouse.move(0, 0)
    visit = Visit(tab, address)
    try:
        visit.ready()
        yield visit
    finally:
        visit.leave()


@pytest.fixture
def visit(tab: Any, address: str) -> Iterator[Visit]:
    with visiting(tab, address) as visit:
        yield visit
    assert visit.problems == []


def in_colours(labels: np.ndarray) -> np.ndarray:
    """Return labels in the viewer's colours, with white outlines."""
    from locpmap.formats import label_colours, label_outline

    return np.where(label_outline(labels)[..., None], 255, label_colours(3)[labels])


def test_page_loads_without_errors_or_external_requests(visit: Visit, address: str) -> None:
    image, logits = synthetic()
    expected = lp.refine(image, logits)
    np.testing.assert_array_equal(visit.overlay()[..., :3], in_colours(expected.labels))
    visit.until("document.querySelector('#status')?.textContent.includes('50 samples')")
    own = address.split("#")[0]
    assert [url for url in visit.requests if not url.startswith((own, f"blob:{own}"))] == []
    assert visit.page.title() == "square · locpmap viewer"
    assert visit.page.locator(".area").count() == 3


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
    order = np.argsort(-expected[12, 38], kind="stable")
    np.testing.assert_allclose(visit.page.evaluate(widths), 100 * expected[12, 38][order], atol=0.01)
    assert visit.page.locator("#pixel .name").all_inner_texts() == [NAMES[k] for k in order]
    visit.page.locator(".frame").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("Shift+ArrowUp")
    visit.until("document.querySelector('#where').textContent === 'column 39, row 2'")
    np.testing.assert_allclose(visit.page.evaluate(widths), 100 * np.sort(expected[2, 39])[::-1], atol=0.01)


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
    visit.until("document.querySelector('.overlay').alt.match(/\\d+/)[0] >= 3")
    visit.page.click("#previous")  # also stops playing
    visit.until("document.querySelector('#play').textContent === 'Play'")
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


def test_areas_are_sorted_on_one_scale_with_absent_labels_folded(visit: Visit) -> None:
    visit.page.locator("#scene").select_option("folder:still")
    visit.page.wait_for_selector("#absent summary")
    area = lp.Refiner.load().measure(synthetic()[0], SURE, "area", lp.LocPMAP(50, start="perturbed"))
    assert visit.page.locator("#areas .name").all_inner_texts() == NAMES[:2]
    assert not visit.page.locator("#absent .area").is_visible()
    visit.page.click("#absent summary")
    assert visit.page.locator("#absent summary").inner_text() == "1 label absent"
    assert visit.page.locator("#absent .name").all_inner_texts() == NAMES[2:]
    end = float(visit.page.locator("#areas .scale span").nth(1).inner_text().removesuffix("%"))
    share = 100 * np.median(area.values, axis=0) / SURE[..., 0].size
    widths = "[...document.querySelectorAll('.area .line i')].map(bar => parseFloat(bar.style.width))"
    np.testing.assert_allclose(visit.page.evaluate(widths), 100 * share / end, rtol=1e-3)
    visit.page.locator("#areas .area").nth(1).click()
    visit.page.wait_for_selector(".overlay[alt^='Probability ']")
    assert visit.page.locator("#label").input_value() == "1"


def test_divider_shows_the_network_on_its_left(visit: Visit) -> None:
    _, logits = synthetic()
    assert visit.page.locator(".divider").is_hidden()
    visit.page.check("#wipe")
    visit.page.wait_for_selector(".before:not([hidden])")
    np.testing.assert_array_equal(visit.overlay(".before")[..., :3], in_colours(logits.argmax(2)))
    divider, frame = visit.page.locator(".divider"), visit.page.locator(".frame").bounding_box()
    assert divider.get_attribute("aria-valuenow") == "50"
    visit.page.mouse.move(frame["x"] + frame["width"] / 2, frame["y"] + 30)
    visit.page.mouse.down()
    visit.page.mouse.move(frame["x"] + frame["width"] / 4, frame["y"] + 40)
    visit.page.mouse.up()
    assert divider.get_attribute("aria-valuenow") == "25"
    clip = "getComputedStyle(document.querySelector('.before')).clipPath"
    assert visit.page.evaluate(clip) == "inset(0px 75% 0px 0px)"
    divider.focus()
    visit.page.keyboard.press("Shift+ArrowRight")
    visit.page.keyboard.press("ArrowLeft")
    assert divider.get_attribute("aria-valuenow") == "33"
    visit.layer("5", "Entropy")
    visit.until("document.querySelector('.before').naturalWidth > 0")
    visit.page.uncheck("#wipe")
    visit.page.wait_for_selector(".before", state="hidden")
    visit.page.keyboard.press("2")
    visit.until("document.querySelector('#wipe').disabled")
    assert "choose another layer" in visit.page.locator("label:has(#wipe)").get_attribute("title")


def test_saved_picture_contains_the_divider(visit: Visit) -> None:
    image, logits = synthetic()
    visit.page.check("#wipe")
    visit.page.wait_for_selector(".before:not([hidden])")
    with visit.page.expect_download() as download:
        visit.page.click("#save-picture")
    pixels = np.asarray(Image.open(Path(download.value.path())).convert("RGB"), float)
    sides = in_colours(logits.argmax(2)), in_colours(lp.refine(image, logits).labels)
    mixed = 0.35 * image[..., None] + 0.65 * np.concatenate([sides[0][:, :30], sides[1][:, 30:]], axis=1)
    np.testing.assert_allclose(pixels, mixed, atol=2)


def test_compare_view_shows_where_decoders_differ(visit: Visit) -> None:
    image, logits = synthetic()
    refined = lp.refine(image, logits).labels
    visit.page.locator("input[name=view][value=compare]").check(force=True)
    visit.until("document.querySelectorAll('.frame:not(.stale)').length === 5")
    visit.ready()
    assert visit.page.locator("input[name=layer][value=difference]").is_checked()  # Compare opens with them
    visit.page.wait_for_selector("[data-method=network] .overlay[alt^=Differences]")
    differs = refined != logits.argmax(2)
    np.testing.assert_array_equal(visit.overlay("[data-method=network] .overlay")[..., 3] > 0, differs)
    caption = visit.page.locator("[data-method=network] .stats").inner_text()
    assert caption.replace("\u00a0", " ") == f"{100 * differs.mean():.1f} % of the pixels differ from LocPMAP"
    visit.page.locator("#reference").select_option("network")
    visit.until("document.querySelector('[data-method=locpmap] .stats').textContent.endsWith('differ from Network')")
    np.testing.assert_array_equal(visit.overlay("[data-method=locpmap] .overlay")[..., 3] > 0, differs)
    assert (visit.overlay("[data-method=network] .overlay")[..., 3] > 0).mean() >= differs.mean()  # of any decoder
    for name in ("network", "icm", "mean_field", "lbp"):
        visit.page.uncheck(f"input[name=method][value={name}]")
    visit.until("document.querySelector('[data-method=locpmap] .none').textContent.startsWith('choose another')")
    visit.page.locator("input[name=view][value=explore]").check(force=True)
    visit.page.wait_for_selector(".overlay[alt^='Labels by LocPMAP']")


def test_controls_without_effect_are_disabled_and_say_why(visit: Visit) -> None:
    page = visit.page
    assert page.locator("main .model :disabled").count() == 2  # both choices of blocks
    assert "no weights between neighbours" in page.locator("#blocks-note").inner_text()
    visit.move("smoothing", 1)
    assert page.locator("main .model :disabled").count() == 0
    truth = page.locator("label:has(input[value=truth])")
    assert truth.locator("input").is_disabled()
    assert "square.truth.png" in truth.get_attribute("title")
    page.locator("input[name=view][value=compare]").check(force=True)
    for name in ("locpmap", "mean_field", "lbp"):
        page.uncheck(f"input[name=method][value={name}]")
    visit.ready()
    for name in ("temperature", "n_samples", "seed"):
        assert page.locator(f"#{name}").is_disabled(), name
        assert "No effect on Network and ICM" in page.locator(f"#{name}").get_attribute("title")
    assert "Decoders that use it: LocPMAP." in page.locator("#n_samples-note").inner_text()
    assert page.locator("input[name=blocks]:disabled").count() == 2
    assert page.locator("#smoothing").is_enabled()
    assert page.locator("#save-probability").get_attribute("title") == "ICM returns labels only."
    page.check("input[name=method][value=lbp]")
    visit.ready()
    assert page.locator("#temperature").is_enabled()
    assert "Divides all scores" in page.locator("#temperature-note").inner_text()


def test_every_button_has_a_text(visit: Visit) -> None:
    texts = visit.page.evaluate("[...document.querySelectorAll('button')].map(button => button.textContent.trim())")
    assert len(texts) > 12
    assert [text for text in texts if not re.search("[A-Za-z]{2}", text)] == []


def test_moving_a_slider_stops_the_old_run_and_shows_the_time_since_the_move(visit: Visit) -> None:
    sent: list[Any] = []
    answered = False
    visit.page.route(re.compile("api/decode"), lambda run: run.continue_() if answered else sent.append(run))
    stopped: list[Any] = []
    visit.page.on("requestfailed", lambda request: stopped.append(request))
    visit.page.locator("#smoothing").fill("1")
    for _ in range(600):
        if sent:
            break
        visit.page.wait_for_timeout(50)
    visit.page.wait_for_timeout(1500)
    visit.page.locator("#smoothing").fill("2")
    for _ in range(600):
        if len(sent) > 1:
            break
        visit.page.wait_for_timeout(50)
    assert stopped == [sent[0].request]
    visit.page.wait_for_timeout(1000)
    answered = True
    sent[1].continue_()
    visit.ready()
    shown = float(re.search(r"updated in ([\d.]+)\s", visit.status())[1])  # type: ignore[index]
    assert shown >= 1.1  # the time from the second move, in which nothing was answered for a second


def test_status_tells_the_remaining_time(visit: Visit) -> None:
    held: list[Any] = []
    answer: dict[str, Any] = {"done": 20, "total": 50, "seconds": 4.0, "left": 5.2, "bound": False, "first": False}
    visit.page.route(re.compile("api/progress"), lambda request: request.fulfill(json=answer))
    visit.page.route(
        re.compile("api/decode"),
        lambda run: held.append(run) if "locpmap" in run.request.post_data else run.continue_(),
    )
    visit.page.locator("#smoothing").fill("1")
    visit.until("document.querySelector('#status').textContent === 'LocPMAP · 20 of 50 samples · about 6 s left'")
    assert visit.page.locator("#progress").get_attribute("aria-valuenow") == "43"
    answer.update(done=0, left=None, first=True)
    visit.until(
        "document.querySelector('#status').textContent.includes('compiling, on the first run only · 4 s so far')"
    )
    visit.page.unroute(re.compile("api/progress"))
    for run in held:
        run.continue_()
    visit.ready()


def test_late_answer_does_not_replace_a_newer_scene(visit: Visit) -> None:
    held: list[Any] = []
    visit.page.route(re.compile("api/scenes/folder.*still$"), lambda route: held.append(route))
    with visit.page.expect_request(re.compile("still$")):
        visit.page.locator("#scene").select_option("folder:still")
    visit.page.locator("#scene").select_option("example:cells")
    visit.until("document.title.startsWith('Cells')")
    visit.ready()
    with visit.page.expect_response(re.compile("still$")):
        held[0].continue_()
    visit.page.wait_for_timeout(300)
    assert visit.page.title().startswith("Cells")
    assert visit.page.locator("#scene").input_value() == "example:cells"


def test_image_stays_above_the_sliders_on_a_narrow_screen(tab: Any, address: str) -> None:
    with visiting(tab, address, 390, 844) as visit:
        for name in ("smoothing", "temperature", "n_samples"):
            slider = visit.page.locator(f"#{name}")
            slider.scroll_into_view_if_needed()
            frame, box = visit.page.locator(".frame").bounding_box(), slider.bounding_box()
            assert frame["y"] >= 0
            assert 0 < box["y"] - frame["y"] - frame["height"] < 844 - frame["height"]
        visit.page.locator("input[name=view][value=compare]").check(force=True)
        visit.until("document.querySelectorAll('.frame:not(.stale)').length === 5")
        visit.page.locator("#smoothing").scroll_into_view_if_needed()
        tops = [frame.bounding_box()["y"] for frame in visit.page.locator(".frame").all()]
        assert min(tops) >= 0
        assert max(tops) == min(tops)  # side by side
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


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
def test_layout_fits_the_width_of_the_window(tab: Any, address: str, width: int, scheme: str) -> None:
    with visiting(tab, address, width, 800, scheme) as visit:
        assert visit.page.evaluate("document.documentElement.dataset.theme") == scheme
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        outside = """width => [...document.querySelectorAll('h1, h2, p, button, label, select, output')]
            .filter(element => element.getBoundingClientRect().right > width + 1).map(element => element.outerHTML)"""
        assert visit.page.evaluate(outside, width) == []
    assert visit.problems == []


def test_page_without_token_shows_instructions(browser: Any, address: str) -> None:
    visit = Visit(browser.new_page(), address.split("#")[0])
    visit.page.wait_for_selector("#alert:not([hidden])")
    assert "open the address that the command printed" in visit.page.locator("#alert p").inner_text()
    visit.page.context.close()


def test_page_reports_a_lost_server(browser: Any, address: str) -> None:
    visit = Visit(browser.new_page(), address)
    visit.ready()
    visit.page.context.set_offline(True)
    visit.page.locator("#smoothing").fill("3")
    visit.page.wait_for_selector("#alert:not([hidden])", timeout=10_000)
    assert "still running" in visit.page.locator("#alert p").inner_text()
    visit.page.context.close()
