// Prepares series of metrics for charts. Pure.

/** Numbers that JSON lacks arrive as texts; in a curve they are gaps. @param {any} value */
const asNumber = (value) => (typeof value === "number" && isFinite(value) ? value : null);

/**
 * The points of a series along steps, or along seconds since a beginning.
 * @param {{values: any[], steps: (number | null)[], at: number[]}} series
 */
export function along(series, byTime, begin = 0) {
  const count = series.values.length;
  const x = new Array(count);
  const y = new Array(count);
  for (let i = 0; i < count; i += 1) {
    x[i] = byTime ? series.at[i] - begin : series.steps[i] ?? i;
    y[i] = asNumber(series.values[i]);
  }
  for (let i = 1; i < count; i += 1) if (x[i] < x[i - 1]) return sorted(x, y);
  return { x, y };
}

function sorted(x, y) {
  const order = x.map((_, i) => i).sort((a, b) => x[a] - x[b] || a - b);
  return { x: order.map((i) => x[i]), y: order.map((i) => y[i]) };
}

/** An exponential moving average without the bias of its first value. @param {(number | null)[]} y @param {number} weight */
export function smoothed(y, weight) {
  if (!weight) return y;
  let sum = 0;
  let norm = 0;
  return y.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}

/**
 * Curves over a common x, for a chart: curves without a value at an x are joined across it.
 * @param {{x: number[], y: (number | null)[]}[]} curves @returns {any[]}
 */
export function aligned(curves) {
  if (!curves.length) return [[]];
  const first = curves[0].x;
  if (curves.every(({ x }) => x === first || (x.length === first.length && x.every((value, i) => value === first[i])))) {
    return [first, ...curves.map(({ y }) => y)];
  }
  const all = new Set();
  for (const { x } of curves) for (const value of x) all.add(value);
  const x = Float64Array.from(all).sort();
  const place = new Map();
  x.forEach((value, i) => place.set(value, i));
  const columns = curves.map((curve) => {
    const column = new Array(x.length).fill(undefined);
    for (let i = 0; i < curve.x.length; i += 1) column[place.get(curve.x[i])] = curve.y[i];
    return column;
  });
  return [Array.from(x), ...columns];
}

/** The least, the mean and the greatest of many curves at each x. @param {{x: number[], y: (number | null)[]}[]} curves */
export function spread(curves) {
  const [x, ...columns] = aligned(curves);
  const low = [];
  const mean = [];
  const high = [];
  for (let i = 0; i < x.length; i += 1) {
    let least = Infinity;
    let greatest = -Infinity;
    let sum = 0;
    let count = 0;
    for (const column of columns) {
      const value = column[i];
      if (value === null || value === undefined) continue;
      if (value < least) least = value;
      if (value > greatest) greatest = value;
      sum += value;
      count += 1;
    }
    low.push(count ? least : null);
    mean.push(count ? sum / count : null);
    high.push(count ? greatest : null);
  }
  return { x, low, mean, high };
}

/** Add a new point to a fetched series. @param {any} series @param {any} point */
export function add(series, point) {
  const last = series.at.length - 1;
  // Points logged while the series was fetched are in both.
  if (last >= 0 && point.at <= series.at[last] && (point.step ?? null) <= (series.steps[last] ?? null)) return;
  series.values.push(point.value);
  series.steps.push(point.step ?? null);
  series.at.push(point.at);
  series.count += 1;
}

export const PALETTE = [
  "#3b6fe0", "#e0653b", "#2a9d6f", "#b04ac0", "#c79a12", "#14909e", "#d63f6f", "#7a8b1f", "#6a5ad8", "#8f5a3c", "#4b89b8", "#a3312e",
];
/** @param {number} index */
export const color = (index) => PALETTE[index % PALETTE.length];
