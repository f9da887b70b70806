// The viewer: the sliders request results, which are drawn in the panels.

import * as api from "./api.js";
import { paint, percent, showAreas, showPixel, showQuality, text } from "./facts.js";
import { Panels } from "./panels.js";
import { listenForFiles, save, savePicture } from "./files.js";
import { listenForTheme } from "./theme.js";

const $ = (id) => document.getElementById(id);
const SLIDERS = ["smoothing", "temperature", "n_samples"];
const LAYERS = { labels: "Labels", network: "Network", probability: "Probability", variance: "Variance", entropy: "Entropy", sample: "Samples", truth: "True labels" };
const OF_ONE = ["network", "sample", "truth"]; // layers of the Explore view only
const OF_LABEL = ["probability", "variance"];
const COMPARED = ["network", "icm", "mean_field", "lbp", "locpmap"];
const PREVIEW = 16; // number of samples of a preview
const SLOW = 1.2; // seconds; slower runs show a preview first
const USUAL = ["complete", "converged", "exact"]; // statuses that are not shown
const PATIENCE = 160; // milliseconds from the last move of a slider to a run
const MAX_PICTURES = 80;

const state = { id: null, scene: null, photo: null, layer: "labels", label: null, sample: 0, seed: 0, request: 0, pace: Infinity, results: new Map() };
const pictures = new Map(); // object URLs of fetched layers, oldest first
let info, timer, player;

const panels = new Panels($("panels"), (x, y) => probe(x, y));
panels.onZoom = (zoom) => ($("fit").textContent = `${zoom < 10 ? +zoom.toFixed(1) : Math.round(zoom)}×`);
const comparing = () => chosen("view") === "compare";
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
const methods = () => (comparing() ? [...$("methods").querySelectorAll("input:checked")].map((box) => box.value) : ["network", "locpmap"]);

// Settings

function settings() {
  const values = Object.fromEntries(SLIDERS.map((name) => [name, Number($(name).value)]));
  return { ...values, blocks: chosen("blocks"), seed: state.seed };
}

function showSlider(slider) {
  const output = document.querySelector(`output[for="${slider.id}"]`);
  slider.style.setProperty("--fill", `${(100 * (slider.value - slider.min)) / Math.max(slider.max - slider.min, 1e-9)}%`);
  if (output) output.textContent = slider.id === "sample" ? `${+slider.value + 1} of ${+slider.max + 1}` : slider.id === "n_samples" ? slider.value : Number(slider.value).toFixed(2);
}

function soon() {
  clearTimeout(timer);
  busy(true);
  timer = setTimeout(run, PATIENCE);
}

// Runs

function busy(yes) {
  $("panels").setAttribute("aria-busy", yes);
  if (yes) panels.stale();
  else $("progress").hidden = true;
}

async function run() {
  clearTimeout(timer);
  if (!state.scene) return;
  const request = ++state.request;
  const wanted = methods();
  panels.show(comparing() ? wanted : ["locpmap"], state.scene, state.photo);
  busy(true);
  if (comparing()) for (const name of wanted) if (!state.results.has(name)) panels.caption(name, `<b>${info.methods[name]}</b><span class="stats">waiting</span>`);
  for (const name of state.results.keys()) if (!wanted.includes(name)) state.results.delete(name);
  const began = performance.now();
  let over = false;
  const watch = setInterval(() => showProgress(() => !over && request === state.request, began), 200);
  try {
    for (const method of wanted) {
      for (const n_samples of rounds(method)) {
        state.decoding = method;
        const result = await api.decode({ ...settings(), scene: state.id, method, n_samples });
        if (request !== state.request || result.superseded) return;
        if (method === "locpmap") state.pace = result.seconds / n_samples;
        state.results.set(method, result);
        await draw(method);
        showFacts();
      }
    }
    hideAlert();
  } catch (error) {
    if (request === state.request) showAlert(error);
  } finally {
    over = true;
    clearInterval(watch);
    if (request === state.request) busy(false);
  }
}

// Numbers of samples to request one after another: slow runs begin with a preview.
function rounds(method) {
  const { n_samples } = settings();
  const slow = method === "locpmap" && state.pace * n_samples > SLOW && n_samples > PREVIEW;
  return slow ? [PREVIEW, n_samples] : [n_samples];
}

async function showProgress(going, began) {
  if (!going() || performance.now() - began < 350) return;
  const found = await api.progress().catch(() => null);
  if (!going()) return; // the run has ended: do not overwrite its status
  const bar = $("progress");
  const fraction = found && found.total ? found.done / found.total : 0;
  bar.hidden = false;
  bar.classList.toggle("known", fraction > 0);
  bar.style.setProperty("--fraction", fraction);
  if (fraction) bar.setAttribute("aria-valuenow", Math.round(100 * fraction));
  else bar.removeAttribute("aria-valuenow");
  const first = !fraction && !state.results.has(state.decoding) && performance.now() - began > 2500;
  const now = fraction && state.decoding === "locpmap" ? ` · ${found.done} of ${found.total} samples` : first ? " · compiling (first run only)" : "";
  $("status").textContent = `${info.methods[state.decoding]}${now} …`;
}

// Pictures

async function picture(key, choice) {
  const name = JSON.stringify([key, choice]);
  if (!pictures.has(name)) {
    const address = URL.createObjectURL(await api.layer(key, choice));
    pictures.set(name, address);
    for (const [old, gone] of [...pictures].slice(0, Math.max(0, pictures.size - MAX_PICTURES))) {
      URL.revokeObjectURL(gone);
      pictures.delete(old);
    }
  }
  return pictures.get(name);
}

async function draw(method) {
  const [layer, result] = [comparing() && OF_ONE.includes(state.layer) ? "labels" : state.layer, state.results.get(method)];
  if (!comparing() && method === "network" && result && !state.results.has("locpmap")) return drawNetwork(result);
  if (!result || (!comparing() && method !== "locpmap")) return;
  const request = state.request;
  const choice = { kind: layer };
  if (OF_LABEL.includes(layer)) choice.label = state.label;
  if (layer === "sample") choice.sample = state.sample = Math.min(state.sample, result.n_stored - 1);
  let key = result.key;
  if (layer === "network") [choice.kind, key] = ["labels", state.results.get("network")?.key];
  const able = result.probable || ["labels", "network", "sample", "truth"].includes(layer);
  const source = able && key ? await picture(key, choice) : null;
  if (request !== state.request || (layer === "sample" && choice.sample !== state.sample)) return; // outdated
  panels.overlay(method, source, { alt: `${layer === "sample" ? `Sample ${state.sample + 1}` : LAYERS[layer]} by ${result.title}`, none: able ? "" : "returns labels only" });
  panels.caption(method, comparing() ? caption(result) : "");
}

// Show the network's labels until the first result arrives.
async function drawNetwork(result) {
  const request = state.request;
  const source = await picture(result.key, { kind: "labels" });
  if (request === state.request) panels.overlay("locpmap", source, { alt: "Labels by the network", none: "network’s labels, until samples are drawn" });
}

function caption(result) {
  const stats = result.quality ? [`IoU ${result.quality.iou.toFixed(3).replace(/^0/, "")}`] : [];
  if (result.method !== "network") stats.push(`${percent(result.changed)} changed`, `${result.seconds.toFixed(2)} s`);
  return `<b>${text(result.title)}</b><span class="here"></span><span class="stats">${stats.join(" · ")}</span>`;
}

async function drawAll() {
  showTools();
  try {
    await Promise.all([...panels.figures.keys()].map(draw));
    if (panels.at) probe(panels.at.x, panels.at.y);
  } catch (error) {
    error.status === 404 ? run() : showAlert(error);
  }
}

// Texts and numbers

function showTools() {
  const layer = state.layer;
  const result = state.results.get("locpmap");
  for (const input of document.querySelectorAll("input[name=layer]")) {
    input.closest("label").hidden = (comparing() && OF_ONE.includes(input.value)) || (input.value === "truth" && !state.scene?.truth);
    input.checked = input.value === (comparing() && OF_ONE.includes(layer) ? "labels" : layer);
  }
  $("of").hidden = !OF_LABEL.includes(layer);
  $("flip").hidden = layer !== "sample" || comparing() || !result?.n_stored;
  if (!$("flip").hidden) {
    [$("sample").max, $("sample").value] = [result.n_stored - 1, state.sample];
    showSlider($("sample"));
  } else stopPlaying();
  const ends = { probability: ["0", "1"], variance: ["0", "¼"], entropy: ["0", `ln ${state.scene?.labels.length} nats`] }[layer];
  $("ramp").hidden = !ends;
  if (ends) {
    const [low, band, high] = $("ramp").children;
    [low.textContent, high.textContent] = ends;
    band.style.background = `linear-gradient(90deg, ${info.ramps[layer === "probability" ? "probability" : "doubt"].join(", ")})`;
  }
}

function showFacts() {
  const { labels, width, height } = state.scene;
  const main = state.results.get("locpmap") ?? [...state.results.values()].at(-1);
  if (!main) return;
  showTools();
  $("interval").textContent = `${main.guaranteed ? "guaranteed " : ""}90 % interval`;
  showAreas($("areas"), labels, main.areas, width * height, main.guaranteed, (k) => chooseLabel(k));
  showQuality($("quality-card"), $("quality"), [...state.results.values()]);
  const samples = main.n_samples ? ` · ${main.n_samples} samples` : "";
  const ending = USUAL.includes(main.status) ? "" : ` · ${main.status}`;
  $("status").textContent = `${main.title}${samples} · ${main.seconds.toFixed(2)} s · ${percent(main.changed)} changed${ending}`;
  $("status").title = `${percent(main.changed)} of the labels differ from the network’s; status: ${main.status}`;
  $("save-probability").disabled = !main.probable;
  if (panels.at) probe(panels.at.x, panels.at.y);
}

function chooseLabel(k) {
  state.label = k;
  $("label").value = k ?? "";
  if (!OF_LABEL.includes(state.layer)) state.layer = "probability";
  drawAll();
}

let position = null;
let requesting = false;
async function probe(x, y) {
  position = { x, y };
  if (requesting) return; // the newest position is requested after the current response
  requesting = true;
  try {
    while (position) {
      const at = position;
      position = null;
      const shown = (comparing() ? [...panels.figures.keys()] : ["network", "locpmap"]).filter((name) => state.results.has(name));
      const found = await Promise.all(shown.map((name) => api.pixel(state.results.get(name).key, at.x, at.y)));
      const { labels } = state.scene;
      const main = found[shown.indexOf("locpmap")] ?? found.at(-1);
      if (main) showPixel($("pixel"), labels, main);
      $("where").textContent = `column ${at.x}, row ${at.y}`;
      if (comparing()) shown.forEach((name, n) => here(name, labels[found[n].label], found[n]));
    }
  } catch (error) {
    if (error.status !== 404) showAlert(error); // the result was evicted and is computed again
  } finally {
    requesting = false;
  }
}

function here(name, label, found) {
  const place = panels.figures.get(name)?.querySelector(".here");
  if (!place) return;
  const probability = found.probability ? ` ${percent(found.probability[found.label], 0)}` : "";
  place.innerHTML = `<i class="swatch" data-colour="${label.colour}"></i>${text(label.name)}${probability}`;
  paint(place);
}

function showAlert(error) {
  if (!(error instanceof api.Refusal)) console.error(error);
  $("alert").hidden = false;
  $("alert").querySelector("p").textContent = error.message;
}

const hideAlert = () => ($("alert").hidden = true);

// Scenes

async function list() {
  info = await api.scenes();
  const groups = { upload: "Opened", folder: "Folder", example: "Examples" };
  $("scene").replaceChildren(...Object.entries(groups).flatMap(([source, title]) => {
    const members = info.scenes.filter((scene) => scene.source === source);
    if (!members.length) return [];
    const group = document.createElement("optgroup");
    group.label = title;
    group.append(...members.map((scene) => new Option(scene.title, scene.id)));
    return [group];
  }));
}

async function open(id) {
  try {
    const [scene, photo] = await Promise.all([api.scene(id), api.image(id)]);
    if (state.photo) URL.revokeObjectURL(state.photo);
    Object.assign(state, { id, scene, photo: URL.createObjectURL(photo), label: null, sample: 0 });
    state.results.clear();
    if (state.layer === "truth" && !scene.truth) state.layer = "labels";
    $("scene").value = id;
    $("label").replaceChildren(new Option("the predicted label", ""), ...scene.labels.map(({ name }, k) => new Option(name, k)));
    panels.at = null;
    $("where").textContent = "";
    $("pixel").innerHTML = `<p class="hint">Point at the image, or focus it and use the arrow keys.</p>`;
    $("size").textContent = `${scene.width} × ${scene.height}, logits ${scene.logits.join(" × ")}`;
    document.title = `${scene.title} · locpmap viewer`;
    hideAlert();
    await run();
  } catch (error) {
    showAlert(error);
  }
}

// Playing the samples

function flip(to) {
  const n = state.results.get("locpmap")?.n_stored ?? 0;
  if (!n) return;
  state.sample = (to + n) % n;
  return drawAll();
}

async function play() {
  if (player) return stopPlaying();
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "Stop");
  const mine = (player = {});
  while (player === mine) {
    await flip(state.sample + 1);
    await new Promise((resume) => setTimeout(resume, 280));
  }
}

function stopPlaying() {
  player = null;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "Play the samples");
}

// Events

function listen() {
  for (const slider of document.querySelectorAll("input[type=range]")) {
    showSlider(slider);
    slider.addEventListener("input", () => showSlider(slider));
  }
  for (const name of SLIDERS) $(name).addEventListener("input", soon);
  for (const input of document.querySelectorAll("input[name=blocks]")) input.addEventListener("change", soon);
  $("redraw").addEventListener("click", () => (state.seed++, soon()));
  $("reset").addEventListener("click", () => {
    for (const name of SLIDERS) ($(name).value = $(name).defaultValue), showSlider($(name));
    document.querySelector("input[name=blocks]").checked = true;
    state.seed = 0;
    soon();
  });
  $("opacity").addEventListener("input", () => document.documentElement.style.setProperty("--opacity", $("opacity").value));
  document.documentElement.style.setProperty("--opacity", $("opacity").value);
  $("label").addEventListener("change", () => chooseLabel($("label").value === "" ? null : Number($("label").value)));
  $("sample").addEventListener("input", () => (stopPlaying(), flip(Number($("sample").value))));
  $("play").addEventListener("click", play);
  $("previous").addEventListener("click", () => (stopPlaying(), flip(state.sample - 1)));
  $("next").addEventListener("click", () => (stopPlaying(), flip(state.sample + 1)));
  $("scene").addEventListener("change", () => open($("scene").value));
  for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", () => (($("methods").hidden = !comparing()), showTools(), run()));
  $("in").addEventListener("click", () => panels.zoomBy(1.5));
  $("out").addEventListener("click", () => panels.zoomBy(1 / 1.5));
  $("fit").addEventListener("click", () => panels.setView(1, 0, 0));
  $("alert").querySelector("button").addEventListener("click", hideAlert);
  const name = (what) => `${state.scene.title}-${what}`.replace(/[^\w.-]+/g, "_");
  const shown = () => state.results.get("locpmap") ?? [...state.results.values()].at(-1);
  const guarded = (action) => () => Promise.resolve().then(action).catch(showAlert);
  $("save-picture").addEventListener("click", guarded(() => savePicture(panels, $("opacity").value, name(`${comparing() ? "decoders" : "locpmap"}-${state.layer}.png`))));
  $("save-labels").addEventListener("click", guarded(async () => save(await api.layer(shown().key, { kind: "labels" }), name("labels.png"))));
  $("save-probability").addEventListener("click", guarded(async () => save(await api.probability(shown().key), name("probability.npy"))));
  addEventListener("keydown", (event) => {
    if (event.target.matches("select, input:not([type=radio], [type=checkbox], [type=range])") || event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
    const layer = Object.keys(LAYERS)[Number(event.key) - 1];
    const radio = layer && document.querySelector(`input[name=layer][value=${layer}]`);
    if (radio && !radio.closest("label").hidden) radio.click();
    else if (event.key === "," || event.key === ".") flip(state.sample + (event.key === "." ? 1 : -1));
  });
}

function build() {
  const choice = (group, type, value, title, on) => {
    const label = document.createElement("label");
    label.innerHTML = `<input type="${type}" name="${group}" value="${value}"><span>${title}</span>`;
    label.firstChild.checked = on;
    return label;
  };
  $("layers").append(...Object.entries(LAYERS).map(([value, title], n) => {
    const label = choice("layer", "radio", value, title, value === state.layer);
    label.title = `${title} (key ${n + 1})`;
    label.firstChild.addEventListener("change", () => ((state.layer = value), drawAll()));
    return label;
  }));
  $("methods").append(...Object.entries(info.methods).map(([value, title]) => {
    const label = choice("method", "checkbox", value, title, COMPARED.includes(value));
    label.firstChild.addEventListener("change", run);
    return label;
  }));
}

async function begin() {
  listenForTheme($("theme"));
  try {
    await list();
  } catch (error) {
    return showAlert(error);
  }
  for (const name of SLIDERS) [$(name).min, $(name).max] = info.limits[name];
  build();
  listen();
  listenForFiles(async (image, logits, layout) => {
    const { id } = await api.upload(image, logits, layout);
    await list();
    open(id); // errors of `open` are shown on the page, not in the dialog
  });
  await open(info.scenes[0].id);
}

begin();
