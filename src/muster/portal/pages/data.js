// Datastores with their files, and data assets.
import { html, useState } from "../view.js";
import { address, get, getAll, mayChange, send, useCall } from "../api.js";
import { Link, go } from "../router.js";
import { Empty, Facts } from "../parts/common.js";
import { Preview } from "../parts/preview.js";
import { Problem, say, sayError } from "../parts/notices.js";
import { ago, size, text } from "../format.js";

const PAGE = 5000;

export function DataPage({ parts: [store, folder = ""] }) {
  return store ? html`<${Browser} key=${`${store}/${folder}`} store=${store} folder=${folder} />` : html`<${Overview} />`;
}

function Overview() {
  const stores = useCall(() => getAll("/datastores"), []);
  const assets = useCall(() => getAll("/assets"), []);
  const test = async (name) => {
    try {
      await send("POST", `/datastores/${encodeURIComponent(name)}/test`);
      say(`${name} answers`);
    } catch (error) {
      sayError(error);
    }
  };
  return html`<div class="head"><h1>Data</h1></div>
    <${Problem} error=${stores.error} />
    <section class="card"><h2>Datastores</h2>
      ${stores.data && !stores.data.length && html`<${Empty}>None. <code>muster datastore create NAME --path FOLDER</code> adds one.<//>`}
      ${stores.data?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>Kind</th><th>Where</th><th>Created</th><th></th></tr></thead>
        <tbody>${stores.data.map((one) => html`<tr key=${one.name}><td><${Link} to=${`/data/${encodeURIComponent(one.name)}`}>${one.name}<//></td><td>${one.kind}</td><td class="mono">${Object.entries(one.options || {}).filter(([, value]) => value !== null && value !== "").map(([name, value]) => `${name}=${text(value)}`).join(" ")}</td><td class="soft">${ago(one.created_at)}</td><td>${mayChange() && html`<button onClick=${() => test(one.name)}>Test</button>`}</td></tr>`)}</tbody></table></div>`}
    </section>
    <section class="card"><h2>Data assets</h2>
      ${assets.data && !assets.data.length && html`<${Empty}>None. <code>muster data create NAME --path FOLDER</code> adds one.<//>`}
      ${assets.data?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>Version</th><th>Files</th><th>Size</th><th>Where</th><th>Created</th></tr></thead>
        <tbody>${assets.data.map((one) => html`<tr key=${`${one.name}:${one.version}`}><td>${placeOf(one.address) ? html`<${Link} to=${placeOf(one.address)}>${one.name}<//>` : one.name}</td><td>${one.version}</td><td>${one.num_files}</td><td>${size(one.size)}</td><td class="mono">${one.address}</td><td class="soft">${ago(one.created_at)}</td></tr>`)}</tbody></table></div>`}
    </section>`;
}

function Browser({ store, folder }) {
  const [file, setFile] = useState(/** @type {any} */ (null));
  const inner = folder.split("/").filter(Boolean);
  const path = `/data/${encodeURIComponent(store)}/${inner.map(encodeURIComponent).join("/")}`;
  const { data, error } = useCall(() => get(path, { list: 1, limit: PAGE }), [path]);
  const entries = data ? leveled(data.files) : [];
  const at = (parts) => `/data/${encodeURIComponent(store)}${parts.length ? `/${parts.map(encodeURIComponent).join("/")}` : ""}`;
  const below = file && `${path.replace(/\/$/, "")}/${file.path.split("/").map(encodeURIComponent).join("/")}`;
  return html`<div class="head"><h1><${Link} to="/data">Data<//> / <${Link} to=${at([])}>${store}<//>${inner.map((name, index) => html` / <${Link} to=${at(inner.slice(0, index + 1))}>${name}<//>`)}</h1></div>
    <${Problem} error=${error} />
    <div class="files">
      <section class="card">
        <ul class="list">${entries.map((one) => html`<li key=${one.path}><button aria-current=${file?.path === one.path ? "true" : "false"} onClick=${() => (one.isFolder ? go(at([...inner, one.path])) : setFile(one))}><span>${one.isFolder ? `${one.path}/` : one.path}</span><small>${one.isFolder ? `${one.count} files, ${size(one.size)}` : size(one.size)}</small></button></li>`)}</ul>
        ${data && !entries.length && html`<${Empty}>This folder is empty.<//>`}
        ${data && data.files.length >= PAGE && html`<p class="soft">Only the first ${PAGE} files below this folder were looked at.</p>`}
      </section>
      <section class="card preview">${file ? html`<div class="head"><h2 class="grow">${file.path}</h2><a href=${address(below)} download=${file.path}>Download, ${size(file.size)}</a></div><${Preview} key=${below} path=${below} name=${file.path} size=${file.size} />`
        : html`<${Facts} rows=${[["Datastore", store], ["Folder", `/${inner.join("/")}`], ["Files", data ? String(data.files.length) : ""], ["Size", data ? size(data.files.reduce((sum, one) => sum + one.size, 0)) : ""]]} />`}</section>
    </div>`;
}

/** The portal's page for an address. @param {string} where azureml://datastores/NAME/paths/FOLDER */
function placeOf(where) {
  const found = /^azureml:\/\/datastores\/([^/]+)\/paths\/(.*?)\/?$/.exec(where);
  return found ? `/data/${found[1]}/${found[2]}` : "";
}

/** Files of a folder, with deeper ones grouped as folders. @param {{path: string, size: number}[]} files */
function leveled(files) {
  const folders = new Map();
  const found = [];
  for (const one of files) {
    const [first, ...rest] = one.path.split("/");
    if (!rest.length) found.push(one);
    else {
      const known = folders.get(first) || { path: first, isFolder: true, count: 0, size: 0 };
      known.count += 1;
      known.size += one.size;
      folders.set(first, known);
    }
  }
  return [...folders.values(), ...found];
}
