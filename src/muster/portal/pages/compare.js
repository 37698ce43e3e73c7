// Runs side by side: differences first, overlaid curves, and how parameters relate to results.
import { html, useMemo, useState } from "../view.js";
import { get, useCall } from "../api.js";
import { Link, setQuery, useHere } from "../router.js";
import { Chart } from "../parts/chart.js";
import { Empty, Status } from "../parts/common.js";
import { Problem } from "../parts/notices.js";
import { Coordinates, Scatter } from "../parts/coordinates.js";
import { along, color } from "../parts/series.js";
import { duration, number, runTime, text, title } from "../format.js";

const MOST_CURVES = 100;

export function ComparePage() {
  const { query } = useHere();
  const ids = query.getAll("run").slice(0, MOST_CURVES);
  const key = ids.join(" ");
  const { data: runs, error } = useCall(() => (ids.length ? get("/summaries", { run: ids, limit: 1000 }) : Promise.resolve([])), [key], 5000);
  const [all, setAll] = useState(false);
  if (error && !runs) return html`<${Problem} error=${error} />`;
  if (!runs) return null;
  if (!runs.length) return html`<h1>Compare</h1><${Empty}>Choose runs in the <${Link} to="/">table<//>, then Compare.<//>`;
  const ordered = ids.map((id) => runs.find((run) => run.id === id)).filter(Boolean);
  return html`<div class="head"><h1 class="grow">Compare ${ordered.length} runs</h1></div>
    <${Sides} runs=${ordered.slice(0, 12)} all=${all} setAll=${setAll} more=${ordered.length - 12} />
    <${Curves} runs=${ordered} />
    ${ordered.length > 2 && html`<${Sweep} runs=${ordered} />`}`;
}

/** The job flattened to dotted names and values. @param {any} value @param {string} prefix */
export function flat(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return { [prefix]: value };
  return Object.assign({}, ...Object.entries(value).map(([name, one]) => flat(one, prefix ? `${prefix}.${name}` : name)));
}

function Sides({ runs, all, setAll, more }) {
  const { data: views } = useCall(() => Promise.all(runs.map((run) => get(`/runs/${encodeURIComponent(run.id)}`))), [runs.map((run) => run.id).join(" ")]);
  const rows = useMemo(() => rowsOf(runs, views || []), [runs, views]);
  const shown = rows.filter((row) => all || row.differs);
  return html`<section class="card"><div class="head"><h2 class="grow">What differs</h2><label><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} /> also what is the same</label></div>
    <div class="scroll"><table>
      <thead><tr><th></th>${runs.map((run, index) => html`<th key=${run.id}><${Swatch} index=${index} /><${Link} to=${`/runs/${encodeURIComponent(run.id)}`}>${title(run)}<//><div class="soft">${run.id.slice(-8)}</div></th>`)}</tr></thead>
      <tbody><tr><td class="soft">status</td>${runs.map((run) => html`<td><${Status} status=${run.status} /></td>`)}</tr>
        ${shown.map((row) => html`<tr key=${row.name}><td class="soft">${row.name}</td>${row.values.map((value) => html`<td class=${`mono ${row.differs ? "differs" : ""}`}>${value === undefined || value === null ? "–" : Array.isArray(value) && value.every((part) => typeof part === "string") ? value.join(" ") : text(value)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${!shown.length && html`<${Empty}>There are no differences.<//>`}
    ${more > 0 && html`<p class="soft">and ${more} more runs, which the charts below show too.</p>`}
  </section>`;
}

function rowsOf(runs, views) {
  const flats = runs.map((run, index) => ({
    ...Object.fromEntries(Object.entries(run.params).map(([name, value]) => [`param ${name}`, value])),
    ...(views[index] ? flat({ ...views[index].spec, name: undefined, display_name: undefined }) : {}),
    code: run.snapshot?.slice(0, 12),
    nodes: run.num_nodes,
    ranks: run.num_ranks,
    duration: duration(runTime(run)),
    ...Object.fromEntries(Object.entries(run.metrics).filter(([name]) => !name.startsWith("node/")).map(([name, metric]) => [`best ${name}`, number(metric.best ?? metric.last)])),
  }));
  const names = [...new Set(flats.flatMap(Object.keys))];
  const rows = names.map((name) => {
    const values = flats.map((one) => one[name]);
    return { name, values, differs: new Set(values.map((value) => JSON.stringify(value))).size > 1 };
  });
  return rows.filter((row) => row.values.some((value) => value !== null && value !== undefined)).sort((a, b) => Number(b.differs) - Number(a.differs));
}

const labelOf = (run, all) => (all.filter((one) => title(one) === title(run)).length > 1 ? `${title(run)} ${run.id.slice(-8)}` : title(run));
const Swatch = ({ index }) => html`<span class="swatch" style=${{ background: color(index) }}></span>`;

function Curves({ runs }) {
  const { query } = useHere();
  const names = useMemo(() => [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter((name) => !name.startsWith("node/")).sort(), [runs]);
  const chosen = query.getAll("metric");
  const shown = chosen.length ? chosen : names.slice(0, 4);
  const look = { log: query.get("log") === "1", byTime: query.get("x") === "time", smooth: Number(query.get("smooth") || 0) };
  const toggle = (name) => setQuery({ metric: shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name] }, true);
  if (!names.length) return html`<section class="card"><${Empty}>None of them logged metrics.<//></section>`;
  return html`<section class="card"><div class="head"><h2 class="grow">Curves</h2>
      <label><input type="checkbox" checked=${look.byTime} onChange=${(event) => setQuery({ x: event.target.checked ? "time" : null }, true)} /> by time</label>
      <label><input type="checkbox" checked=${look.log} onChange=${(event) => setQuery({ log: event.target.checked ? 1 : null }, true)} /> logarithmic</label>
      <label class="nowrap">smooth <input type="range" min="0" max="0.99" step="0.01" value=${look.smooth} onInput=${(event) => setQuery({ smooth: Number(event.target.value) || null }, true)} /></label></div>
    <div class="tags">${names.slice(0, 60).map((name) => html`<button class="tag" aria-pressed=${shown.includes(name)} onClick=${() => toggle(name)}>${shown.includes(name) ? "● " : ""}${name}</button>`)}</div>
    <div class="grid" style=${{ marginTop: "1rem" }}>${shown.map((name) => html`<${Overlay} key=${name} name=${name} runs=${runs} look=${look} />`)}</div>
  </section>`;
}

function Overlay({ name, runs, look }) {
  const key = runs.map((run) => run.id).join(" ");
  const { data, error } = useCall(() => Promise.all(runs.map((run) => get(`/runs/${encodeURIComponent(run.id)}/metrics/series`, { name, points: 1000 }))), [key, name, runs.map((run) => run.status).join(" ")]);
  const curves = useMemo(() => (data || []).flatMap((found, index) => {
    // A run is represented by the newest attempt of its first rank.
    const newest = [...found].sort((a, b) => b.attempt - a.attempt || (a.rank ?? 0) - (b.rank ?? 0))[0];
    return newest ? [{ label: labelOf(runs[index], runs), color: color(index), ...along(newest, look.byTime, runs[index].started_at || 0) }] : [];
  }), [data, look.byTime]);
  return html`<section class="chart" data-metric=${name}><h3>${name}</h3><${Problem} error=${error} />
    ${curves.length > 0 && html`<${Chart} curves=${curves} log=${look.log} smooth=${look.smooth} byTime=${look.byTime} sync="compare" many="lines" />`}</section>`;
}

function Sweep({ runs }) {
  const metrics = useMemo(() => [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter((name) => !name.startsWith("node/")).sort(), [runs]);
  const params = useMemo(() => {
    const found = [...new Set(runs.flatMap((run) => Object.keys(run.params)))];
    return found.filter((name) => new Set(runs.map((run) => run.params[name])).size > 1);
  }, [runs]);
  const [metric, setMetric] = useState("");
  const [param, setParam] = useState("");
  const goal = metric || metrics.find((name) => /loss|acc|err/.test(name)) || metrics[0];
  const along = param || params[0];
  if (!metrics.length || !params.length) return null;
  return html`<section class="card"><div class="head"><h2 class="grow">Parameters and results</h2>
      <label>Result <select value=${goal} onChange=${(event) => setMetric(event.target.value)}>${metrics.map((name) => html`<option>${name}</option>`)}</select></label>
      <label>Against <select value=${along} onChange=${(event) => setParam(event.target.value)}>${params.map((name) => html`<option>${name}</option>`)}</select></label></div>
    <div class="grid"><${Coordinates} runs=${runs} params=${params.slice(0, 8)} metric=${goal} /><${Scatter} runs=${runs} param=${along} metric=${goal} /></div>
  </section>`;
}
