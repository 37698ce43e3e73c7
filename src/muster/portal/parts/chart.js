// A chart that keeps its zoom while points arrive.
import uPlot from "../vendor/uplot.js";
import { html, useEffect, useRef } from "../view.js";
import { duration, moment, number, size } from "../format.js";
import { aligned, color, smoothed, spread } from "./series.js";

const MOST_LINES = 8;
// Without a graphics card, a line wider than a pixel takes ten times as long to draw.
const MOST_WIDE = 20000;

/**
 * @param {{curves: {label: string, x: number[], y: (number | null)[], color?: string}[], log?: boolean, smooth?: number,
 *   byTime?: boolean, byClock?: boolean, height?: number, sync?: string, many?: "spread" | "lines", unit?: string}} _
 */
export function Chart({ curves, unit = "", log = false, smooth = 0, byTime = false, byClock = false, height = 230, sync = "", many = "spread" }) {
  const box = useRef(null);
  const held = useRef(/** @type {any} */ (null));
  const drawn = useRef(/** @type {any} */ (null));
  const isSpread = many === "spread" && curves.length > MOST_LINES;
  const isWide = curves.reduce((sum, one) => sum + one.x.length, 0) < MOST_WIDE;
  const shape = JSON.stringify([isWide, unit, log, byTime, height, isSpread, smooth > 0, curves.map((one) => [one.label, one.color])]);

  useEffect(() => {
    const show = unit === "bytes" ? (value) => size(value) : number;
    const look = isSpread ? spreadLook(show) : lineLook(curves, smooth > 0, show, isWide);
    const plot = new uPlot(options(look, { log, byTime, byClock, height, sync, show, width: box.current.clientWidth || 400 }), dataOf(curves, smooth, isSpread), box.current);
    held.current = plot;
    const watcher = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height });
    });
    watcher.observe(box.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => plot.redraw();
    dark.addEventListener("change", repaint);
    return () => {
      watcher.disconnect();
      dark.removeEventListener("change", repaint);
      plot.destroy();
    };
  }, [shape]);

  useEffect(() => {
    const plot = held.current;
    if (drawn.current !== plot) {
      // The chart was created with these points.
      drawn.current = plot;
      return;
    }
    const isZoomed = plot.zoomed === true;
    plot.setData(dataOf(curves, smooth, isSpread), !isZoomed);
    if (isZoomed) plot.redraw();
  }, [curves, smooth]);

  return html`<div class="space" ref=${box}></div>`;
}

function dataOf(curves, smooth, isSpread) {
  if (isSpread) {
    const { x, low, mean, high } = spread(curves);
    return [x, high, low, smoothed(mean, smooth)];
  }
  const [x, ...columns] = aligned(curves);
  return smooth ? [x, ...columns, ...columns.map((column) => smoothed(column.map((value) => value ?? null), smooth))] : [x, ...columns];
}

function lineLook(curves, isSmooth, show, isWide) {
  const raw = curves.map((one, index) => ({
    label: one.label,
    stroke: (one.color || color(index)) + (isSmooth ? "38" : ""),
    width: isWide ? 1.4 : 1,
    spanGaps: true,
    points: { show: one.x.length < 2 },
    value: (_, value) => (value === null || value === undefined ? "–" : show(value)),
  }));
  if (!isSmooth) return { series: raw, bands: [] };
  const fine = raw.map((one, index) => ({ ...one, label: `${one.label} ~`, stroke: curves[index].color || color(index), width: isWide ? 1.8 : 1 }));
  return { series: [...raw, ...fine], bands: [] };
}

function spreadLook(show) {
  const value = (_, found) => (found === null || found === undefined ? "–" : show(found));
  const edge = { stroke: color(0) + "55", width: 1, spanGaps: true, points: { show: false }, value };
  return {
    series: [{ ...edge, label: "greatest" }, { ...edge, label: "least" }, { ...edge, label: "mean", stroke: color(0), width: 1.8 }],
    bands: [{ series: [1, 2], fill: color(0) + "22" }],
  };
}

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The time of day; the date at midnight. @param {number} at */
function hour(at) {
  const text = moment(at);
  return text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
}

function options(look, { log, byTime, byClock, height, sync, width, show }) {
  const axis = {
    stroke: () => ink("--soft"),
    grid: { stroke: () => ink("--line"), width: 1 },
    ticks: { stroke: () => ink("--line"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  const shownAt = byClock ? moment : byTime ? duration : number;
  const along = (_, values) => values.map((value) => (byClock ? hour(value) : shownAt(value)));
  return {
    width,
    height,
    cursor: { drag: { x: true, y: false }, focus: { prox: 24 }, ...(sync ? { sync: { key: sync } } : {}) },
    scales: { x: { time: byClock }, y: log ? { distr: 3 } : {} },
    axes: [{ ...axis, values: along, size: 34 }, { ...axis, values: (_, values) => values.map((value) => (value === null ? "" : show(value))), size: 62 }],
    series: [{ label: byTime || byClock ? "time" : "step", value: (_, value) => (value === null || value === undefined ? "–" : shownAt(value)) }, ...look.series],
    bands: look.bands,
    legend: { live: true },
    hooks: {
      // A zoomed interval is kept while points arrive; a double click shows all again.
      setSelect: [(plot) => (plot.zoomed = plot.select.width > 0)],
      init: [(plot) => plot.over.addEventListener("dblclick", () => (plot.zoomed = false))],
    },
  };
}
