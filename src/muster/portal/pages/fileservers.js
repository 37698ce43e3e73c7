// File servers: their content, their addresses, and the progress of their fills.
import { html, useState } from "../view.js";
import { get, getAll, isAdmin, mayChange, send, useCall } from "../api.js";
import { Link, go } from "../router.js";
import { Copy, Empty, Facts } from "../parts/common.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { ago, number, size } from "../format.js";

const LIVE_MS = 2000;
const KINDS = { serving: "good", filled: "good", failed: "bad", stopped: "gone" };

export function FileServersPage({ parts: [name] }) {
  return name ? html`<${FileServer} key=${name} name=${name} />` : html`<${Overview} />`;
}

function Overview() {
  const { data, error } = useCall(() => getAll("/fileservers"), [], LIVE_MS);
  return html`<div class="head"><h1>File servers</h1></div>
    <${Problem} error=${error} />
    <section class="card">
      ${data && !data.length && html`<${Empty}>None. <code>muster fileserver create NAME --size SIZE</code> makes one, and <code>muster fileserver fill NAME azureml://…</code> brings data.<//>`}
      ${data?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>State</th><th>Holds</th><th>Address</th><th>Cluster</th><th>By</th><th>Created</th></tr></thead>
        <tbody>${data.map((one) => html`<tr key=${one.name}><td><${Link} to=${`/fileservers/${encodeURIComponent(one.name)}`}>${one.name}<//></td><td><${State} state=${one.state} /></td>
          <td>${size(one.used_bytes)} of ${size(one.size_bytes)}</td><td>${address(one)}</td><td>${one.cluster}</td><td>${one.created_by}</td><td class="soft">${ago(one.created_at)}</td></tr>`)}</tbody></table></div>`}
    </section>`;
}

function FileServer({ name }) {
  const path = `/fileservers/${encodeURIComponent(name)}`;
  const { data, error, again } = useCall(() => get(path), [path], LIVE_MS);
  const [asking, setAsking] = useState("");
  const act = async (method, what, text) => {
    try {
      await send(method, `${path}${what}`);
      say(text);
      if (method === "DELETE") go("/fileservers");
    } catch (problem) {
      sayError(problem);
    }
    again();
  };
  return html`<div class="head"><h1 class="grow"><${Link} to="/fileservers">File servers<//> / ${name}</h1>${data && html`<${State} state=${data.state} />`}
      ${data && isAdmin() && html`<button onClick=${() => setAsking("restart")}>Restart</button><button onClick=${() => setAsking("delete")}>Delete</button>`}</div>
    <${Problem} error=${error} />
    ${data && html`<section class="card"><${Facts} rows=${[
        ["Address", address(data) && html`<${Copy} text=${address(data)} />`], ["Why not", data.why && html`<span class="bad">${data.why}</span>`],
        ["Holds", `${size(data.used_bytes)} of ${size(data.size_bytes)}`], ["Read by", data.clients], ["Cluster", data.node ? `${data.cluster}, node ${data.node}` : data.cluster],
        ["Folder", data.folder], ["Datastore", html`<${Copy} text=${`azureml://datastores/${data.datastore}/paths/`} />`],
        ["Run", data.run && html`<${Link} to=${`/runs/${encodeURIComponent(data.run)}`}>${data.run}<//>`], ["Restarts", data.restarts ? number(data.restarts) : null],
        ["Description", data.description], ["Made", `${ago(data.created_at)}${data.created_by ? ` by ${data.created_by}` : ""}`],
      ]} /></section>
      <${Fills} server=${data} path=${path} again=${again} />`}
    ${asking === "restart" && html`<${Ask} title=${`Restart ${name}?`} confirm="Restart" onDone=${(yes) => { setAsking(""); if (yes) act("POST", "/restart", `${name} is started anew`); }}>Clients wait meanwhile; the data are kept.<//>`}
    ${asking === "delete" && html`<${Ask} title=${`Delete ${name}?`} confirm="Delete" danger=${true} onDone=${(yes) => { setAsking(""); if (yes) act("DELETE", "", `${name} is deleted`); }}>${data ? size(data.used_bytes) : "What it holds"} on its node go with it. What it was filled from stays.<//>`}`;
}

function Fills({ server, path, again }) {
  const [source, setSource] = useState("");
  const [to, setTo] = useState("");
  const fill = async (event) => {
    event.preventDefault();
    try {
      await send("POST", `${path}/fills`, { source, to });
      say(`${source} is on its way`);
      setSource("");
    } catch (problem) {
      sayError(problem);
    }
    again();
  };
  return html`<section class="card"><h2>Filled from</h2>
    ${!server.fills.length && html`<${Empty}>It is empty.<//>`}
    ${server.fills.length > 0 && html`<div class="scroll"><table><thead><tr><th>Source</th><th>To</th><th>State</th><th>Files</th><th>Bytes</th><th></th><th>By</th><th>Asked</th></tr></thead>
      <tbody>${server.fills.map((one) => html`<tr key=${`${one.source} ${one.to}`}><td>${one.source}</td><td>/${one.to}</td><td><${State} state=${one.progress.state} /></td>
        <td>${number(one.progress.done_files)} of ${number(one.progress.total_files)}</td><td class="nowrap">${size(one.progress.done_bytes)} of ${size(one.progress.total_bytes)}</td>
        <td class=${one.progress.state === "failed" ? "bad" : "soft"}>${one.progress.text}${one.progress.next ? html`<div>${one.progress.next}</div>` : ""}</td><td>${one.created_by}</td><td class="soft">${ago(one.created_at)}</td></tr>`)}</tbody></table></div>`}
    ${mayChange() && html`<form class="head" onSubmit=${fill}>
      <label class="grow">Source<input required placeholder="azureml://datastores/NAME/paths/FOLDER" value=${source} onInput=${(event) => setSource(event.target.value)} /></label>
      <label>To<input placeholder="subfolder" value=${to} onInput=${(event) => setTo(event.target.value)} /></label>
      <button class="primary" disabled=${!source}>Fill</button></form>`}
  </section>`;
}

function State({ state }) {
  return html`<span class=${`status ${KINDS[state] || "busy"}`}><i aria-hidden="true"></i>${state}</span>`;
}

function address(server) {
  return server.address && server.port ? `nfs://${server.address}:${server.port}${server.export}` : "";
}
