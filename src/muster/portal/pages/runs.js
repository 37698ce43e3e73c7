// The table of runs: live, filtered and sorted by the server over all of them.
import { html, useEffect, useMemo, useRef, useState } from "../view.js";
import { get, getPage, mayChange, send, useCall } from "../api.js";
import { Link, go, setQuery, useHere } from "../router.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { ProgressBar, Status } from "../parts/common.js";
import { ACTIVE, ago, duration, hasEnded, moment, number, runTime, title, withoutRank } from "../format.js";

const ROW = 38;
const LIVE_MS = 2000;
const FILTERS = ["text", "experiment", "person", "cluster", "tag"];
/** @type {Record<string, {name: string, width: string, sort?: string, num?: boolean, show: (run: any) => any}>} */
const COLUMNS = {
  experiment: { name: "Experiment", width: "9rem", sort: "experiment", show: (run) => run.experiment },
  created: { name: "Submitted", width: "7.5rem", sort: "created", show: (run) => html`<time title=${moment(run.created_at)}>${ago(run.created_at)}</time>` },
  duration: { name: "Duration", width: "7.5rem", sort: "duration", show: (run) => duration(runTime(run)) },
  person: { name: "Person", width: "7rem", sort: "person", show: (run) => run.submitted_by },
  cluster: { name: "Cluster", width: "6.5rem", sort: "cluster", show: (run) => run.compute },
  nodes: { name: "Nodes × ranks", width: "7.5rem", sort: "nodes", num: true, show: (run) => `${run.num_nodes} × ${run.num_ranks / run.num_nodes}` },
  progress: { name: "Progress", width: "18rem", show: (run) => html`<${ProgressBar} run=${run} />` },
  tags: { name: "Tags", width: "12rem", show: (run) => Object.entries(run.tags).map(([name, value]) => `${name}=${value}`).join(" ") },
  why: { name: "What happened", width: "20rem", show: (run) => run.reason || withoutRank(run.verdict || "") },
};
const USUAL = ["experiment", "created", "duration", "progress", "why"];
const VALUES = ["best", "last", "least", "greatest"];

/** A column by its key: one of those above, `p:NAME` of a parameter, `m:VALUE:NAME` of a metric. @param {string} key */
function column(key) {
  if (key.startsWith("p:")) {
    const name = key.slice(2);
    return { name, width: "7rem", num: true, sort: key, show: (run) => run.params[name] ?? "" };
  }
  if (key.startsWith("m:")) {
    const [, by, ...rest] = key.split(":");
    const name = rest.join(":");
    return { name: `${name} ${by === "best" ? "" : by}`.trim(), width: "7.5rem", num: true, sort: key, show: (run) => number(run.metrics[name]?.[by]) };
  }
  return COLUMNS[key];
}

/** The server's parameters for an order. @param {string} sort @param {boolean} up */
function orderOf(sort, up) {
  if (!sort) return {};
  if (sort.startsWith("p:")) return { param: sort.slice(2), ascending: up };
  if (sort.startsWith("m:")) {
    const [, by, ...rest] = sort.split(":");
    return { metric: rest.join(":"), by, ascending: up };
  }
  return { sort, ascending: up };
}

export function RunsPage() {
  const { query } = useHere();
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) || ""]));
  const status = query.getAll("status");
  const sort = query.get("sort") || "";
  const up = query.get("up") === "1";
  const columns = (query.get("cols") || localStorage.getItem("muster-columns") || USUAL.join(",")).split(",").filter((key) => column(key));
  const asked = { ...wanted, status, ...orderOf(sort, up) };
  const key = JSON.stringify(asked);
  const runs = useRuns(asked, key);
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  useEffect(() => setChosen(new Set()), [key]);
  const facets = useCall(() => get("/facets"), [], 30000).data;
  return html`
    <div class="head"><h1>Runs</h1><span class="soft grow" role="status">${runs.said}</span>
      ${mayChange() && html`<${Link} to="/submit"><button class="primary" tabindex="-1">Submit a job</button><//>`}</div>
    <${Filters} wanted=${wanted} status=${status} facets=${facets} columns=${columns} items=${runs.items} />
    <${Problem} error=${runs.error} />
    <${Table} runs=${runs} columns=${columns} sort=${sort} up=${up} chosen=${chosen} setChosen=${setChosen} />
    ${chosen.size > 0 && html`<${Bulk} items=${runs.items} chosen=${chosen} done=${() => { setChosen(new Set()); runs.again(); }} />`}`;
}

/** The runs up to the scroll position; visible ones are kept up to date. */
function useRuns(asked, key) {
  const [state, setState] = useState({ items: [], next: null, total: null, error: null, loaded: false });
  const [turn, setTurn] = useState(0);
  const hold = useRef(/** @type {any} */ ({}));
  useEffect(() => {
    let ended = false;
    let timer = 0;
    let tag = "";
    /** @type {any} */
    const now = (hold.current = { busy: false, state: { items: [], next: null, total: null, error: null, loaded: false } });
    const put = (changes) => {
      if (ended) return;
      now.state = { ...now.state, ...changes };
      setState(now.state);
    };
    const refresh = async () => {
      try {
        const page = document.hidden && tag ? null : await getPage("/summaries", { ...asked, limit: 100 }, tag);
        if (ended) return;
        if (page) {
          tag = page.tag;
          const fresh = new Set(page.items.map((run) => run.id));
          const isLonger = now.state.items.length > page.items.length && page.next;
          const rest = isLonger ? now.state.items.filter((run, index) => index >= page.items.length - 1 && !fresh.has(run.id)) : [];
          put({ items: [...page.items, ...rest], next: isLonger ? now.state.next : page.next, total: page.total, error: null, loaded: true });
        } else put({ error: null });
      } catch (error) {
        put({ error, loaded: true });
      }
      if (!ended) timer = setTimeout(refresh, LIVE_MS);
    };
    now.more = async () => {
      if (now.busy || !now.state.next || ended) return;
      now.busy = true;
      try {
        const page = await getPage("/summaries", { ...asked, limit: 500, cursor: now.state.next });
        const known = new Set(now.state.items.map((run) => run.id));
        put({ items: [...now.state.items, ...page.items.filter((run) => !known.has(run.id))], next: page.next });
      } catch (error) {
        put({ error });
      }
      now.busy = false;
    };
    setState((old) => ({ ...old, loaded: false }));
    refresh();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [key, turn]);
  const count = state.total ?? state.items.length;
  const said = state.loaded ? `${count.toLocaleString("en")} ${count === 1 ? "run" : "runs"}` : "…";
  return { ...state, said, more: () => hold.current.more?.(), again: () => setTurn((old) => old + 1) };
}

function Filters({ wanted, status, facets, columns, items }) {
  const [text, setText] = useState(wanted.text);
  useEffect(() => setText(wanted.text), [wanted.text]);
  useEffect(() => {
    if (text === wanted.text) return undefined;
    const timer = setTimeout(() => setQuery({ text }, true), 80);
    return () => clearTimeout(timer);
  }, [text]);
  const group = status.length === 0 ? "" : JSON.stringify(status);
  const pick = (name, label, values) => html`<select aria-label=${label} value=${wanted[name]} onChange=${(event) => setQuery({ [name]: event.target.value })}>
    <option value="">${label}</option>
    ${wanted[name] && !values.some((one) => one.value === wanted[name]) && html`<option value=${wanted[name]}>${wanted[name]}</option>`}
    ${values.map((one) => html`<option value=${one.value}>${one.value} (${one.runs.toLocaleString("en")})</option>`)}
  </select>`;
  const isFiltered = FILTERS.some((name) => wanted[name]) || status.length;
  return html`<div class="bar-row">
    <input type="search" aria-label="Search runs" placeholder="Search names, tags, people …  ( / )" value=${text} onInput=${(event) => setText(event.target.value)} />
    <select aria-label="Status" value=${group} onChange=${(event) => setQuery({ status: event.target.value ? JSON.parse(event.target.value) : null })}>
      <option value="">All states</option>
      <option value=${JSON.stringify(ACTIVE)}>Active</option>
      ${["Running", "Queued", "Completed", "Failed", "Canceled"].map((one) => html`<option value=${JSON.stringify([one])}>${one}</option>`)}
      ${group && !["Running", "Queued", "Completed", "Failed", "Canceled"].some((one) => group === JSON.stringify([one])) && group !== JSON.stringify(ACTIVE) && html`<option value=${group}>${status.join(", ")}</option>`}
    </select>
    ${pick("experiment", "All experiments", facets?.experiments || [])}
    ${(facets?.people.length > 1 || wanted.person) && pick("person", "Everybody", facets?.people || [])}
    ${(facets?.clusters.length > 1 || wanted.cluster) && pick("cluster", "All clusters", facets?.clusters || [])}
    ${wanted.tag && html`<span class="tag">${wanted.tag}</span>`}
    ${isFiltered ? html`<button class="quiet" onClick=${() => setQuery(Object.fromEntries([...FILTERS, "status"].map((name) => [name, null])))}>Clear</button>` : null}
    <${ColumnMenu} columns=${columns} items=${items} />
  </div>`;
}

function ColumnMenu({ columns, items }) {
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {any} */ (null));
  const names = useMemo(() => {
    const params = new Set();
    const metrics = new Set();
    for (const run of items.slice(0, 500)) {
      Object.keys(run.params).forEach((name) => params.add(name));
      Object.keys(run.metrics).forEach((name) => metrics.add(name));
    }
    return { params: [...params].sort(), metrics: [...metrics].sort() };
  }, [items, open]);
  useEffect(() => {
    const away = (event) => !box.current?.contains(event.target) && setOpen(false);
    addEventListener("click", away);
    return () => removeEventListener("click", away);
  }, []);
  const set = (next) => {
    localStorage.setItem("muster-columns", next.join(","));
    setQuery({ cols: next.join(",") }, true);
  };
  const toggle = (key) => set(columns.includes(key) ? columns.filter((one) => one !== key) : [...columns, key]);
  const move = (key, by) => {
    const at = columns.indexOf(key);
    const next = columns.filter((one) => one !== key);
    next.splice(Math.max(0, at + by), 0, key);
    set(next);
  };
  const line = (key, name) => html`<label><input type="checkbox" checked=${columns.includes(key)} onChange=${() => toggle(key)} /><span>${name}</span>
    ${columns.includes(key) && html`<button class="quiet" title="to the left" onClick=${() => move(key, -1)}>←</button>`}</label>`;
  return html`<div class="menu" ref=${box}><button aria-expanded=${open} onClick=${() => setOpen(!open)}>Columns</button>
    ${open && html`<div>
      ${Object.entries(COLUMNS).map(([key, one]) => line(key, one.name))}
      ${names.metrics.length > 0 && html`<h3>Metrics</h3>`}
      ${names.metrics.slice(0, 200).map((name) => html`<details open=${columns.some((key) => key.startsWith("m:") && key.endsWith(`:${name}`))}><summary>${name}</summary>${VALUES.map((by) => line(`m:${by}:${name}`, by))}</details>`)}
      ${names.params.length > 0 && html`<h3>Parameters</h3>`}
      ${names.params.slice(0, 200).map((name) => line(`p:${name}`, name))}
      <button class="quiet" onClick=${() => set(USUAL)}>As usual</button>
    </div>`}</div>`;
}

function Table({ runs, columns, sort, up, chosen, setChosen }) {
  const box = useRef(/** @type {any} */ (null));
  const lastPick = useRef(-1);
  const [top, setTop] = useState(0);
  const height = box.current?.clientHeight || 700;
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const seen = runs.items.slice(first, first + Math.ceil(height / ROW) + 20);
  const template = `2.2rem 8.5rem minmax(12rem, 1.6fr) ${columns.map((key) => column(key).width).join(" ")}`;
  const scrolled = (event) => {
    setTop(event.currentTarget.scrollTop);
    if (event.currentTarget.scrollTop + event.currentTarget.clientHeight > (runs.items.length - 40) * ROW) runs.more();
  };
  const by = (key) => setQuery(sort === key ? (up ? { sort: null, up: null } : { sort: key, up: 1 }) : { sort: key, up: null }, true);
  const arrow = (key) => (sort === key ? (up ? " ▲" : " ▼") : "");
  const pick = (index, isMany) => {
    const next = new Set(chosen);
    const from = isMany && lastPick.current >= 0 ? Math.min(index, lastPick.current) : index;
    const to = isMany && lastPick.current >= 0 ? Math.max(index, lastPick.current) : index;
    const isOn = !chosen.has(runs.items[index].id);
    for (let i = from; i <= to; i += 1) next[isOn ? "add" : "delete"](runs.items[i].id);
    lastPick.current = index;
    setChosen(next);
  };
  const all = (event) => setChosen(new Set(event.target.checked ? runs.items.map((run) => run.id) : []));
  const keys = (event) => {
    const row = event.target.closest?.(".row.body");
    const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
    if (next?.classList.contains("body")) {
      event.preventDefault();
      next.querySelector("a").focus();
    }
    if (row && event.key === "x") pick(Number(row.dataset.index), event.shiftKey);
  };
  return html`<div class="runs" ref=${box} onScroll=${scrolled} onKeyDown=${keys} role="table" aria-label="Runs" aria-rowcount=${runs.total ?? runs.items.length}>
    <div class="row headrow" role="row" style=${{ gridTemplateColumns: template }}>
      <span role="columnheader"><input type="checkbox" aria-label="All loaded runs" checked=${chosen.size > 0 && chosen.size === runs.items.length} onChange=${all} /></span>
      <span role="columnheader"><button aria-pressed=${sort === "status"} onClick=${() => by("status")}>Status${arrow("status")}</button></span>
      <span role="columnheader"><button aria-pressed=${sort === "name"} onClick=${() => by("name")}>Run${arrow("name")}</button></span>
      ${columns.map((key) => {
        const one = column(key);
        return html`<span role="columnheader" class=${one.num ? "num" : ""} key=${key}>${one.sort
          ? html`<button aria-pressed=${sort === one.sort} title=${one.name} onClick=${() => by(one.sort)}>${one.name}${arrow(one.sort)}</button>`
          : html`<span class="soft">${one.name}</span>`}</span>`;
      })}
    </div>
    <div style=${{ height: `${first * ROW}px` }}></div>
    ${seen.map((run, index) => html`<div class=${`row body ${chosen.has(run.id) ? "chosen" : ""}`} role="row" key=${run.id} data-index=${first + index} style=${{ gridTemplateColumns: template }}>
      <span role="cell"><input type="checkbox" aria-label=${`Choose ${title(run)}`} checked=${chosen.has(run.id)} onClick=${(event) => pick(first + index, event.shiftKey)} /></span>
      <span role="cell"><${Status} status=${run.status} /></span>
      <span role="cell" class="name"><${Link} to=${`/runs/${encodeURIComponent(run.id)}`} title=${run.id}>${title(run)}<//>${title(run) !== run.id && html` <small class="soft">${run.id.slice(-8)}</small>`}</span>
      ${columns.map((key) => {
        const one = column(key);
        const value = one.show(run);
        return html`<span role="cell" key=${key} class=${one.num ? "num" : ""} title=${typeof value === "string" ? value : null}>${value}</span>`;
      })}
    </div>`)}
    <div style=${{ height: `${Math.max(0, runs.items.length - first - seen.length) * ROW}px` }}></div>
    ${runs.loaded && !runs.items.length && html`<p class="empty">No runs. <code>muster run train.py</code> starts one.</p>`}
  </div>`;
}

function Bulk({ items, chosen, done }) {
  const [asking, setAsking] = useState("");
  const [tag, setTag] = useState("");
  const picked = items.filter((run) => chosen.has(run.id));
  const alive = picked.filter((run) => !hasEnded(run.status));
  const over = picked.filter((run) => ["Failed", "Canceled"].includes(run.status));
  const each = async (targets, what, work) => {
    let count = 0;
    for (const run of targets) {
      try {
        await work(run);
        count += 1;
      } catch (error) {
        sayError(error);
      }
    }
    if (count) say(`${count} ${count === 1 ? "run" : "runs"} ${what}`);
    done();
  };
  const cancel = async () => {
    try {
      await send("POST", "/runs/cancel", { runs: alive.map((run) => run.id) });
      say(`${alive.length} ${alive.length === 1 ? "run is" : "runs are"} being cancelled`);
      done();
    } catch (error) {
      sayError(error);
    }
  };
  const answered = (isYes) => {
    setAsking("");
    if (!isYes) return;
    if (asking === "cancel") cancel();
    if (asking === "retry") each(over, "retried", (run) => send("POST", `/runs/${encodeURIComponent(run.id)}/retry`));
    if (asking === "tag") {
      const [name, ...value] = tag.split("=");
      each(picked, "tagged", (run) => send("PATCH", `/runs/${encodeURIComponent(run.id)}`, { tags: { [name.trim()]: value.join("=").trim() } }));
    }
  };
  return html`<div class="bulk" role="toolbar" aria-label="Chosen runs">
    <b>${chosen.size} chosen</b>
    <button disabled=${picked.length < 2 || picked.length > 100} onClick=${() => go(`/compare?${picked.map((run) => `run=${encodeURIComponent(run.id)}`).join("&")}`)}>Compare</button>
    ${mayChange() && html`
      <button disabled=${!alive.length} onClick=${() => setAsking("cancel")}>Cancel</button>
      <button disabled=${!over.length} onClick=${() => setAsking("retry")}>Retry</button>
      <button onClick=${() => setAsking("tag")}>Tag</button>`}
    <button class="quiet" onClick=${done}>None</button>
    ${asking === "cancel" && html`<${Ask} title=${`Cancel ${alive.length} ${alive.length === 1 ? "run" : "runs"}?`} confirm="Cancel them" danger=${true} onDone=${answered}><p>Their ranks get SIGTERM, and 30 seconds to end.</p><//>`}
    ${asking === "retry" && html`<${Ask} title=${`Retry ${over.length} ${over.length === 1 ? "run" : "runs"}?`} confirm="Retry" onDone=${answered}><p>Each resumes from its last checkpoint.</p><//>`}
    ${asking === "tag" && html`<${Ask} title=${`Tag ${picked.length} runs`} confirm="Tag" onDone=${answered}><label>NAME=VALUE<input value=${tag} pattern="[^=]+=.*" required onInput=${(event) => setTag(event.target.value)} /></label><//>`}
  </div>`;
}
