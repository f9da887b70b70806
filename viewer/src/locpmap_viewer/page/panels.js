// Panels: a photograph, an overlay and a probe (the selected pixel).  All panels share zoom, pan and probe.  A single
// panel can show a second overlay on the left of a divider.

const MAX_ZOOM = 16;
const NARROW = matchMedia("(max-width: 760px)"); // as in style.css

export class Panels {
  // `onProbe(x, y)` is called with the pixel that the pointer or the arrow keys select.
  constructor(root, onProbe) {
    this.root = root;
    this.onProbe = onProbe;
    this.figures = new Map();
    this.size = { width: 1, height: 1 };
    this.at = null;
    this.view = { zoom: 1, x: 0, y: 0 }; // x and y: percent of a panel's size
    this.divide(50);
    new ResizeObserver(() => this.fit()).observe(root);
    addEventListener("resize", () => this.fit());
  }

  show(names, size, photo) {
    const same = photo === this.photo && names.join() === [...this.figures.keys()].join();
    if (same) return;
    if (photo !== this.photo) this.setView(1, 0, 0);
    [this.photo, this.size] = [photo, size];
    this.root.replaceChildren();
    this.figures.clear();
    this.root.classList.toggle("many", names.length > 1);
    for (const name of names) this.figures.set(name, this.#figure(name));
    this.fit();
    this.mark(this.at?.x, this.at?.y);
  }

  #figure(name) {
    const figure = document.createElement("figure");
    figure.dataset.method = name;
    figure.innerHTML = `<div class="frame stale" tabindex="0" role="application"><div class="canvas">
      <img class="photo" alt="" draggable="false"><img class="overlay" alt="" draggable="false" hidden>
      <img class="before" alt="" draggable="false" hidden><div class="probe" hidden></div></div><p class="none" hidden></p>
      <div class="divider" role="slider" tabindex="0" aria-label="Divider between network and refined" aria-valuemin="0" aria-valuemax="100" hidden>
      <span>Network</span><span>Refined</span></div></div><figcaption hidden></figcaption>`;
    const frame = figure.querySelector(".frame");
    frame.setAttribute("aria-label", "Image: arrow keys move the probed pixel, plus and minus zoom");
    figure.querySelector(".photo").src = this.photo;
    figure.querySelector(".canvas").style.aspectRatio = `${this.size.width} / ${this.size.height}`;
    this.#listen(frame);
    this.#listenToDivider(frame, figure.querySelector(".divider"));
    this.root.append(figure);
    return figure;
  }

  overlay(name, source, { alt, none = "" }) {
    const figure = this.figures.get(name);
    if (!figure) return;
    const [overlay, note] = [figure.querySelector(".overlay"), figure.querySelector(".none")];
    overlay.hidden = !source;
    if (source) overlay.src = source;
    overlay.alt = alt;
    note.hidden = !none;
    note.textContent = none;
    figure.querySelector(".frame").classList.remove("stale");
  }

  // Show the source on the left of the divider, and name the right side; null removes the divider.
  before(name, source, right) {
    const figure = this.figures.get(name);
    if (!figure) return;
    figure.querySelector(".divider span:last-child").textContent = right;
    const image = figure.querySelector(".before");
    if (source) image.src = source;
    image.hidden = figure.querySelector(".divider").hidden = !source;
    figure.classList.toggle("wiping", Boolean(source));
    this.divide(this.divided);
  }

  // Move the divider; `at` is in percent of the frame's width.
  divide(at) {
    this.divided = Math.max(0, Math.min(100, at));
    this.root.style.setProperty("--wipe", this.divided);
    for (const divider of this.root.querySelectorAll(".divider")) divider.setAttribute("aria-valuenow", Math.round(this.divided));
  }

  stale() {
    for (const figure of this.figures.values()) figure.querySelector(".frame").classList.add("stale");
  }

  caption(name, html) {
    const caption = this.figures.get(name)?.querySelector("figcaption");
    if (caption) [caption.innerHTML, caption.hidden] = [html, !html];
  }

  // Enlarge a single panel to fill the window.
  fit() {
    const single = this.root.classList.contains("many") ? null : this.root.querySelector("figure");
    if (!single) return;
    const room = NARROW.matches ? innerHeight / 2 : innerHeight - this.root.getBoundingClientRect().top - scrollY - 64;
    const height = Math.max(260, room);
    single.style.width = `${Math.min(this.root.clientWidth, (height * this.size.width) / this.size.height)}px`;
  }

  mark(x, y) {
    if (x == null) return;
    const inside = x < this.size.width && y < this.size.height;
    this.at = inside ? { x, y } : null;
    for (const probe of this.root.querySelectorAll(".probe")) {
      probe.hidden = !inside;
      probe.style.left = `${(100 * (x + 0.5)) / this.size.width}%`;
      probe.style.top = `${(100 * (y + 0.5)) / this.size.height}%`;
    }
  }

  probe(x, y) {
    const clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
    this.mark(clamp(x, this.size.width), clamp(y, this.size.height));
    this.onProbe(this.at.x, this.at.y);
  }

  setView(zoom, x, y) {
    zoom = Math.max(1, Math.min(MAX_ZOOM, zoom));
    const least = 100 - 100 * zoom;
    this.view = { zoom, x: Math.min(0, Math.max(least, x)), y: Math.min(0, Math.max(least, y)) };
    for (const name of ["zoom", "x", "y"]) this.root.style.setProperty(`--${name}`, this.view[name]);
    this.root.classList.toggle("zoomed", zoom > 1.01);
    this.onZoom?.(zoom);
  }

  // Zoom around a fixed point, in percent of the frame.
  zoomBy(factor, px = 50, py = 50) {
    const zoom = Math.max(1, Math.min(MAX_ZOOM, this.view.zoom * factor));
    const ratio = zoom / this.view.zoom;
    this.setView(zoom, px - (px - this.view.x) * ratio, py - (py - this.view.y) * ratio);
  }

  #listenToDivider(frame, divider) {
    const follow = (event) => {
      const box = frame.getBoundingClientRect();
      this.divide((100 * (event.clientX - box.left)) / box.width);
    };
    divider.addEventListener("pointerdown", (event) => {
      divider.setPointerCapture(event.pointerId);
      event.stopPropagation(); // do not move the picture
    });
    divider.addEventListener("pointermove", (event) => {
      event.stopPropagation();
      if (divider.hasPointerCapture(event.pointerId)) follow(event);
    });
    divider.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 10 : 2;
      const to = { ArrowLeft: this.divided - step, ArrowRight: this.divided + step, Home: 0, End: 100 }[event.key];
      if (to === undefined) return;
      this.divide(to);
      event.preventDefault();
      event.stopPropagation(); // do not move the probe
    });
  }

  #listen(frame) {
    let drag = null;
    const percent = (event) => {
      const box = frame.getBoundingClientRect();
      return [(100 * (event.clientX - box.left)) / box.width, (100 * (event.clientY - box.top)) / box.height];
    };
    const point = (event) => {
      const [px, py] = percent(event);
      const { zoom, x, y } = this.view;
      const column = Math.floor((((px - x) / zoom) * this.size.width) / 100);
      this.probe(column, Math.floor((((py - y) / zoom) * this.size.height) / 100));
    };
    frame.addEventListener("pointerdown", (event) => {
      drag = { at: percent(event), view: { ...this.view } };
      if (this.view.zoom > 1) frame.setPointerCapture(event.pointerId);
      point(event);
    });
    frame.addEventListener("pointermove", (event) => {
      if (drag && event.buttons && this.view.zoom > 1) {
        const [px, py] = percent(event);
        this.setView(drag.view.zoom, drag.view.x + px - drag.at[0], drag.view.y + py - drag.at[1]);
      } else point(event);
    });
    frame.addEventListener("pointerup", () => (drag = null));
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && this.view.zoom <= 1.01) return; // the page scrolls
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 300), ...percent(event));
    }, { passive: false });
    frame.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 10 : 1;
      const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
      const at = this.at ?? { x: this.size.width >> 1, y: this.size.height >> 1 };
      if (moves[event.key]) this.probe(at.x + moves[event.key][0], at.y + moves[event.key][1]);
      else if (event.key === "+" || event.key === "=") this.zoomBy(1.5);
      else if (event.key === "-") this.zoomBy(1 / 1.5);
      else return;
      event.preventDefault();
    });
  }
}
