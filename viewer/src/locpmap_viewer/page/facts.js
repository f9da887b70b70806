// Right-hand side: a pixel's distribution, areas with intervals, and quality if the true labels are known.

export const text = (value) => {
  const holder = document.createElement("span");
  holder.textContent = value;
  return holder.innerHTML;
};
export const percent = (fraction, digits = 1) => `${(100 * fraction).toFixed(digits)} %`;
const MAX_ROWS = 12;

// Bars of the most probable labels, with a tick at the network's probability.
export function showPixel(root, labels, found) {
  const bars = found.probability ?? labels.map((_, k) => Number(k === found.label));
  const order = bars.map((p, k) => k);
  if (order.length > MAX_ROWS) order.sort((a, b) => Math.max(bars[b], found.network[b]) - Math.max(bars[a], found.network[a]));
  const rows = order.slice(0, MAX_ROWS).map((k) => `
    <div class="bar${k === found.label ? " chosen" : ""}">
      <span class="swatch" data-colour="${labels[k].colour}"></span><span class="name">${text(labels[k].name)}</span>
      <span class="track"><i data-colour="${labels[k].colour}" data-width="${100 * bars[k]}"></i><u data-left="${100 * found.network[k]}"></u></span>
      <span class="number">${percent(bars[k], bars[k] > 0 && bars[k] < 0.01 ? 2 : 1)}</span>
    </div>`);
  const truth = found.truth == null ? "" : ` · true label: ${text(labels[found.truth].name)}`;
  root.innerHTML = `${rows.join("")}<p class="key"><u></u>network${truth}</p>`;
  paint(root);
}

// Mean area of each label ± standard deviation, with a bar for its 90 % interval.
export function showAreas(root, labels, areas, pixels, guaranteed, choose) {
  const most = Math.max(...areas.map((area) => area.high ?? area.mean), 1);
  root.replaceChildren(...areas.map((area, k) => {
    const row = document.createElement("button");
    const spread = area.std == null ? "" : ` <em>± ${((100 * area.std) / pixels).toFixed(2)}</em>`;
    const line = area.low == null ? "" : `<u data-left="${(100 * area.low) / most}" data-width="${(100 * (area.high - area.low)) / most}" data-ink="${labels[k].colour}"></u>`;
    row.className = "area";
    row.type = "button";
    row.title = area.low == null ? `${Math.round(area.mean)} pixels` :
      `${Math.round(area.mean)} pixels, ${guaranteed ? "guaranteed " : ""}90 % interval ${Math.round(area.low)} to ${Math.round(area.high)}; click to show the probability`;
    row.innerHTML = `<span class="swatch" data-colour="${labels[k].colour}"></span><span class="name">${text(labels[k].name)}</span>
      <span class="number">${((100 * area.mean) / pixels).toFixed(2)}${spread} %</span>
      <span class="line"><i data-colour="${labels[k].colour}" data-width="${(100 * area.mean) / most}"></i>${line}</span>`;
    row.addEventListener("click", () => choose(k));
    return row;
  }));
  paint(root);
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
