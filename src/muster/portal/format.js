// Formats figures and times for people. Pure.

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "";
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** @param {number | null | undefined} at seconds of the epoch @param {number} [now] */
export function ago(at, now = Date.now() / 1000) {
  if (at === null || at === undefined) return "";
  const s = now - at;
  if (s < -60) return `in ${duration(-s)}`;
  if (s < 5) return "just now";
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 30 * 86400) return `${Math.floor(s / 86400)} d ago`;
  return moment(at).slice(0, 10);
}

/** @param {number | null | undefined} at */
export function moment(at) {
  if (at === null || at === undefined) return "";
  const date = new Date(at * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @param {any} value */
export function number(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : text(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3);
  return String(Number(value.toPrecision(5)));
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit ? value.toPrecision(3) : value} ${units[unit]}`;
}

/** Any value in a line. @param {any} value */
export function text(value) {
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** @param {{done?: number | null, total?: number | null} | null | undefined} progress between 0 and 1, or null */
export function share(progress) {
  if (!progress || !progress.total || progress.done === null || progress.done === undefined) return null;
  return Math.min(1, Math.max(0, progress.done / progress.total));
}

export const ACTIVE = ["NotStarted", "Queued", "Provisioning", "Preparing", "Running", "Finalizing", "CancelRequested"];
/** @param {string} status */
export const hasEnded = (status) => ["Completed", "Failed", "Canceled"].includes(status);
/** @param {any} run */
export const title = (run) => run.name || run.display_name || run.id;

/** How long a run has run, or ran. @param {any} run */
export function runTime(run, now = Date.now() / 1000) {
  if (!run.started_at) return null;
  return (run.ended_at || now) - run.started_at;
}

/** A duration rounded to its largest unit, for estimates. @param {number} s @returns {[number, string]} */
function rough(s) {
  if (s < 60) return [Math.round(s), "s"];
  if (s < 3600) return [Math.round(s / 60), "min"];
  if (s < 86400) return [Math.round(s / 3600), "h"];
  return [Math.round(s / 86400), "d"];
}

/** The remaining time of an active run; none for a stalled one. @param {any} run */
export function timeLeft(run, now = Date.now() / 1000) {
  const between = run.ends_between;
  if (!between || run.status !== "Running") return "";
  const low = Math.max(0, between.low_at - now);
  const high = Math.max(0, between.high_at - now);
  if (high <= 0) return "";
  const [from, to] = [rough(low), rough(high)];
  if (from[1] !== to[1]) return `${from.join(" ")} – ${to.join(" ")} left`;
  return `${from[0] === to[0] ? to[0] : `${from[0]}–${to[0]}`} ${to[1]} left`;
}

/** When a queued run is likely to start. @param {{low_at: number, high_at: number}} between */
export function startsIn(between, now = Date.now() / 1000) {
  const [from, to] = [between.low_at, between.high_at].map((at) => rough(Math.max(0, at - now)));
  if (between.low_at - now < 1) return `within ${Math.max(1, to[0])} ${to[1]}`;
  if (from[1] !== to[1]) return `in ${from.join(" ")} – ${to.join(" ")}`;
  return `in ${from[0] === to[0] ? to[0] : `${from[0]}–${to[0]}`} ${to[1]}`;
}

/** What happened, without naming the rank, for narrow columns. @param {string} text */
export function withoutRank(text) {
  return text.replace(/^rank \d+ on [^\s:]+:? (?=\S)/, "");
}
