// Texts about time: how long a run still takes, and how long an update took.

export const seconds = (number) => `${number < 9.95 ? number.toFixed(1) : Math.round(number)}\u00a0s`;

// `found` is the server's progress of the current decoder.  `later` is the expected time of what follows it, undefined
// if unknown.
export function progressText(title, found, samples, later) {
  const parts = [title];
  const unknown = found.left == null;
  if (found.done && samples) parts.push(`${found.done} of ${found.total} samples`);
  if (unknown && !found.done && found.first && found.seconds > 2) parts.push("compiling, on the first run only");
  if (unknown) parts.push(`${Math.round(found.seconds)} s so far`);
  else {
    const all = found.left + (later ?? 0);
    if (all <= 0) parts.push("finishing");
    else parts.push(`${found.bound ? "at most" : "about"} ${Math.max(1, Math.ceil(all))} s left${later === undefined ? " for this step" : ""}`);
  }
  return parts.join(" · ");
}
