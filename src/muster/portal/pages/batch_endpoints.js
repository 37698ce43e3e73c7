// Batch endpoints: their deployments, the default one, and scoring of data.
import { html, useState } from "../view.js";
import { get, getAll, mayChange, send, useCall } from "../api.js";
import { Link } from "../router.js";
import { Empty, Facts } from "../parts/common.js";
import { Problem, say, sayError } from "../parts/notices.js";
import { ago, number } from "../format.js";

const LIVE_MS = 5000;

/** The list, as a part of the page of endpoints. */
export function BatchEndpoints() {
  const { data, error } = useCall(() => getAll("/batch-endpoints"), [], LIVE_MS);
  return html`<section class="card"><h2>Batch endpoints</h2>
    <${Problem} error=${error} />
    ${data && !data.length && html`<${Empty}>None. <code>muster batch-endpoint create NAME</code> makes one.<//>`}
    ${data?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>Deployments</th><th>By</th><th>Created</th></tr></thead>
      <tbody>${data.map((one) => html`<tr key=${one.name}><td><${Link} to=${`/batch-endpoints/${encodeURIComponent(one.name)}`}>${one.name}<//></td>
        <td><div class="tags">${one.deployments.map((item) => html`<span class="tag">${item.name}${item.is_default ? " (default)" : ""}</span>`)}</div></td>
        <td>${one.created_by}</td><td class="soft">${ago(one.created_at)}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

export function BatchEndpointPage({ parts: [name] }) {
  const path = `/batch-endpoints/${encodeURIComponent(name)}`;
  const { data, error, again } = useCall(() => get(path), [path], LIVE_MS);
  return html`<div class="head"><h1><${Link} to="/endpoints">Endpoints<//> / ${name}</h1></div>
    <${Problem} error=${error} />
    ${data && html`<section class="card"><${Facts} rows=${[
        ["Description", data.description], ["Made", `${ago(data.created_at)}${data.created_by ? ` by ${data.created_by}` : ""}`],
        ["Runs", html`<${Link} to=${`/?tag=${encodeURIComponent(`batch_endpoint=${name}`)}`}>Runs of this endpoint<//>`],
      ]} /></section>
      <${Deployments} endpoint=${data} path=${path} again=${again} />
      <${Score} endpoint=${data} path=${path} />`}`;
}

function Deployments({ endpoint, path, again }) {
  const choose = async (name) => {
    try {
      await send("PATCH", path, { default_deployment: name });
      say(`${name} is the default`);
    } catch (error) {
      sayError(error);
    }
    again();
  };
  return html`<section class="card"><h2>Deployments</h2>
    ${!endpoint.deployments.length && html`<${Empty}>Nothing is deployed: <code>muster batch-endpoint deploy -f FILE</code>.<//>`}
    ${endpoint.deployments.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>Model</th><th>Script</th><th>Mini-batch</th><th>Nodes</th><th>Processes</th><th>Cluster</th><th>Deployed</th><th></th></tr></thead>
      <tbody>${endpoint.deployments.map((one) => html`<tr key=${one.name}><td>${one.name} <span class="soft">${one.revision > 1 ? `revision ${one.revision}` : ""}</span></td>
        <td>${one.model || ""}</td><td>${one.settings.script}</td><td>${one.settings.mini_batch_size ? number(one.settings.mini_batch_size) : ""}</td><td>${one.nodes}</td><td>${one.procs}</td><td>${one.compute}</td><td class="soft">${ago(one.updated_at)}</td>
        <td>${one.is_default ? "default" : mayChange() && html`<button onClick=${() => choose(one.name)}>Make it the default</button>`}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function Score({ endpoint, path }) {
  const [data, setData] = useState("");
  const [deployment, setDeployment] = useState("");
  const [run, setRun] = useState(/** @type {any} */ (null));
  const [isAsking, setAsking] = useState(false);
  if (!mayChange() || !endpoint.deployments.length) return null;
  const ask = async (event) => {
    event.preventDefault();
    setAsking(true);
    try {
      setRun(await send("POST", `${path}/invoke`, { key: crypto.randomUUID(), data, deployment: deployment || null }));
    } catch (error) {
      setRun(null);
      sayError(error);
    }
    setAsking(false);
  };
  return html`<section class="card"><h2>Score data</h2><form class="ask" onSubmit=${ask}>
      <label>Data<input required placeholder="azureml:images:3, azureml://datastores/…, or a path on the nodes" value=${data} onInput=${(event) => setData(event.target.value)} /></label>
      <div class="head"><label>With<select value=${deployment} onChange=${(event) => setDeployment(event.target.value)}><option value="">the default</option>${endpoint.deployments.map((one) => html`<option>${one.name}</option>`)}</select></label>
        <button class="primary" disabled=${isAsking}>${isAsking ? "Asking …" : "Score"}</button></div>
    </form>
    ${run && html`<p role="status">It is scored by <${Link} to=${`/runs/${encodeURIComponent(run.id)}`}>${run.id}<//></p>`}
  </section>`;
}
