// Texts about time: how long a run still takes, and how long an update took.

export const seconds = (number) => `${number < 9.95 ? number.toFixed(1) : Math.round(number)}\u00a0s`;

// `found` is the server's progress of the current decoder, or null while an earlier run stops.  `later` is the expected
// time of the decoders after it: undefined if unknown.  `bound` says that the decoder may converge before its last sweep.
export function progressText(title, found, { place, later, bound }) {
  const parts = [title + place];
  if (!found) return [...parts, "starting"].join(" · ");
  const unknown = found.left == null;
  if (found.done && title === "LocPMAP") parts.push(`${found.done} of ${found.total} samples`);
  if (unknown && !found.done && found.first && found.seconds > 2) parts.push("compiling, on the first run only");
  if (unknown) parts.push(`${Math.round(found.seconds)} s so far`);
  else {
    const all = found.left + (later ?? 0);
    parts.push(`${bound ? "at most" : "about"} ${Math.max(1, Math.ceil(all))} s left${later === undefined ? " for this decoder" : ""}`);
  }
  return parts.join(" · ");
}
