// Clusters and their nodes: states and reasons, the queue with expected starts, cost.
import { html, useMemo, useState } from "../view.js";
import { get, getAll, isAdmin, send, useCall } from "../api.js";
import { Link } from "../router.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { Chart } from "../parts/chart.js";
import { Empty } from "../parts/common.js";
import { ago, duration, moment, number, size, title } from "../format.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

export function ClustersPage() {
  const clusters = useCall(() => getAll("/clusters"), [], 3000);
  const queue = useCall(() => get("/summaries", { status: ["Queued", "Provisioning", "Preparing"], limit: 50 }), [], 3000);
  const cost = useCall(() => get("/cost", { by: "cluster" }), [], 30000);
  const [making, setMaking] = useState(false);
  if (clusters.error && !clusters.data) return html`<${Problem} error=${clusters.error} />`;
  if (!clusters.data) return null;
  return html`<div class="head"><h1 class="grow">Clusters</h1>${isAdmin() && html`<button class="primary" onClick=${() => setMaking(true)}>Create a cluster</button>`}</div>
    ${clusters.data.map((cluster) => html`<${Cluster} key=${cluster.name} cluster=${cluster} again=${clusters.again} cost=${cost.data} />`)}
    <${Queue} runs=${queue.data} />
    <${Cost} report=${cost.data} />
    ${making && html`<${Create} done=${() => { setMaking(false); clusters.again(); }} />`}`;
}

/** @param {{cluster: Schemas["ClusterView"], again: () => void, cost: Schemas["CostReport"]}} _ */
function Cluster({ cluster, again, cost }) {
  const [asking, setAsking] = useState("");
  const busy = cluster.nodes.filter((node) => node.runs.length).length;
  const line = cost?.lines.find((one) => one.key === cluster.name);
  const shape = cluster.node;
  return html`<section class="card">
    <div class="head"><h2 class="grow">${cluster.name} <span class="soft">${cluster.engine} · ${cluster.state}</span></h2>
      ${isAdmin() && !cluster.lent && html`<button onClick=${() => setAsking("resize")}>Resize</button><button onClick=${() => setAsking(cluster.state === "stopped" ? "start" : "stop")}>${cluster.state === "stopped" ? "Start" : "Stop"}</button>`}</div>
    ${cluster.reason && html`<p class="bad">${cluster.reason}</p>`}
    <p class="soft">${[
      cluster.lent ? "nodes come with each run" : `${cluster.nodes.length} ${cluster.nodes.length === 1 ? "node" : "nodes"} (${cluster.min_nodes} to ${cluster.max_nodes}), ${busy} busy`,
      `${cluster.queued} queued`,
      shape && `${shape.cpus} CPUs, ${shape.gpus} GPUs, ${size(shape.memory_bytes)} a node`,
      cluster.price_per_hour && `${number(cluster.price_per_hour)} ${cost?.currency || ""} an hour`,
      line && `${number(line.node_hours)} node hours used${line.cost !== null ? `, ${number(line.cost)} ${cost.currency}` : ""}`,
    ].filter(Boolean).join(" · ")}</p>
    <div class="nodes">${cluster.nodes.map((node) => html`<${Node} key=${node.name} cluster=${cluster} node=${node} again=${again} />`)}</div>
    <${Use} name=${cluster.name} since=${cluster.created_at} />
    ${!cluster.nodes.length && !cluster.lent && html`<p class="soft">No nodes now; they come with the first run.</p>`}
    ${asking === "resize" && html`<${Resize} cluster=${cluster} done=${() => { setAsking(""); again(); }} />`}
    ${(asking === "stop" || asking === "start") && html`<${Ask} title=${`${asking === "stop" ? "Stop" : "Start"} ${cluster.name}?`} confirm=${asking === "stop" ? "Stop it" : "Start it"} onDone=${async (isYes) => {
      setAsking("");
      if (isYes) await act(() => send("PATCH", `/clusters/${encodeURIComponent(cluster.name)}`, { state: asking === "stop" ? "stopped" : "ready" }), `${cluster.name} was changed`);
      again();
    }}><p>${asking === "stop" ? "Nothing new starts there; nodes go when their runs have ended." : "Runs that wait for it start."}</p><//>`}
  </section>`;
}

const STRETCHES = { 1: "last hour", 24: "last 24 hours", 168: "last 7 days", 720: "last 30 days" };

/** How much of a cluster was in use over time. @param {{name: string, since: number}} _ */
function Use({ name, since }) {
  const [hours, setHours] = useState(Date.now() / 1000 - since < 3 * 3600 ? 1 : 24);
  const found = useCall(() => get(`/clusters/${encodeURIComponent(name)}/use`, { hours, points: 96 }), [name, hours], 60000).data;
  const curves = useMemo(() => curvesOf(found), [found]);
  if (!found) return null;
  const sum = (key) => found.points.reduce((total, point) => total + (point[key] ?? 0), 0);
  const share = sum("nodes") ? `, ${Math.round((100 * sum("busy")) / sum("nodes"))} % of its nodes' time` : "";
  return html`<details class="use" open><summary>In use${share}, ${" "}<select aria-label=${`Stretch of time for ${name}`} value=${String(hours)} onClick=${(event) => event.stopPropagation()} onChange=${(event) => setHours(Number(event.target.value))}>
        ${Object.entries(STRETCHES).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></summary>
    ${curves.length ? html`<${Chart} curves=${curves} byClock height=${150} many="lines" />` : html`<p class="soft">Nothing was used.</p>`}</details>`;
}

/** @param {Schemas["ClusterUse"] | null} use */
function curvesOf(use) {
  if (!use) return [];
  const x = use.points.map((_, index) => use.begin + use.step_s * (index + 0.5));
  const names = { nodes: "nodes", busy: "busy nodes", gpus: "GPUs in use", waiting: "waiting runs" };
  return Object.entries(names)
    .map(([key, label]) => ({ label, x, y: use.points.map((point) => point[key] ?? 0) }))
    .filter((curve) => curve.y.some((value) => value > 0));
}

async function act(work, text) {
  try {
    const found = await work();
    say([text, ...(found?.notices || [])].join(". "));
  } catch (error) {
    sayError(error);
  }
}

/** @param {{cluster: Schemas["ClusterView"], node: Schemas["NodeView"], again: () => void}} _ */
function Node({ cluster, node, again }) {
  const [open, setOpen] = useState(false);
  const path = `/clusters/${encodeURIComponent(cluster.name)}/nodes/${encodeURIComponent(node.name)}`;
  const history = useCall(() => (open ? get(`${path}/history`) : Promise.resolve(null)), [open]);
  const cordon = async () => {
    await act(() => send("PATCH", path, { cordoned: node.cordoned === null, reason: "by hand" }), node.cordoned === null ? `${node.name} gets nothing new` : `${node.name} takes runs again`);
    again();
  };
  return html`<div class=${`node ${node.cordoned !== null ? "cordoned" : ""}`}>
    <b>${node.name}</b> <span class=${node.state === "lost" || node.state === "unusable" ? "bad" : node.runs.length ? "good" : "soft"}>${node.state}</span>
    ${node.reason && html`<div class="soft">${node.reason}</div>`}
    ${node.cordoned !== null && !node.reason.startsWith("cordoned") && html`<div class="bad">cordoned: ${node.cordoned}</div>`}
    ${node.strikes > 0 && html`<div class="bad">${node.strikes} failures in a row</div>`}
    <div class="soft">${[node.cpus && `${node.cpus} CPUs`, node.gpus?.length > 0 && `${node.gpus.length} GPUs`, node.memory_bytes && size(node.memory_bytes), node.since && `for ${duration(Date.now() / 1000 - node.since)}`].filter(Boolean).join(" · ")}</div>
    ${node.runs.map((run) => html`<div><${Link} to=${`/runs/${encodeURIComponent(run)}`}>${run}<//></div>`)}
    <div><button class="quiet" onClick=${() => setOpen(!open)}>${open ? "Less" : "History"}</button>${isAdmin() && html`<button class="quiet" onClick=${cordon}>${node.cordoned === null ? "Cordon" : "Uncordon"}</button>`}</div>
    ${open && history.data && html`<ol class="story">${history.data.slice(-20).map((one) => html`<li><time>${moment(one.at).slice(5)}</time><span>${one.state} <span class="soft">${one.reason}</span></span></li>`)}</ol>`}
  </div>`;
}

function Resize({ cluster, done }) {
  const [least, setLeast] = useState(String(cluster.min_nodes));
  const [most, setMost] = useState(String(cluster.max_nodes));
  const answered = async (isYes) => {
    if (isYes) await act(() => send("PATCH", `/clusters/${encodeURIComponent(cluster.name)}`, { options: { min_nodes: Number(least), max_nodes: Number(most) } }), `${cluster.name} has ${least} to ${most} nodes now`);
    done();
  };
  return html`<${Ask} title=${`Resize ${cluster.name}`} confirm="Resize" onDone=${answered}>
    <label>At least<input type="number" min="0" required value=${least} onInput=${(event) => setLeast(event.target.value)} /></label>
    <label>At most<input type="number" min=${least} required value=${most} onInput=${(event) => setMost(event.target.value)} /></label><//>`;
}

function Create({ done }) {
  const [name, setName] = useState("");
  const [least, setLeast] = useState("0");
  const [most, setMost] = useState("2");
  const answered = async (isYes) => {
    if (isYes) await act(() => send("POST", "/clusters", { name, engine: "local", options: { min_nodes: Number(least), max_nodes: Number(most) } }), `${name} was created`);
    done();
  };
  return html`<${Ask} title="A cluster of nodes on this machine" confirm="Create" onDone=${answered}>
    <label>Name<input required pattern="[A-Za-z0-9][A-Za-z0-9_.-]*" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <label>At least<input type="number" min="0" required value=${least} onInput=${(event) => setLeast(event.target.value)} /></label>
    <label>At most<input type="number" min="1" required value=${most} onInput=${(event) => setMost(event.target.value)} /></label>
    <p class="soft">Slurm, Ray and other engines need more: <code>muster cluster create</code>.</p><//>`;
}

/** @param {{runs: Schemas["RunSummary"][]}} _ */
function Queue({ runs }) {
  if (!runs) return null;
  return html`<section class="card"><h2>Waiting</h2>
    ${!runs.length ? html`<${Empty}>No runs are waiting.<//>` : html`<div class="scroll"><table><thead><tr><th>Run</th><th>Person</th><th>Cluster</th><th>Nodes</th><th>Has waited</th><th>Expected to start</th><th>Why</th></tr></thead>
      <tbody>${runs.map((run) => html`<tr key=${run.id}><td><${Link} to=${`/runs/${encodeURIComponent(run.id)}`}>${title(run)}<//></td><td>${run.submitted_by}</td><td>${run.compute}</td><td>${run.num_nodes}</td><td>${duration(Date.now() / 1000 - run.created_at)}</td><td>${run.starts_at ? ago(run.starts_at) : ""}</td><td class="soft">${run.reason}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

/** @param {{report: Schemas["CostReport"]}} _ */
function Cost({ report }) {
  if (!report || !report.lines.length) return null;
  return html`<section class="card"><h2>Used so far</h2><div class="scroll"><table><thead><tr><th>Cluster</th><th class="right">Runs</th><th class="right">Node hours</th><th class="right">GPU hours</th><th class="right">Cost, ${report.currency}</th></tr></thead>
    <tbody>${report.lines.map((line) => html`<tr><td>${line.key}</td><td class="right">${line.runs}</td><td class="right">${number(line.node_hours)}</td><td class="right">${number(line.gpu_hours)}</td><td class="right">${line.cost === null ? "no price" : number(line.cost)}</td></tr>`)}</tbody></table></div></section>`;
}
