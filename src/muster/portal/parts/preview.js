// Previews of files: text, tables, images, notebooks. Nothing in them is executed or loaded as a page.
import { html, useEffect, useState } from "../view.js";
import { getBytes } from "../api.js";
import { Problem } from "./notices.js";
import { pieces } from "./ansi.js";
import { size as sizeText } from "../format.js";

const MOST_TEXT = 512 * 1024;
const MOST_IMAGE = 20 * 1024 * 1024;
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", bmp: "image/bmp" };

/** @param {{path: string, name: string, size: number}} _ */
export function Preview({ path, name, size }) {
  const ending = name.split(".").pop().toLowerCase();
  const [bytes, setBytes] = useState(/** @type {Uint8Array | null} */ (null));
  const [error, setError] = useState(null);
  const isImage = ending in IMAGES;
  const most = isImage ? MOST_IMAGE : ending === "ipynb" ? 4 * MOST_TEXT : MOST_TEXT;
  useEffect(() => {
    let isGone = false;
    if (size > 0) getBytes(path, 0, most - 1).then((found) => !isGone && setBytes(found), (failed) => !isGone && setError(failed));
    return () => (isGone = true);
  }, [path]);
  if (error) return html`<${Problem} error=${error} />`;
  if (size === 0) return html`<p class="empty">The file is empty.</p>`;
  if (!bytes) return html`<p class="empty">…</p>`;
  if (isImage && size <= MOST_IMAGE) return html`<${Picture} bytes=${bytes} kind=${IMAGES[ending]} name=${name} />`;
  if (bytes.subarray(0, 8000).includes(0)) return html`<p class="empty">No preview of binary files.</p>`;
  const text = new TextDecoder().decode(bytes);
  const note = size > most && html`<p class="soft">The first ${sizeText(most)}.</p>`;
  if (ending === "ipynb") return html`<${Notebook} text=${text} />`;
  if (ending === "csv" || ending === "tsv") return html`${note}<${Table} rows=${rowsOf(text, ending === "tsv" ? "\t" : ",")} />`;
  if (ending === "jsonl") return html`${note}<${Table} rows=${jsonRows(text)} />`;
  return html`${note}<pre class="text">${text.split("\n").slice(0, 5000).map((line) => html`${pieces(line).map(([look, part]) => (look ? html`<span class=${look}>${part}</span>` : part))}${"\n"}`)}</pre>`;
}

function Picture({ bytes, kind, name }) {
  const [url, setUrl] = useState("");
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    setBroken(false);
    const made = URL.createObjectURL(new Blob([bytes], { type: kind }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [bytes]);
  if (isBroken) return html`<p class="empty">The browser cannot show this image.</p>`;
  return url && html`<img src=${url} alt=${name} onError=${() => setBroken(true)} />`;
}

function Table({ rows }) {
  if (!rows.length) return html`<p class="empty">No rows.</p>`;
  const [head, ...body] = rows;
  return html`<div class="scroll"><table><thead><tr>${head.map((cell) => html`<th>${cell}</th>`)}</tr></thead>
    <tbody>${body.slice(0, 500).map((row) => html`<tr>${row.map((cell) => html`<td class="mono">${cell}</td>`)}</tr>`)}</tbody></table></div>
    ${body.length > 500 && html`<p class="soft">The first 500 rows of those that were read.</p>`}`;
}

/** Rows of a table in text, with quoted cells. @param {string} text @param {string} comma */
export function rowsOf(text, comma) {
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  for (let i = 0; i < text.length && rows.length < 600; i += 1) {
    const char = text[i];
    if (isQuoted) {
      if (char === '"' && text[i + 1] === '"') cell += text[(i += 1)];
      else if (char === '"') isQuoted = false;
      else cell += char;
    } else if (char === '"' && !cell) isQuoted = true;
    else if (char === comma || char === "\n") {
      row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (char === "\n") {
        rows.push(row);
        row = [];
      }
    } else cell += char;
  }
  if (cell || row.length) rows.push([...row, cell]);
  return rows;
}

function jsonRows(text) {
  const found = text.split("\n").slice(0, 501).flatMap((line) => {
    try {
      const value = JSON.parse(line);
      return value && typeof value === "object" && !Array.isArray(value) ? [value] : [{ value }];
    } catch {
      return [];
    }
  });
  const names = [...new Set(found.flatMap(Object.keys))].slice(0, 40);
  return found.length ? [names, ...found.map((one) => names.map((name) => (one[name] === undefined ? "" : typeof one[name] === "string" ? one[name] : JSON.stringify(one[name]))))] : [];
}

/** The cells of a notebook, or null where the text is not one. @param {string} text @returns {any[] | null} */
export function cellsOf(text) {
  try {
    const cells = JSON.parse(text).cells;
    return Array.isArray(cells) && cells.every(isObject) ? cells : null;
  } catch {
    return null;
  }
}

const isObject = (value) => value !== null && typeof value === "object";

function Notebook({ text }) {
  const cells = cellsOf(text);
  if (!cells) return html`<p class="empty">This notebook cannot be read.</p>`;
  const list = (value) => (Array.isArray(value) ? value : []);
  const joined = (value, by = "") => (Array.isArray(value) ? value.map(String).join(by) : String(value ?? ""));
  return cells.slice(0, 300).map((cell) => html`
    <pre class="text">${joined(cell.source)}</pre>
    ${list(cell.outputs).filter(isObject).map((output) => {
      const image = joined(output.data?.["image/png"]).replace(/\s/g, "");
      if (/^[A-Za-z0-9+/]+=*$/.test(image)) return html`<img src=${`data:image/png;base64,${image}`} alt="output" />`;
      const said = joined(output.text ?? output.data?.["text/plain"] ?? joined(output.traceback, "\n"));
      return said && html`<pre class="text">${said.split("\n").map((line) => html`${pieces(line).map(([look, part]) => html`<span class=${look}>${part}</span>`)}${"\n"}`)}</pre>`;
    })}`);
}
