// The code that a run was submitted with, and how it differs from another run's.
import { html, useState } from "../view.js";
import { get, getAll, request, useCall } from "../api.js";
import { Empty } from "../parts/common.js";
import { Preview } from "../parts/preview.js";
import { Problem } from "../parts/notices.js";
import { difference, folded } from "../parts/diff.js";
import { moment, size, title } from "../format.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

const MOST_DIFF = 1024 * 1024;

/** @param {{run: Schemas["RunView"]}} _ */
export function Code({ run }) {
  const [other, setOther] = useState("");
  const [chosen, setChosen] = useState("");
  const own = useCall(() => (run.snapshot ? getAll(`/snapshots/${run.snapshot}/files`) : Promise.resolve([])), [run.snapshot]);
  const recent = useCall(() => get("/summaries", { experiment: run.experiment, limit: 50 }), [run.experiment]);
  const against = recent.data?.find((one) => one.id === other);
  const theirs = useCall(() => (against?.snapshot ? getAll(`/snapshots/${against.snapshot}/files`) : Promise.resolve(null)), [against?.snapshot]);
  if (!run.snapshot) return html`<${Empty}>The run was submitted without code.<//>`;
  if (own.error) return html`<${Problem} error=${own.error} />`;
  const command = [].concat(run.spec.command || []).join(" ");
  const files = listed(own.data || [], against ? theirs.data || [] : null);
  const file = files.find((one) => one.path === chosen) || files.find((one) => command.includes(one.path)) || files[0];
  return html`<div class="bar-row">
      <label class="nowrap">Compare with <select value=${other} onChange=${(event) => setOther(event.target.value)}>
        <option value="">no other run</option>
        ${(recent.data || []).filter((one) => one.id !== run.id && one.snapshot).map((one) => html`<option value=${one.id}>${title(one)} · ${moment(one.created_at)}${one.snapshot === run.snapshot ? " · same code" : ""}</option>`)}
      </select></label>
      <span class="soft mono">${run.snapshot.slice(0, 12)}</span>
      ${against && against.snapshot === run.snapshot && html`<span class="good">Both runs have the same code.</span>`}
    </div>
    <div class="files">
      <section class="card"><ul class="list">${files.map((one) => html`<li key=${one.path}><button aria-current=${one.path === file.path ? "true" : "false"} onClick=${() => setChosen(one.path)}><span class=${{ added: "good", removed: "bad" }[one.change] || ""}>${one.path}</span><small>${one.change || size(one.size)}</small></button></li>`)}</ul></section>
      <section class="card preview">${!file ? html`<${Empty}>Choose a file.<//>`
        : file.change && Math.max(file.size, file.otherSize || 0) <= MOST_DIFF
          ? html`<h2>${file.path}</h2><${Difference} key=${file.path + other} before=${file.change !== "added" && path(against.snapshot, file.path)} after=${file.change !== "removed" && path(run.snapshot, file.path)} />`
          : html`<h2>${file.path}</h2><${Preview} key=${file.path} path=${path(run.snapshot, file.path)} name=${file.path} size=${file.size} />`}</section>
    </div>`;
}

const path = (snapshot, name) => `/snapshots/${snapshot}/files/${name.split("/").map(encodeURIComponent).join("/")}`;

/** Files of both runs, different ones first. */
function listed(own, theirs) {
  if (!theirs) return own.map((one) => ({ ...one, change: "" }));
  const before = new Map(theirs.map((one) => [one.path, one]));
  const mine = own.map((one) => {
    const other = before.get(one.path);
    before.delete(one.path);
    return { ...one, otherSize: other?.size, change: !other ? "added" : other.sha256 === one.sha256 ? "" : "changed" };
  });
  const gone = [...before.values()].map((one) => ({ ...one, change: "removed" }));
  return [...mine, ...gone].sort((a, b) => Number(!a.change) - Number(!b.change) || (a.path < b.path ? -1 : 1));
}

function Difference({ before, after }) {
  const { data, error } = useCall(async () => {
    const texts = await Promise.all([before, after].map(async (one) => (one ? (await request("GET", one)).text() : "")));
    return folded(difference(texts[0], texts[1]));
  }, [before, after]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!data) return null;
  const sign = { add: "+ ", del: "− ", same: "  ", gap: "" };
  return html`<div class="diff">${data.map((line) => html`<div class=${line.kind}>${sign[line.kind]}${line.text || " "}</div>`)}</div>`;
}
