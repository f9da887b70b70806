// Requests to the server.  Each carries the token of the page's address; each failure has one sentence.

const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
export const page = crypto.randomUUID();

export class Refusal extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

async function call(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...options.headers, "X-Locpmap-Token": token } });
  } catch {
    throw new Refusal("The viewer does not respond. Is `locpmap view` still running?", 0);
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Refusal(body.error ?? `The viewer responded with status ${answer.status}.`, answer.status);
  }
  return answer;
}

const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value != null));

export const scenes = async () => (await call("/api/scenes")).json();
export const scene = async (id) => (await call(`/api/scenes/${encodeURIComponent(id)}`)).json();
export const image = async (id) => (await call(`/api/scenes/${encodeURIComponent(id)}/image`)).blob();
export const progress = async () => (await call(`/api/progress?${query({ page })}`)).json();
export const layer = async (key, choice) => (await call(`/api/decodings/${key}/layer?${query(choice)}`)).blob();
export const pixel = async (key, x, y) => (await call(`/api/decodings/${key}/pixel?${query({ x, y })}`)).json();
export const probability = async (key) => (await call(`/api/decodings/${key}/probability`)).blob();

export async function decode(order, signal) {
  const body = JSON.stringify({ ...order, page });
  return (await call("/api/decode", { method: "POST", body, signal, headers: { "Content-Type": "application/json" } })).json();
}

// Where a result differs from others, or from the true labels: a picture, and the fraction of the pixels.
export async function difference(key, others, truth) {
  const choice = new URLSearchParams([...others.map((other) => ["other", other]), ["truth", truth]]);
  const answer = await call(`/api/decodings/${key}/difference?${choice}`);
  return { blob: await answer.blob(), fraction: Number(answer.headers.get("X-Locpmap-Fraction")) };
}

export async function upload(imageFile, logitsFile, layout) {
  const body = new FormData();
  body.append("image", imageFile);
  body.append("logits", logitsFile);
  body.append("layout", layout);
  return (await call("/api/scenes", { method: "POST", body })).json();
}
