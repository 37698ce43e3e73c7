// Endpoints: their deployments with figures, the traffic, and a test request.
import { html, useState } from "../view.js";
import { get, getAll, mayChange, send, useCall } from "../api.js";
import { Link } from "../router.js";
import { BatchEndpoints } from "./batch_endpoints.js";
import { Copy, Empty, Facts } from "../parts/common.js";
import { Problem, say, sayError } from "../parts/notices.js";
import { ago, number } from "../format.js";

const LIVE_MS = 3000;

export function EndpointsPage({ parts: [name] }) {
  return name ? html`<${Endpoint} key=${name} name=${name} />` : html`<${Overview} />`;
}

function Overview() {
  const { data, error } = useCall(() => getAll("/endpoints"), [], LIVE_MS);
  return html`<div class="head"><h1>Endpoints</h1></div>
    <${Problem} error=${error} />
    <section class="card">
      ${data && !data.length && html`<${Empty}>None. <code>muster endpoint create NAME</code> makes one, and <code>muster endpoint deploy -f FILE</code> has it serve a model.<//>`}
      ${data?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>State</th><th>Deployments</th><th>Requests/s</th><th>p95</th><th>Failed</th><th>By</th><th>Created</th></tr></thead>
        <tbody>${data.map((one) => html`<tr key=${one.name}><td><${Link} to=${`/endpoints/${encodeURIComponent(one.name)}`}>${one.name}<//></td><td><${State} state=${one.state} /></td>
          <td><div class="tags">${one.deployments.map((item) => html`<span class="tag">${item.name} ${item.traffic} %</span>`)}</div></td>
          <td>${number(total(one, "rate"))}</td><td>${slowest(one)}</td><td>${number(total(one, "failed"))}</td><td>${one.created_by}</td><td class="soft">${ago(one.created_at)}</td></tr>`)}</tbody></table></div>`}
    </section>
    <${BatchEndpoints} />`;
}

function Endpoint({ name }) {
  const path = `/endpoints/${encodeURIComponent(name)}`;
  const { data, error, again } = useCall(() => get(path), [path], LIVE_MS);
  return html`<div class="head"><h1><${Link} to="/endpoints">Endpoints<//> / ${name}</h1>${data && html`<${State} state=${data.state} />`}</div>
    <${Problem} error=${error} />
    ${data && html`<section class="card"><${Facts} rows=${[
        ["Address", data.scoring_uri && html`<${Copy} text=${data.scoring_uri} />`], ["Opened by", data.auth_mode === "key" ? "keys" : "tokens"], ["Description", data.description], ["Made", `${ago(data.created_at)}${data.created_by ? ` by ${data.created_by}` : ""}`],
        ["Front door", data.run && html`<${Link} to=${`/runs/${encodeURIComponent(data.run)}`}>${data.run}<//>`],
      ]} /></section>
      <${Deployments} endpoint=${data} path=${path} again=${again} />
      <${Try} endpoint=${data} path=${path} />`}`;
}

function Deployments({ endpoint, path, again }) {
  const [shares, setShares] = useState(/** @type {Record<string, string> | null} */ (null));
  const sum = Object.values(shares || {}).reduce((all, one) => all + Number(one || 0), 0);
  const save = async () => {
    try {
      await send("PATCH", path, { traffic: Object.fromEntries(Object.entries(shares || {}).map(([name, share]) => [name, Number(share || 0)])) });
      say("The traffic was changed");
      setShares(null);
    } catch (error) {
      sayError(error);
    }
    again();
  };
  const begin = () => setShares(Object.fromEntries(endpoint.deployments.map((one) => [one.name, String(one.traffic)])));
  return html`<section class="card"><div class="head"><h2 class="grow">Deployments</h2>
      ${mayChange() && endpoint.deployments.length > 0 && !shares && html`<button onClick=${begin}>Change the traffic</button>`}
      ${shares && html`<span class=${sum === 100 || sum === 0 ? "soft" : "bad"}>${sum} %</span><button class="primary" disabled=${sum !== 100 && sum !== 0} onClick=${save}>Save</button><button onClick=${() => setShares(null)}>Cancel</button>`}</div>
    ${!endpoint.deployments.length && html`<${Empty}>Nothing is deployed.<//>`}
    ${endpoint.deployments.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>State</th><th>Traffic</th><th>Replicas</th><th>Model</th><th>Requests</th><th>Failed</th><th>Requests/s</th><th>p50</th><th>p95</th><th>p99</th><th>Open</th><th>Batch</th><th>Run</th></tr></thead>
      <tbody>${endpoint.deployments.map((one) => html`<tr key=${one.name}><td>${one.name} <span class="soft">${one.revision > 1 ? `revision ${one.revision}` : ""}</span></td>
        <td><${State} state=${one.state} />${one.why && html`<div class="bad">${one.why}</div>`}</td>
        <td>${shares ? html`<input class="narrow" type="number" min="0" max="100" aria-label=${`Traffic of ${one.name}`} value=${shares[one.name] ?? "0"} onInput=${(event) => setShares({ ...shares, [one.name]: event.target.value })} />` : `${one.traffic} %${one.mirror ? `, mirrors ${one.mirror} %` : ""}`}</td>
        <td>${one.ready} of ${one.instances}${one.max_instances > one.instances ? ` to ${one.max_instances}` : ""}</td><td>${one.model || ""}</td>
        ${figures(one).map((value) => html`<td class="nowrap">${value}</td>`)}
        <td>${one.run && html`<${Link} to=${`/runs/${encodeURIComponent(one.run)}?tab=logs`}>${one.run}<//>`}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function Try({ endpoint, path }) {
  const [body, setBody] = useState("{}");
  const [deployment, setDeployment] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [isAsking, setAsking] = useState(false);
  if (!mayChange() || !endpoint.deployments.length) return null;
  const ask = async (event) => {
    event.preventDefault();
    setAsking(true);
    try {
      setAnswer(await send("POST", `${path}/invoke`, { body, deployment: deployment || null }));
    } catch (error) {
      setAnswer(null);
      sayError(error);
    }
    setAsking(false);
  };
  return html`<section class="card"><h2>Try it</h2><form class="ask" onSubmit=${ask}>
      <label>Request<textarea rows="6" class="mono" spellcheck=${false} value=${body} onInput=${(event) => setBody(event.target.value)}></textarea></label>
      <div class="head"><label>To<select value=${deployment} onChange=${(event) => setDeployment(event.target.value)}><option value="">by the traffic</option>${endpoint.deployments.map((one) => html`<option>${one.name}</option>`)}</select></label>
        <button class="primary" disabled=${isAsking || !endpoint.scoring_uri}>${isAsking ? "Asking …" : "Send"}</button></div>
    </form>
    ${answer && html`<div role="status" aria-label="Answer"><p class=${answer.status < 400 ? "soft" : "bad"}>HTTP ${answer.status} after ${number(answer.seconds * 1000)} ms</p><pre class="text">${shown(answer.body)}</pre></div>`}
  </section>`;
}

function State({ state }) {
  const kind = { ready: "good", serving: "good", failed: "bad", starting: "busy", updating: "busy", empty: "gone" }[state] || "busy";
  return html`<span class=${`status ${kind}`}><i aria-hidden="true"></i>${state}</span>`;
}

function figures(deployment) {
  const found = deployment.requests || {};
  const ms = (value) => (found.requests ? `${number(value)} ms` : "");
  return [number(found.requests || 0), number(found.failed || 0), number(found.rate || 0), ms(found.p50_ms), ms(found.p95_ms), ms(found.p99_ms),
    number(found.in_flight || 0), deployment.replicas?.batch_mean ? number(deployment.replicas.batch_mean) : ""];
}

function total(endpoint, name) {
  return endpoint.deployments.reduce((sum, one) => sum + (one.requests?.[name] || 0), 0);
}

function slowest(endpoint) {
  const found = Math.max(0, ...endpoint.deployments.map((one) => one.requests?.p95_ms || 0));
  return found ? `${number(found)} ms` : "";
}

/** JSON pretty-printed, everything else unchanged. @param {string} body */
function shown(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
