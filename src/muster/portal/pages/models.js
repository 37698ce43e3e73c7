// Registered models with their versions.
import { html } from "../view.js";
import { getAll, useCall } from "../api.js";
import { Link } from "../router.js";
import { Empty } from "../parts/common.js";
import { Problem } from "../parts/notices.js";
import { ago, moment, size } from "../format.js";

export function ModelsPage() {
  const { data, error } = useCall(() => getAll("/models"), [], 10000);
  const names = [...new Set((data || []).map((one) => one.name))].sort();
  return html`<div class="head"><h1>Models</h1></div>
    <${Problem} error=${error} />
    ${data && !names.length && html`<section class="card"><${Empty}>None. A script registers one with <code>run.register_model(NAME, "outputs/model")</code>, or through MLflow.<//></section>`}
    ${names.map((name) => {
      const versions = data.filter((one) => one.name === name).sort((a, b) => b.version - a.version);
      return html`<section class="card" key=${name}><h2>${name}</h2><div class="scroll"><table><thead><tr><th>Version</th><th>Stage</th><th>Aliases</th><th>Format</th><th>Size</th><th>From run</th><th>Tags</th><th>Description</th><th>Registered</th></tr></thead>
        <tbody>${versions.map((one) => html`<tr key=${one.version}><td>${one.version}</td><td>${one.stage && one.stage !== "None" ? one.stage : ""}</td><td><div class="tags">${(one.aliases || []).map((alias) => html`<span class="tag">@${alias}</span>`)}</div></td><td title=${one.path}>${[...new Set((one.formats || []).map((format) => format.format))].join(", ") || one.type || ""}</td><td class="soft">${one.size === undefined || one.size === null ? "" : size(one.size)}</td><td>${one.run_id && html`<${Link} to=${`/runs/${encodeURIComponent(one.run_id)}`}>${one.run_id}<//>`}</td><td><div class="tags">${Object.entries(one.tags).map(([tag, value]) => html`<span class="tag">${tag}=${value}</span>`)}</div></td><td>${one.description}</td><td class="soft" title=${moment(one.created_at)}>${ago(one.created_at)}</td></tr>`)}</tbody></table></div></section>`;
    })}`;
}
