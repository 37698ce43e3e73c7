// Parallel coordinates and a scatter plot: how parameters relate to a result.
import { html } from "../view.js";
import { number, title } from "../format.js";
import { color } from "./series.js";

const WIDTH = 640;
const HEIGHT = 260;
const TOP = 34;
const BOTTOM = 226;

/** Scale a column of values to 0..1; texts are placed in order. @param {any[]} values */
export function scale(values) {
  const numbers = values.map((value) => (value === undefined || value === null || value === "" ? NaN : Number(value)));
  const known = numbers.filter((value) => isFinite(value));
  if (known.length && known.length === values.filter((value) => value !== undefined && value !== null).length) {
    const low = Math.min(...known);
    const high = Math.max(...known);
    // Learning rates and the like range over powers of ten.
    const isWide = low > 0 && high / low > 100;
    const at = (value) => (isWide ? Math.log(value) : value);
    const span = at(high) - at(low) || 1;
    return { place: numbers.map((value) => (isFinite(value) ? (at(value) - at(low)) / span : null)), ends: [number(low), number(high)] };
  }
  const words = [...new Set(values.filter((value) => value !== undefined && value !== null))].sort();
  const place = values.map((value) => (value === undefined || value === null ? null : words.length < 2 ? 0.5 : words.indexOf(value) / (words.length - 1)));
  return { place, ends: [String(words[0] ?? ""), String(words.at(-1) ?? "")] };
}

export function Coordinates({ runs, params, metric }) {
  const axes = [...params.map((name) => ({ name, ...scale(runs.map((run) => run.params[name])) })), { name: metric, ...scale(runs.map((run) => run.metrics[metric]?.best ?? undefined)) }];
  const x = (index) => 40 + (index * (WIDTH - 80)) / Math.max(1, axes.length - 1);
  const y = (part) => BOTTOM - part * (BOTTOM - TOP);
  return html`<svg class="coords" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Parameters and ${metric}`}>
    ${axes.map((axis, index) => html`<g><line x1=${x(index)} x2=${x(index)} y1=${TOP} y2=${BOTTOM} />
      <text x=${x(index)} y="12" text-anchor="middle">${short(axis.name)}</text><text x=${x(index)} y=${TOP - 6} text-anchor="middle">${short(axis.ends[1])}</text><text x=${x(index)} y=${BOTTOM + 14} text-anchor="middle">${short(axis.ends[0])}</text></g>`)}
    ${runs.map((run, index) => {
      const points = axes.map((axis, at) => (axis.place[index] === null ? null : `${x(at)},${y(axis.place[index])}`)).filter(Boolean);
      return html`<polyline points=${points.join(" ")} stroke=${color(index)}><title>${title(run)}</title></polyline>`;
    })}
  </svg>`;
}

export function Scatter({ runs, param, metric }) {
  const across = scale(runs.map((run) => run.params[param]));
  const upward = scale(runs.map((run) => run.metrics[metric]?.best ?? undefined));
  const x = (part) => 60 + part * (WIDTH - 100);
  const y = (part) => BOTTOM - part * (BOTTOM - TOP);
  return html`<svg class="coords" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`${metric} against ${param}`}>
    <line x1="60" x2="60" y1=${TOP} y2=${BOTTOM} /><line x1="60" x2=${WIDTH - 40} y1=${BOTTOM} y2=${BOTTOM} />
    <text x="54" y=${TOP + 4} text-anchor="end">${short(upward.ends[1])}</text><text x="54" y=${BOTTOM} text-anchor="end">${short(upward.ends[0])}</text>
    <text x="60" y=${BOTTOM + 16}>${short(across.ends[0])}</text><text x=${WIDTH - 40} y=${BOTTOM + 16} text-anchor="end">${short(across.ends[1])}</text>
    <text x=${WIDTH / 2} y=${BOTTOM + 28} text-anchor="middle">${short(param)}</text><text x="60" y="14">${short(metric)}</text>
    ${runs.map((run, index) => across.place[index] !== null && upward.place[index] !== null && html`<circle cx=${x(across.place[index])} cy=${y(upward.place[index])} r="5" fill=${color(index)}><title>${title(run)}</title></circle>`)}
  </svg>`;
}

const short = (text) => (String(text).length > 16 ? `${String(text).slice(0, 15)}…` : String(text));
