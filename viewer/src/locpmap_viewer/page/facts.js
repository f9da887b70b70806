// Right-hand side: a pixel's distribution, areas with intervals, and quality if the true labels are known.

export const text = (value) => {
  const holder = document.createElement("span");
  holder.textContent = value;
  return holder.innerHTML;
};
export const percent = (fraction, digits = 1) => `${(100 * fraction).toFixed(digits)}\u00a0%`;
const MAX_ROWS = 8;

// Bars of the most probable labels, with a tick at the network's probability.
export function showPixel(root, labels, found) {
  const bars = found.probability ?? labels.map((_, k) => Number(k === found.label));
  const order = bars.map((_, k) => k).sort((a, b) => bars[b] - bars[a] || found.network[b] - found.network[a]);
  const rows = order.slice(0, MAX_ROWS).map((k) => `
    <div class="bar${k === found.label ? " chosen" : ""}">
      <span class="swatch" data-colour="${labels[k].colour}"></span><span class="name">${text(labels[k].name)}</span>
      <span class="track"><i data-colour="${labels[k].colour}" data-width="${100 * bars[k]}"></i><u data-left="${100 * found.network[k]}"></u></span>
      <span class="number">${percent(bars[k], bars[k] > 0 && bars[k] < 0.01 ? 2 : 1)}</span>
    </div>`);
  const others = order.slice(MAX_ROWS);
  const rest = others.length ? ` · ${others.length} more labels: ${percent(others.reduce((sum, k) => sum + bars[k], 0))}` : "";
  const truth = found.truth == null ? "" : ` · true label: ${text(labels[found.truth].name)}`;
  root.innerHTML = `${rows.join("")}<p class="key"><u></u>network${rest}${truth}</p>`;
  paint(root);
}

// The least of 1, 2 or 5 times a power of ten that is at least x.
function ceiling(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return power * ([1, 2, 5].find((factor) => factor * power >= x * (1 - 1e-9)) ?? 10);
}

// Area of each label, largest first, with its 90 % interval as numbers and as a bar.  All bars have one scale.  Labels
// that are absent are folded.
export function showAreas(root, folded, labels, { areas, present, guaranteed }, pixels, choose) {
  const share = (number) => (100 * number) / pixels; // in percent of the image
  const end = Math.min(100, ceiling(Math.max(...areas.map((area) => share(Math.max(area.size, area.high ?? 0))))));
  const row = (k) => {
    const [area, button] = [areas[k], document.createElement("button")];
    const ends = area.low == null ? "" : ` <em>(${share(area.low).toFixed(1)} to ${share(area.high).toFixed(1)})</em>`;
    const line = area.low == null ? "" : `<u data-left="${(100 * share(area.low)) / end}" data-width="${(100 * share(area.high - area.low)) / end}" data-ink="${labels[k].colour}"></u>`;
    button.className = "area";
    button.type = "button";
    button.title = area.low == null ? `${Math.round(area.size)} pixels` :
      `${Math.round(area.size)} pixels, ${guaranteed ? "guaranteed " : ""}90 % interval ${Math.round(area.low)} to ${Math.round(area.high)}; click to show the probability`;
    button.innerHTML = `<span class="swatch" data-colour="${labels[k].colour}"></span><span class="name">${text(labels[k].name)}</span>
      <span class="number">${share(area.size).toFixed(1)}${ends} %</span>
      <span class="line"><i data-colour="${labels[k].colour}" data-width="${(100 * share(area.size)) / end}"></i>${line}</span>`;
    button.addEventListener("click", () => choose(k));
    return button;
  };
  const order = areas.map((_, k) => k).sort((a, b) => areas[b].size - areas[a].size || (areas[b].high ?? 0) - (areas[a].high ?? 0));
  const absent = order.filter((k) => !present[k]);
  const scale = document.createElement("p");
  scale.className = "scale";
  scale.innerHTML = `<span>0</span><span>${+end.toPrecision(2)} %</span>`;
  root.replaceChildren(...order.filter((k) => present[k]).map(row), scale);
  folded.hidden = !absent.length;
  folded.querySelector("summary").textContent = absent.length === 1 ? "1 label absent" : `${absent.length} labels absent`;
  folded.querySelector("div").replaceChildren(...absent.map(row));
  for (const each of [root, folded]) paint(each);
}

export function showQuality(card, table, results) {
  const rows = results.filter((result) => result.quality);
  card.hidden = !rows.length;
  const number = (value) => (value == null ? "–" : value.toFixed(3).replace(/^0/, ""));
  table.innerHTML = `<tr><th></th><th>accuracy</th><th>mean IoU</th><th title="negative log-likelihood: lower is better">NLL</th></tr>` +
    rows.map(({ title, quality }) => `<tr><td>${text(title)}</td><td>${number(quality.accuracy)}</td><td>${number(quality.iou)}</td><td>${number(quality.nll)}</td></tr>`).join("");
}

// Set styles by script: the content security policy forbids inline styles.
export function paint(root) {
  for (const each of root.querySelectorAll("[data-colour]")) each.style.background = each.dataset.colour;
  for (const each of root.querySelectorAll("[data-ink]")) each.style.color = each.dataset.ink;
  for (const each of root.querySelectorAll("[data-width]")) each.style.width = `${each.dataset.width}%`;
  for (const each of root.querySelectorAll("[data-left]")) each.style.left = `${each.dataset.left}%`;
}
