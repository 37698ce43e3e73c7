// Registered environments.
import { html } from "../view.js";
import { getAll, useCall } from "../api.js";
import { Empty } from "../parts/common.js";
import { Problem } from "../parts/notices.js";
import { asYaml } from "../parts/yaml.js";
import { ago } from "../format.js";

export function EnvironmentsPage() {
  const { data, error } = useCall(() => getAll("/environments"), []);
  return html`<div class="head"><h1>Environments</h1></div>
    <${Problem} error=${error} />
    ${data && !data.length && html`<section class="card"><${Empty}>None is registered. A job may describe its environment itself; <code>muster env register NAME FILE</code> keeps one for everybody.<//></section>`}
    ${(data || []).map((one) => html`<section class="card" key=${one.name}><h2>${one.name} <span class="soft">version ${one.version} · ${ago(one.created_at)}</span></h2><pre class="text">${asYaml(one.spec)}</pre></section>`)}`;
}
