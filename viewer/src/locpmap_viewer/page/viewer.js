// The viewer: the sliders request results, which are drawn in the panels.

import * as api from "./api.js";
import { paint, percent, showAreas, showPixel, showQuality, text } from "./facts.js";
import { Panels } from "./panels.js";
import { progressText, seconds } from "./progress.js";
import { listenForFiles, save, savePicture } from "./files.js";
import { listenForTheme } from "./theme.js";

const $ = (id) => document.getElementById(id);
const SLIDERS = ["smoothing", "temperature", "n_samples"];
const LAYERS = { labels: "Labels", network: "Network", probability: "Probability", variance: "Variance", entropy: "Entropy", sample: "Samples", truth: "True labels", difference: "Differences" };
const OF_ONE = ["network", "sample", "truth"]; // layers of the Explore view only
const OF_MANY = ["difference"]; // layers of the Compare view only
const OF_LABELS = ["labels", "network", "sample", "truth"]; // layers with outlines
const OF_LABEL = ["probability", "variance"];
const COMPARED = ["network", "icm", "mean_field", "lbp", "locpmap"];
const PREVIEW = 4; // number of samples of a preview; its labels are final
const SLOW = 1.2; // seconds; slower runs show a preview first
const CONTROLS = [...SLIDERS, "blocks", "seed"];
const USUAL = ["complete", "converged", "exact"]; // statuses that are not shown
const PATIENCE = 160; // milliseconds from the last move of a slider to a run
const MAX_PICTURES = 80;

const state = { id: null, scene: null, photo: null, layer: "labels", label: null, sample: 0, seed: 0, request: 0, pace: Infinity, moved: 0, results: new Map() };
const pictures = new Map(); // fetched layers: their object URL, oldest first
let info, timer, player, opening;
let abort = new AbortController(); // of the requests of the current run

const panels = new Panels($("panels"), (x, y) => probe(x, y));
panels.onZoom = (zoom) => {
  $("zoom").textContent = `${zoom < 10 ? +zoom.toFixed(1) : Math.round(zoom)}×`;
  for (const id of ["out", "fit"]) disable($(id), zoom <= 1 ? "The whole image is shown." : "");
};
const comparing = () => chosen("view") === "compare";
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
const shownLayer = () => ((comparing() ? OF_ONE : OF_MANY).includes(state.layer) ? "labels" : state.layer);
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

// Disable a control for a reason, or enable it if the reason is empty.
function disable(control, reason) {
  control.disabled = Boolean(reason);
  (control.closest("label") ?? control).title = control.title = reason;
}

// Disable controls that change no displayed result.
function showControls() {
  const titles = (names) => new Intl.ListFormat("en-GB").format(names.map((name) => info.methods[name]));
  const chosen = methods();
  for (const name of CONTROLS) {
    const users = Object.keys(info.methods).filter((method) => info.used[method].includes(name));
    let reason = "";
    if (chosen.length && !chosen.some((method) => users.includes(method))) reason = `No effect on ${titles(chosen)}. Decoders that use it: ${titles(users)}.`;
    else if (name === "blocks" && state.results.get("locpmap")?.coupled === false) reason = "The model of this image has no weights between neighbours, so blocks have no effect. Smoothing adds such weights.";
    const note = $(`${name}-note`);
    if (note) note.textContent = reason || (note.dataset.text ??= note.textContent);
    for (const control of name === "blocks" ? document.querySelectorAll("input[name=blocks]") : [$(name)]) disable(control, reason);
  }
}

// Runs

function soon() {
  stop();
  busy(true);
  $("status").textContent = "Updating …";
  state.moved = performance.now();
  timer = setTimeout(run, PATIENCE);
}

// Stop the current run; the server then stops its decoder.
function stop() {
  clearTimeout(timer);
  state.request++;
  abort.abort();
}

function busy(yes) {
  $("panels").setAttribute("aria-busy", yes);
  document.body.classList.toggle("busy", yes);
  if (yes) panels.stale();
  else $("progress").hidden = true;
}

function again() {
  state.moved = performance.now();
  run();
}

async function run() {
  stop();
  if (!state.scene) return;
  const request = state.request;
  abort = new AbortController();
  const wanted = methods();
  panels.show(comparing() ? wanted : ["locpmap"], state.scene, state.photo);
  busy(true);
  showControls();
  if (comparing()) for (const name of wanted) if (!state.results.has(name)) panels.caption(name, `<b>${info.methods[name]}</b><span class="stats">waiting</span>`);
  const earlier = new Map(state.results); // tells how long decoders take
  for (const name of earlier.keys()) if (!wanted.includes(name)) state.results.delete(name);
  let over = false;
  const watch = setInterval(() => showProgress(() => !over && request === state.request, wanted, earlier), 200);
  try {
    for (const method of wanted) {
      for (const n_samples of rounds(method)) {
        const preview = method === "locpmap" && n_samples < settings().n_samples;
        Object.assign(state, { decoding: method, preview });
        const result = await api.decode({ ...settings(), scene: state.id, method, n_samples }, abort.signal);
        if (request !== state.request || result.superseded) return;
        state.results.set(method, result);
        if (!preview && method === "locpmap") state.pace = result.seconds / n_samples;
        if (preview && state.layer === "sample") continue;
        await (shownLayer() === "difference" ? Promise.all([...state.results.keys()].map(draw)) : draw(method));
        if (!preview) showFacts();
      }
    }
    if (request === state.request) hideAlert(), showStatus();
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

async function showProgress(going, wanted, earlier) {
  if (!going() || performance.now() - state.moved < 350) return;
  const found = await api.progress().catch(() => null);
  if (!going() || !found) return; // the run has ended, or no decoder runs at the moment
  const bar = $("progress");
  const fraction = found.left == null ? found.done / found.total : found.seconds / (found.seconds + found.left);
  bar.hidden = false;
  bar.classList.toggle("known", fraction > 0);
  bar.style.setProperty("--fraction", fraction);
  if (fraction) bar.setAttribute("aria-valuenow", Math.round(100 * fraction));
  else bar.removeAttribute("aria-valuenow");
  const at = wanted.indexOf(state.decoding);
  const rest = wanted.slice(at + 1).map((name) => earlier.get(name)?.seconds ?? Infinity);
  if (state.preview) rest.push(state.pace * settings().n_samples);
  const later = rest.reduce((sum, time) => sum + time, 0);
  const place = comparing() ? ` (decoder ${at + 1} of ${wanted.length})` : "";
  const samples = state.decoding === "locpmap" && !state.preview;
  $("status").textContent = progressText(info.methods[state.decoding] + place, found, samples, Number.isFinite(later) ? later : undefined);
}

// Pictures

async function picture(name, fetched) {
  if (!pictures.has(name)) {
    const { blob, ...facts } = await fetched();
    pictures.set(name, { address: URL.createObjectURL(blob), ...facts });
    for (const [old, gone] of [...pictures].slice(0, Math.max(0, pictures.size - MAX_PICTURES))) {
      URL.revokeObjectURL(gone.address);
      pictures.delete(old);
    }
  }
  return pictures.get(name);
}

// A layer of a result; layers of labels have outlines if chosen.
async function layerPicture(key, kind, sample) {
  const choice = { kind };
  if (OF_LABEL.includes(kind)) choice.label = state.label;
  if (OF_LABELS.includes(kind)) choice.outline = $("outline").checked;
  if (kind === "sample") choice.sample = sample;
  return (await picture(JSON.stringify([key, choice]), async () => ({ blob: await api.layer(key, choice) }))).address;
}

async function draw(method) {
  const [layer, result] = [shownLayer(), state.results.get(method)];
  if (!comparing() && method === "network" && result && !state.results.has("locpmap")) return drawNetwork(result);
  if (!result || (!comparing() && method !== "locpmap")) return;
  if (layer === "difference") return drawDifference(method, result);
  const request = state.request;
  const network = state.results.get("network")?.key;
  const sample = Math.min(state.sample, result.n_stored - 1);
  const able = result.probable || OF_LABELS.includes(layer);
  const source = !able ? null : layer === "network" ? await layerPicture(network, "labels") : await layerPicture(result.key, layer, sample);
  const wiping = !comparing() && $("wipe").checked && layer !== "network";
  const before = wiping ? await layerPicture(network, OF_LABELS.includes(layer) ? "labels" : layer) : null;
  if (request !== state.request || layer !== shownLayer() || (layer === "sample" && sample !== Math.min(state.sample, result.n_stored - 1))) return; // outdated
  panels.overlay(method, source, { alt: `${layer === "sample" ? `Sample ${sample + 1}` : LAYERS[layer]} by ${result.title}`, none: able ? "" : "returns labels only" });
  panels.before(method, before, layer === "sample" ? `Sample ${sample + 1}` : layer === "truth" ? "True labels" : "Refined");
  panels.caption(method, comparing() ? caption(result, usualStats(result)) : "");
}

// Colour the pixels whose label differs from the reference; in the reference itself, from any other decoder.
async function drawDifference(method, result) {
  const request = state.request;
  const reference = $("reference").value;
  const others = reference === method ? [...state.results.keys()].filter((name) => name !== method) : [reference].filter((name) => state.results.has(name));
  if (methods().length === 1 && reference !== "truth") panels.overlay(method, null, { alt: "", none: "choose another decoder to compare with" });
  if (!others.length && reference !== "truth") return;
  const keys = others.map((name) => state.results.get(name).key);
  const found = await picture(JSON.stringify([result.key, keys, reference]), () => api.difference(result.key, keys, reference === "truth"));
  if (request !== state.request || shownLayer() !== "difference" || reference !== $("reference").value) return; // outdated
  const from = reference === method ? "another decoder" : reference === "truth" ? "the true labels" : info.methods[reference];
  panels.overlay(method, found.address, { alt: `Differences by ${result.title}` });
  panels.caption(method, caption(result, [`${percent(found.fraction)} of the pixels differ from ${from}`]));
}

// Show the network's labels until the first result arrives.
async function drawNetwork(result) {
  const request = state.request;
  const source = await layerPicture(result.key, "labels");
  if (request === state.request) panels.overlay("locpmap", source, { alt: "Labels by the network", none: "network’s labels, until samples are drawn" });
}

function usualStats(result) {
  const stats = result.quality ? [`IoU ${result.quality.iou.toFixed(3).replace(/^0/, "")}`] : [];
  if (result.method !== "network") stats.push(`${percent(result.changed)} changed`, seconds(result.seconds));
  return stats;
}

function caption(result, stats) {
  return `<b>${text(result.title)}</b><span class="here"></span><span class="stats">${stats.join(" · ")}</span>`;
}

async function drawAll() {
  showTools();
  try {
    await Promise.all([...panels.figures.keys()].map(draw));
    if (panels.at) probe(panels.at.x, panels.at.y);
  } catch (error) {
    error.status === 404 ? again() : showAlert(error);
  }
}

// Texts and numbers

function showTools() {
  const layer = shownLayer();
  const result = state.results.get("locpmap");
  for (const input of document.querySelectorAll("input[name=layer]")) {
    input.closest("label").hidden = (comparing() ? OF_ONE : OF_MANY).includes(input.value);
    input.checked = input.value === layer;
    const missing = input.value === "truth" && !state.scene?.truth;
    disable(input, missing ? `The true labels are unknown: save them as ${state.scene?.title}.truth.png in the folder of the image.` : "");
    if (!missing) input.closest("label").title = `${LAYERS[input.value]} (key ${Object.keys(LAYERS).indexOf(input.value) + 1})`;
  }
  disable($("wipe"), comparing() ? "Only in the Explore view." : layer === "network" ? "The network’s labels are shown: choose another layer." : "");
  if (!$("wipe").disabled) $("wipe").closest("label").title = "Drag a divider between the network and the refined result.";
  disable($("outline"), OF_LABELS.includes(layer) ? "" : `${LAYERS[layer]}: only layers of labels have outlines.`);
  disable($("opacity"), layer === "difference" ? "Differences are always opaque." : "");
  $("panels").classList.toggle("differing", layer === "difference");
  $("from").hidden = layer !== "difference";
  showReferences();
  $("of").hidden = !OF_LABEL.includes(layer);
  $("flip").hidden = layer !== "sample" || comparing() || !result?.n_stored;
  if (!$("flip").hidden) {
    [$("sample").max, $("sample").value] = [result.n_stored - 1, Math.min(state.sample, result.n_stored - 1)];
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

// The decoders to compare with, and the true labels if they are known.
function showReferences() {
  const names = [...methods(), ...(state.scene?.truth ? ["truth"] : [])];
  if (names.join() === [...$("reference").options].map((option) => option.value).join()) return;
  const old = $("reference").value;
  $("reference").replaceChildren(...names.map((name) => new Option(name === "truth" ? "the true labels" : info.methods[name], name)));
  $("reference").value = [old, "locpmap", "network", names[0]].find((name) => names.includes(name)) ?? "";
}

const mainResult = () => state.results.get("locpmap") ?? [...state.results.values()].at(-1);

function showFacts() {
  const { labels, width, height } = state.scene;
  const main = mainResult();
  if (!main) return;
  showTools();
  showControls();
  $("interval").textContent = `${main.guaranteed ? "guaranteed " : ""}90 % interval`;
  showAreas($("areas"), $("absent"), labels, main, width * height, (k) => chooseLabel(k));
  showQuality($("quality-card"), $("quality"), [...state.results.values()]);
  disable($("save-probability"), main.probable ? "" : `${main.title} returns labels only.`);
  if (panels.at) probe(panels.at.x, panels.at.y);
}

// The time is that from the last change on the page to the last picture.
function showStatus() {
  const main = mainResult();
  if (!main) return ($("status").textContent = "Choose a decoder.");
  const parts = comparing() ? [`${state.results.size} decoders`] : [main.title];
  if (main.n_samples) parts.push(`${main.n_samples} samples`);
  if (!comparing()) parts.push(`${percent(main.changed)} changed`);
  if (!USUAL.includes(main.status) && !comparing()) parts.push(main.status);
  $("status").textContent = [...parts, `updated in ${seconds((performance.now() - state.moved) / 1000)}`].join(" · ");
  $("status").title = `${percent(main.changed)} of the labels of ${main.title} differ from the network’s; status: ${main.status}`;
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
  stop();
  busy(true);
  opening = id;
  state.moved = performance.now();
  $("status").textContent = `Opening ${info.scenes.find((scene) => scene.id === id)?.title ?? "the image"} …`;
  try {
    const [scene, photo] = await Promise.all([api.scene(id), api.image(id)]);
    if (opening !== id) return; // a newer scene was chosen
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
    if (opening !== id) return;
    busy(false);
    $("status").textContent = "";
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

// Compare opens with the differences between decoders: five maps of labels look alike.
function changeView() {
  $("methods").hidden = !comparing();
  if (comparing() && OF_LABELS.includes(state.layer)) state.layer = "difference";
  showTools();
  again();
}

async function play() {
  if (player) return stopPlaying();
  $("play").textContent = "Stop";
  const mine = (player = {});
  while (player === mine) {
    await flip(state.sample + 1);
    await new Promise((resume) => setTimeout(resume, 280));
  }
}

function stopPlaying() {
  player = null;
  $("play").textContent = "Play";
}

// Events

function listen() {
  for (const slider of document.querySelectorAll("input[type=range]")) {
    showSlider(slider);
    slider.addEventListener("input", () => showSlider(slider));
  }
  for (const name of SLIDERS) $(name).addEventListener("input", soon);
  for (const input of document.querySelectorAll("input[name=blocks]")) input.addEventListener("change", soon);
  $("seed").addEventListener("click", () => (state.seed++, soon()));
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
  for (const box of $("methods").querySelectorAll("input")) box.addEventListener("change", () => (showTools(), again()));
  for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", changeView);
  for (const id of ["wipe", "outline", "reference"]) $(id).addEventListener("change", drawAll);
  $("in").addEventListener("click", () => panels.zoomBy(1.5));
  $("out").addEventListener("click", () => panels.zoomBy(1 / 1.5));
  $("fit").addEventListener("click", () => panels.setView(1, 0, 0));
  $("alert").querySelector("button").addEventListener("click", hideAlert);
  const name = (what) => `${state.scene.title}-${what}`.replace(/[^\w.-]+/g, "_");
  const guarded = (action) => () => Promise.resolve().then(action).catch(showAlert);
  $("save-picture").addEventListener("click", guarded(() => savePicture(panels, $("opacity").value, name(`${comparing() ? "decoders" : "locpmap"}-${state.layer}.png`))));
  $("save-labels").addEventListener("click", guarded(async () => save(await api.layer(mainResult().key, { kind: "labels" }), name("labels.png"))));
  $("save-probability").addEventListener("click", guarded(async () => save(await api.probability(mainResult().key), name("probability.npy"))));
  addEventListener("keydown", (event) => {
    if (event.target.matches("select, input:not([type=radio], [type=checkbox], [type=range])") || event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
    const layer = Object.keys(LAYERS)[Number(event.key) - 1];
    const radio = layer && document.querySelector(`input[name=layer][value=${layer}]`);
    if (radio && !radio.disabled && !radio.closest("label").hidden) radio.click();
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
  $("layers").append(...Object.entries(LAYERS).map(([value, title]) => {
    const label = choice("layer", "radio", value, title, value === state.layer);
    label.firstChild.addEventListener("change", () => ((state.layer = value), drawAll()));
    return label;
  }));
  $("methods").append(...Object.entries(info.methods).map(([value, title]) => choice("method", "checkbox", value, title, COMPARED.includes(value))));
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
  panels.setView(1, 0, 0);
  await open(info.scenes[0].id);
}

begin();
