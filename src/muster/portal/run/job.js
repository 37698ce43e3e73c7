// What was submitted: the job, its provenance, its environment.
import { html } from "../view.js";
import { get, request, useCall } from "../api.js";
import { Copy, Facts } from "../parts/common.js";
import { asYaml } from "../parts/yaml.js";
import { moment, size } from "../format.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

/** @param {{run: Schemas["RunView"]}} _ */
export function Job({ run }) {
  const root = `/runs/${encodeURIComponent(run.id)}`;
  const environment = useCall(() => (run.environment ? get(`${root}/environment`) : Promise.resolve(null)), [run.id, run.status]);
  const hasOrigin = run.files.some((file) => file.path === "muster/provenance.json");
  const hasDiff = run.files.some((file) => file.path === "muster/uncommitted.diff");
  const origin = useCall(() => (hasOrigin ? get(`${root}/files/muster/provenance.json`) : Promise.resolve(null)), [run.id, hasOrigin]);
  const diff = useCall(async () => (hasDiff ? (await request("GET", `${root}/files/muster/uncommitted.diff`, { headers: { Range: "bytes=0-200000" } })).text() : null), [run.id, hasDiff]);
  const git = origin.data?.git;
  const found = environment.data;
  return html`<div class="two">
    <div>
      <section class="card"><h2>Job</h2><pre class="text">${asYaml(run.spec)}</pre></section>
      ${diff.data && html`<section class="card"><h2>Uncommitted changes</h2><div class="diff">${diff.data.split("\n").slice(0, 4000).map((line) => html`<div class=${line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "gap" : ""}>${line || " "}</div>`)}</div></section>`}
    </div>
    <div>
      <section class="card"><h2>Run it again</h2><${Copy} text=${`muster rerun ${run.id}`} /></section>
      ${git && html`<section class="card"><h2>Code came from</h2><${Facts} rows=${[["Commit", html`<code>${git.commit}</code>`], ["Branch", git.branch], ["Remote", git.remote], ["Uncommitted", git.dirty ? "yes" : ""]]} /></section>`}
      ${origin.data && html`<section class="card"><h2>Submitted from</h2><${Facts} rows=${Object.entries(origin.data).filter(([, value]) => ["string", "number"].includes(typeof value)).map(([name, value]) => [name.replaceAll("_", " "), name === "at" ? moment(value) : name === "memory_bytes" ? size(value) : String(value)])} />${origin.data.command && html`<${Copy} text=${[].concat(origin.data.command).join(" ")} />`}</section>`}
      ${found && html`<section class="card"><h2>Environment</h2><${Facts} rows=${[["Name", found.name], ["Python", found.python], ["Image", found.image], ["Platform", found.platform], ["Key", found.key]]} />
        ${found.lock?.length > 0 && html`<details><summary>${found.lock.length} packages</summary><pre class="text">${found.lock.join("\n")}</pre></details>`}</section>`}
    </div>
  </div>`;
}
