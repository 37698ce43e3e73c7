// Registered models: their versions, and the files and lineage of one.
import { html, useState } from "../view.js";
import { address, get, getAll, mayChange, send, useCall } from "../api.js";
import { Link, go, useHere } from "../router.js";
import { Copy, Empty, Facts } from "../parts/common.js";
import { Preview } from "../parts/preview.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { ago, moment, number, size, text } from "../format.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

const STAGES = ["None", "Staging", "Production", "Archived"];

export function ModelsPage({ parts: [name] }) {
  return name ? html`<${Model} key=${name} name=${name} />` : html`<${Overview} />`;
}

function Overview() {
  const { data, error } = useCall(() => getAll("/models"), [], 10000);
  const names = [...new Set((data || []).map((one) => one.name))].sort();
  return html`<div class="head"><h1>Models</h1></div>
    <${Problem} error=${error} />
    ${data && !names.length && html`<section class="card"><${Empty}>None. A script registers one with <code>run.register_model(NAME, "outputs/model")</code>, or through MLflow.<//></section>`}
    ${names.map((name) => html`<section class="card" key=${name}><h2><${Link} to=${at(name)}>${name}<//></h2>
      <${Versions} versions=${newestFirst(data.filter((one) => one.name === name))} /></section>`)}`;
}

const at = (name, version) => `/models/${encodeURIComponent(name)}${version ? `?version=${version}` : ""}`;
const newestFirst = (versions) => [...versions].sort((a, b) => b.version - a.version);
const formatsOf = (model) => [...new Set((model.formats || []).map((one) => one.format))].join(", ") || model.type || "custom_model";

/** @param {{versions: Schemas["ModelView"][], chosen?: number}} _ */
function Versions({ versions, chosen = 0 }) {
  return html`<div class="scroll"><table><thead><tr><th>Version</th><th>Stage</th><th>Aliases</th><th>Format</th><th>Size</th><th>From run</th><th>Tags</th><th>Description</th><th>Registered</th></tr></thead>
    <tbody>${versions.map((one) => html`<tr key=${one.version} aria-current=${one.version === chosen ? "true" : "false"}><td><${Link} to=${at(one.name, one.version)}>${one.version}<//></td><td>${one.stage && one.stage !== "None" ? one.stage : ""}</td><td><div class="tags">${(one.aliases || []).map((alias) => html`<span class="tag">@${alias}</span>`)}</div></td><td title=${one.path}>${formatsOf(one)}</td><td class="soft">${one.size === undefined || one.size === null ? "" : size(one.size)}</td><td>${one.run_id && html`<${Link} to=${`/runs/${encodeURIComponent(one.run_id)}`}>${one.run_id}<//>`}</td><td><div class="tags">${Object.entries(one.tags).map(([tag, value]) => html`<span class="tag">${tag}=${value}</span>`)}</div></td><td>${one.description}</td><td class="soft" title=${moment(one.created_at)}>${ago(one.created_at)}</td></tr>`)}</tbody></table></div>`;
}

function Model({ name }) {
  const { query } = useHere();
  const asked = query.get("version") || undefined;
  const details = useCall(() => get(`/models/${encodeURIComponent(name)}/details`, { version: asked }), [name, asked]);
  const versions = useCall(() => getAll("/models", { name }), [name]);
  const [asking, setAsking] = useState(false);
  const again = () => {
    details.again();
    versions.again();
  };
  if (details.error) return html`<div class="head"><h1><${Link} to="/models">Models<//> / ${name}</h1></div><${Problem} error=${details.error} />`;
  if (!details.data) return null;
  const { model, files, lineage } = details.data;
  const path = `/models/${encodeURIComponent(name)}/versions/${model.version}`;
  const act = async (method, body, told) => {
    try {
      await send(method, path, body);
      say(told);
      if (method === "DELETE") go((versions.data || []).length > 1 ? at(name) : "/models");
      again();
    } catch (problem) {
      sayError(problem);
    }
  };
  return html`<div class="head"><h1 class="grow"><${Link} to="/models">Models<//> / ${name} <span class="soft">version ${model.version}</span></h1>
      ${mayChange() && html`<button onClick=${() => setAsking(true)}>Delete</button>`}</div>
    <div class="two"><div>
      <section class="card"><${Facts} rows=${[
        ["Format", formatsOf(model)], ["Size", model.size === null || model.size === undefined ? "" : `${size(model.size)} in ${number(model.num_files)} ${model.num_files === 1 ? "file" : "files"}`],
        ["Description", model.description], ["Registered", `${moment(model.created_at)}${model.created_by ? ` by ${model.created_by}` : ""}`], ["Hash", model.digest && html`<span class="mono">${model.digest}</span>`],
      ]} />
      ${mayChange() && html`<${Standing} key=${model.version} model=${model} act=${act} />`}</section>
      <${Files} key=${model.version} path=${path} model=${model} files=${files} />
      <section class="card"><h2>Versions</h2><${Versions} versions=${newestFirst(versions.data || [])} chosen=${model.version} /></section>
    </div><div>
      <section class="card"><h2>Use it</h2><p class="soft">Serve it on this machine:</p><${Copy} text=${`muster serve models:/${name}/${model.version}`} />
        <p class="soft">As the input of a job:</p><${Copy} text=${`azureml:${name}:${model.version}`} /><p class="soft">Download it:</p><${Copy} text=${`muster model download ${name}:${model.version}`} /></section>
      <${Lineage} lineage=${lineage} />
    </div></div>
    ${asking && html`<${Ask} title=${`Delete version ${model.version} of ${name}?`} confirm="Delete" danger=${true} onDone=${(isYes) => { setAsking(false); if (isYes) act("DELETE", undefined, "It was deleted"); }}><p>The run that it came from stays. A version that an endpoint uses cannot be deleted.</p><//>`}`;
}

/** Its stage and its aliases, which can be changed. */
function Standing({ model, act }) {
  const [alias, setAlias] = useState("");
  const add = (event) => {
    event.preventDefault();
    act("PATCH", { aliases: [alias] }, `@${alias} is version ${model.version} now`);
    setAlias("");
  };
  return html`<form class="bar-row" onSubmit=${add}>
    <label class="nowrap">Stage <select value=${model.stage || "None"} onChange=${(event) => act("PATCH", { stage: event.target.value }, `Its stage is ${event.target.value} now`)}>${STAGES.map((one) => html`<option value=${one}>${one === "None" ? "none" : one}</option>`)}</select></label>
    <div class="tags">${(model.aliases || []).map((one) => html`<span class="tag">@${one} <button type="button" class="quiet" aria-label=${`Remove @${one}`} onClick=${() => act("PATCH", { without_aliases: [one] }, `@${one} was removed`)}>×</button></span>`)}</div>
    <input required pattern="[A-Za-z][A-Za-z0-9_.\\-]*" aria-label="New alias" placeholder="alias" value=${alias} onInput=${(event) => setAlias(event.target.value)} /><button disabled=${!alias}>Add</button></form>`;
}

/** @param {{path: string, model: Schemas["ModelView"], files: Schemas["FileEntry"][]}} _ */
function Files({ path, model, files }) {
  const [chosen, setChosen] = useState(files.length === 1 ? files[0].path : null);
  const details = new Map((model.formats || []).map((one) => [one.path, one]));
  const called = (one) => one.path || model.path.split("/").pop() || model.name;
  const below = (name) => `${path}/files${name ? `/${name.split("/").map(encodeURIComponent).join("/")}` : ""}`;
  const file = files.find((one) => one.path === chosen);
  const format = details.get(chosen);
  return html`<section class="card"><h2>Files</h2>
    <ul class="list">${files.map((one) => html`<li key=${one.path}><button aria-current=${one.path === chosen ? "true" : "false"} onClick=${() => setChosen(one.path)}><span>${called(one)}${details.has(one.path) ? html` <span class="soft">${details.get(one.path).format}</span>` : ""}</span><small>${size(one.size)}</small></button></li>`)}</ul>
    ${file && html`<div class="head"><h3 class="grow">${called(file)}</h3><a href=${address(below(file.path))} download=${called(file).split("/").pop()}>Download, ${size(file.size)}</a></div>
      ${format ? html`<${Facts} rows=${[["Format", format.format], ...Object.entries(format.details || {}).map(([name, value]) => [name.replaceAll("_", " "), text(value)])]} />` : html`<${Preview} key=${file.path} path=${below(file.path)} name=${called(file)} size=${file.size} />`}`}
  </section>`;
}

/** @param {{lineage: Schemas["ModelLineage"]}} _ */
function Lineage({ lineage }) {
  const measured = Object.entries(lineage.metrics || {}).filter(([name]) => !name.startsWith("node/"));
  if (!lineage.run_id) return html`<section class="card"><h2>Where it comes from</h2><${Empty}>It was registered from files, not from a run.<//></section>`;
  return html`<section class="card"><h2>Where it comes from</h2><${Facts} rows=${[
      ["Run", html`<${Link} to=${`/runs/${encodeURIComponent(lineage.run_id)}`}>${lineage.run_id}<//>`], ["Experiment", lineage.experiment], ["Submitted by", lineage.submitted_by],
      ["Command", lineage.command && html`<code>${lineage.command}</code>`], ["Code", lineage.code && html`<${Link} to=${`/runs/${encodeURIComponent(lineage.run_id)}?tab=code`}>${lineage.code.slice(0, 12)}<//>`], ["Environment", lineage.environment],
    ]} />
    <${Pairs} name="Inputs" pairs=${Object.entries(lineage.inputs || {})} />
    <${Pairs} name="Parameters" pairs=${Object.entries(lineage.params || {})} />
    <${Pairs} name="Last values" pairs=${measured} /></section>`;
}

function Pairs({ name, pairs }) {
  if (!pairs.length) return null;
  return html`<table><thead><tr><th colspan="2">${name}</th></tr></thead><tbody>${pairs.map(([key, value]) => html`<tr key=${key}><td>${key}</td><td class="right mono">${typeof value === "number" ? number(value) : text(value)}</td></tr>`)}</tbody></table>`;
}
