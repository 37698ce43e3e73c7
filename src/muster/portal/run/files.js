// The files of a run, with previews.
import { html, useState } from "../view.js";
import { address, getAll, useCall } from "../api.js";
import { Empty } from "../parts/common.js";
import { Preview } from "../parts/preview.js";
import { Problem } from "../parts/notices.js";
import { hasEnded, size } from "../format.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

/** @param {{run: Schemas["RunView"]}} _ */
export function Files({ run }) {
  const root = `/runs/${encodeURIComponent(run.id)}/files`;
  const { data, error } = useCall(() => getAll(root, { checkpoints: true, limit: 5000 }), [run.id, run.status], hasEnded(run.status) ? 0 : 5000);
  const [find, setFind] = useState("");
  const [chosen, setChosen] = useState("");
  if (error && !data) return html`<${Problem} error=${error} />`;
  if (!data) return null;
  const fitting = data.filter((file) => file.path.toLowerCase().includes(find.toLowerCase()));
  const file = data.find((one) => one.path === chosen);
  const path = file && `${root}/${file.path.split("/").map(encodeURIComponent).join("/")}`;
  return html`<div class="files">
    <section class="card">
      <div class="bar-row"><input type="search" placeholder="Find files" aria-label="Find files" value=${find} onInput=${(event) => setFind(event.target.value)} /></div>
      <ul class="list">${fitting.slice(0, 2000).map((one) => html`<li key=${one.path}><button aria-current=${one.path === chosen ? "true" : "false"} onClick=${() => setChosen(one.path)}><span>${one.path}</span><small>${size(one.size)}</small></button></li>`)}</ul>
      ${!data.length && html`<${Empty}>No files. What a script writes below <code>outputs</code> is kept.<//>`}
      ${fitting.length > 2000 && html`<p class="soft">and ${fitting.length - 2000} more</p>`}
    </section>
    <section class="card preview">${file
      ? html`<div class="head"><h2 class="grow">${file.path}</h2><a href=${address(path)} download=${file.path.split("/").pop()}>Download, ${size(file.size)}</a></div><${Preview} key=${path + file.size} path=${path} name=${file.path} size=${file.size} />`
      : html`<${Empty}>Choose a file to preview it.<//>`}</section>
  </div>`;
}
