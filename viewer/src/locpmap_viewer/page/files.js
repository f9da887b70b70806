// Opening files, by the dialog or by dropping them on the page, and saving files.

const $ = (id) => document.getElementById(id);
const GAP = 16;
const CAPTION = 30;

export function listenForFiles(send) {
  const dialog = $("dialog");
  $("open").addEventListener("click", () => {
    $("dialog-error").textContent = "";
    dialog.showModal();
  });
  $("cancel").addEventListener("click", () => dialog.close());

  async function submit(image, logits) {
    $("upload").disabled = true;
    $("dialog-error").textContent = "";
    try {
      await send(image, logits, $("layout").value);
      dialog.close();
    } catch (error) {
      $("dialog-error").textContent = error.message;
    } finally {
      $("upload").disabled = false;
    }
  }

  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit($("file-image").files[0], $("file-logits").files[0]);
  });

  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const files = [...event.dataTransfer.files];
    const [logits, image] = [files.find(({ name }) => /\.(np[yz]|safetensors)$/i.test(name)), files.find(({ name }) => /\.(png|jpe?g)$/i.test(name))];
    if (!dialog.open) dialog.showModal();
    if (image && logits) return submit(image, logits);
    $("dialog-error").textContent = "Drop two files together: an image (.png, .jpg) and its logits (.npy, .npz, .safetensors).";
  });
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Save the photograph and overlay of every panel at the image's resolution; several panels side by side with captions.
export async function savePicture(panels, opacity, name) {
  const figures = [...panels.figures.values()];
  const { width, height } = panels.size;
  const many = figures.length > 1;
  const across = many ? Math.ceil(Math.sqrt(figures.length)) : 1;
  const down = Math.ceil(figures.length / across);
  const [wide, high] = many ? [width + GAP, height + CAPTION + GAP] : [width, height];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [across * wide + (many ? GAP : 0), down * high + (many ? GAP : 0)];
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.body);
  pen.fillStyle = style.backgroundColor;
  if (many) pen.fillRect(0, 0, canvas.width, canvas.height);
  figures.forEach((figure, n) => {
    const [x, y] = [(n % across) * wide + (many ? GAP : 0), Math.floor(n / across) * high + (many ? GAP : 0)];
    pen.globalAlpha = 1;
    pen.drawImage(figure.querySelector(".photo"), x, y, width, height);
    pen.globalAlpha = Number(opacity);
    const [overlay, before] = [figure.querySelector(".overlay"), figure.querySelector(".before")];
    if (!overlay.hidden) pen.drawImage(overlay, x, y, width, height);
    if (!before.hidden) {
      const cut = Math.round((width * (panels.divided - panels.view.x)) / panels.view.zoom / 100);
      pen.save();
      pen.beginPath();
      pen.rect(x, y, cut, height);
      pen.clip();
      pen.globalAlpha = 1;
      pen.drawImage(figure.querySelector(".photo"), x, y, width, height);
      pen.globalAlpha = Number(opacity);
      pen.drawImage(before, x, y, width, height);
      pen.restore();
    }
    pen.globalAlpha = 1;
    if (!many) return;
    pen.fillStyle = style.color;
    pen.font = `15px ${style.fontFamily}`;
    pen.fillText([...figure.querySelectorAll("figcaption b, figcaption .stats")].map((part) => part.textContent).join("   "), x, y + height + 20, width);
  });
  save(await new Promise((done) => canvas.toBlob(done, "image/png")), name);
}
