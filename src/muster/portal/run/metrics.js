// The metrics of a run as live charts. Only visible ones are fetched and drawn.
import { html, useEffect, useMemo, useRef, useState } from "../view.js";
import { get, useCall } from "../api.js";
import { setQuery, useHere } from "../router.js";
import { Chart } from "../parts/chart.js";
import { Empty } from "../parts/common.js";
import { Problem } from "../parts/notices.js";
import { add, along } from "../parts/series.js";
import { hasEnded, number, size } from "../format.js";

const POINTS = 2000;

/** @param {{run: any, points: {take: ((point: any) => void) | null}, system?: boolean, most?: number}} _ */
export function Metrics({ run, points, system = false, most = 0 }) {
  const { query } = useHere();
  const look = { log: query.get("log") === "1", byTime: system || query.get("x") === "time", smooth: Number(query.get("smooth") || 0) };
  const find = query.get("metric") || "";
  const { data, error, again } = useCall(() => get(`/runs/${encodeURIComponent(run.id)}/metrics/summaries`), [run.id, run.status]);
  const names = useMemo(() => namesOf(data || [], system), [data, system]);
  const isSingle = ([, summaries]) => hasEnded(run.status) && summaries.every((one) => one.count === 1);
  const takers = useRef(/** @type {Map<string, (point: any) => void>} */ (new Map()));
  useEffect(() => {
    const known = new Set((data || []).map((one) => one.name));
    let asked = false;
    points.take = (point) => {
      takers.current.get(point.name)?.(point);
      if (!known.has(point.name) && !asked && point.name.startsWith("node/") === system) {
        asked = true;
        again();
      }
    };
    return () => (points.take = null);
  }, [data, system]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!data) return null;
  const fitting = names.filter(([name]) => name.toLowerCase().includes(find.toLowerCase()));
  // A curve has more than one point; in a compact view single values are only in the list of last values.
  const shown = most ? fitting.filter((one) => !isSingle(one)).slice(0, most) : fitting;
  if (!names.length) {
    if (most) return null;
    return html`<${Empty}>${system ? "Nodes have measured nothing yet." : html`No metrics. A script logs them with <code>Run.get_context().log(NAME, VALUE, step=STEP)</code>, or through MLflow.`}<//>`;
  }
  return html`
    ${!most && html`<${Controls} look=${look} find=${find} count=${fitting.length} system=${system} />`}
    <div class="grid">${shown.map(([name, summaries]) => isSingle([name, summaries])
      ? html`<${Single} key=${name} name=${name} summaries=${summaries} />`
      : html`<${Card} key=${name} run=${run} name=${name} summaries=${summaries} look=${look} takers=${takers.current} />`)}</div>`;
}

function namesOf(summaries, system) {
  const found = new Map();
  for (const one of summaries) {
    if (one.name.startsWith("node/") !== system) continue;
    if (!found.has(one.name)) found.set(one.name, []);
    found.get(one.name).push(one);
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}

function Controls({ look, find, count, system }) {
  const set = (changes) => setQuery(changes, true);
  return html`<div class="bar-row">
    <input type="search" aria-label="Find metrics" placeholder="Find metrics" value=${find} onInput=${(event) => set({ metric: event.target.value })} />
    <span class="soft">${count} ${count === 1 ? "metric" : "metrics"}</span>
    ${!system && html`<select aria-label="Along" value=${look.byTime ? "time" : ""} onChange=${(event) => set({ x: event.target.value })}><option value="">by step</option><option value="time">by time</option></select>`}
    <label class="nowrap"><input type="checkbox" checked=${look.log} onChange=${(event) => set({ log: event.target.checked ? 1 : null })} /> logarithmic</label>
    <label class="nowrap">smooth <input type="range" min="0" max="0.99" step="0.01" value=${look.smooth} onInput=${(event) => set({ smooth: Number(event.target.value) || null })} /> ${look.smooth || ""}</label>
    <span class="soft">drag to zoom, double-click to see all</span>
  </div>`;
}

/** A metric that was logged once, or once by each rank: its value instead of a chart with one point. */
function Single({ name, summaries }) {
  const show = (value) => (typeof value === "number" ? (/bytes(_per_s)?$/.test(name) ? size(value) : number(value)) : JSON.stringify(value, null, 1)?.slice(0, 4000));
  return html`<section class="card" data-metric=${name}>
    <h3>${name}</h3>
    ${summaries.map((one) => html`<p class=${typeof one.last === "number" ? "single" : ""}>${typeof one.last === "number" ? show(one.last) : html`<pre class="text">${show(one.last)}</pre>`}${summaries.length > 1 && html` <small>${labelOf(one, summaries)}</small>`}</p>`)}
  </section>`;
}

function Card({ run, name, summaries, look, takers }) {
  const box = useRef(null);
  const [isSeen, setSeen] = useState(false);
  const [series, setSeries] = useState(/** @type {any[] | null} */ (null));
  const [beat, setBeat] = useState(0);
  const [error, setError] = useState(null);
  useEffect(() => {
    const watcher = new IntersectionObserver(([entry]) => setSeen(entry.isIntersecting), { rootMargin: "300px" });
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    if (!isSeen) return undefined;
    let held = /** @type {any[] | null} */ (null);
    let early = [];
    let timer = 0;
    let isGone = false;
    const take = (point) => {
      if (held === null) {
        early.push(point);
        return;
      }
      let target = held.find((one) => one.source === point.source && one.attempt === point.attempt);
      if (!target) {
        target = { name, source: point.source, rank: point.rank, attempt: point.attempt, count: 0, values: [], steps: [], at: [] };
        held.push(target);
      }
      add(target, point);
      if (!timer) {
        timer = setTimeout(() => {
          timer = 0;
          setBeat((number) => number + 1);
        }, 200);
      }
    };
    takers.set(name, take);
    get(`/runs/${encodeURIComponent(run.id)}/metrics/series`, { name, points: POINTS })
      .then((found) => {
        if (isGone) return;
        held = found.map((one) => ({ ...one, values: [...one.values], steps: [...one.steps], at: [...one.at] }));
        setSeries(held);
        early.forEach(take);
        early = [];
      })
      .catch((failed) => !isGone && setError(failed));
    return () => {
      isGone = true;
      clearTimeout(timer);
      takers.delete(name);
    };
  }, [isSeen, name, hasEnded(run.status)]);
  const curves = useMemo(() => (series || []).map((one) => ({ label: labelOf(one, series), ...along(one, look.byTime, run.started_at || run.created_at) })), [series, beat, look.byTime]);
  const last = series?.length ? series.reduce((a, b) => ((a.at.at(-1) ?? 0) >= (b.at.at(-1) ?? 0) ? a : b)) : null;
  const best = bestOf(summaries);
  const unit = /bytes(_per_s)?$/.test(name) ? "bytes" : "";
  const show = (value) => (unit && typeof value === "number" ? size(value) : number(value));
  const isNumeric = !series || curves.some((one) => one.y.some((value) => value !== null)) || !series.some((one) => one.values.length);
  return html`<section class="card chart" ref=${box} data-metric=${name}>
    <h3>${name} <small>${show(last ? last.values.at(-1) : summaries.at(-1).last)}${best !== null && !name.startsWith("node/") && ` · best ${number(best)}`}</small></h3>
    <${Problem} error=${error} />
    ${!isNumeric ? html`<pre class="text">${JSON.stringify(last.values.at(-1), null, 1)?.slice(0, 4000)}</pre>`
      : isSeen && series ? html`<${Chart} curves=${curves} log=${look.log} smooth=${look.smooth} byTime=${look.byTime} unit=${unit} sync=${look.byTime ? "time" : "step"} />` : html`<div class="space"></div>`}
  </section>`;
}

function labelOf(one, all) {
  const attempts = new Set(all.map((each) => each.attempt)).size > 1 ? ` attempt ${one.attempt}` : "";
  return (one.rank !== null && one.rank !== undefined ? `rank ${one.rank}` : one.source) + attempts;
}

function bestOf(summaries) {
  const values = summaries.map((one) => one.best).filter((value) => value !== null && value !== undefined);
  if (!values.length) return null;
  const isSmaller = summaries.some((one) => one.best === one.least && one.best !== one.greatest);
  return isSmaller ? Math.min(...values) : Math.max(...values);
}
