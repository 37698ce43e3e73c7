// Submitting a job: its file pasted or dropped, the plan of every rank, then the run.
import { html, useEffect, useState } from "../view.js";
import { get, mayChange, send, useCall } from "../api.js";
import { go, useHere } from "../router.js";
import { Problem } from "../parts/notices.js";
import { Empty } from "../parts/common.js";
import { asYaml } from "../parts/yaml.js";
import { moment, title } from "../format.js";
import { sendCode } from "../parts/code_upload.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

const EXAMPLE = `# A job file: docs/job-file.md has every key.
command: python -c "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
experiment_name: first
distribution:
  type: pytorch
  process_count_per_instance: 2
`;

export function SubmitPage() {
  const { query } = useHere();
  const again = query.get("run");
  const [text, setText] = useState(again ? "" : EXAMPLE);
  const [code, setCode] = useState("");
  const [files, setFiles] = useState(/** @type {File[]} */ ([]));
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [isOver, setOver] = useState(false);
  const [key, setKey] = useState(() => newKey());
  const recent = useCall(() => get("/summaries", { limit: 50 }), []);
  useEffect(() => {
    if (!again) return;
    get(`/runs/${encodeURIComponent(again)}`).then((run) => {
      const { name, ...spec } = run.spec;
      setText(asYaml({ ...spec, tags: { ...spec.tags, rerun_of: run.id } }));
      setCode(run.snapshot ? `snapshot:${run.snapshot}` : "");
    }, setError);
  }, [again]);
  if (!mayChange()) return html`<h1>Submit</h1><${Empty}>Readers cannot submit jobs. An administrator can change your role.<//>`;

  const read = () => send("POST", "/jobs/read", { text });
  const attempt = async (work) => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  const look = () => attempt(async () => {
    setPlan(null);
    const job = await read();
    setPlan({ job, ...(await send("POST", "/plan", { spec: job.spec })) });
  });
  const run = () => attempt(async () => {
    const job = await read();
    const snapshot = code.startsWith("snapshot:") ? code.slice(9) : code === "files" && files.length ? await sendCode(files) : null;
    const spec = snapshot === null ? { ...job.spec, code: null } : { ...job.spec, code: job.spec.code || "." };
    const made = await send("POST", "/runs", { key, spec, snapshot, notices: job.notices });
    setKey(newKey());
    go(`/runs/${encodeURIComponent(made.id)}`);
  });
  const dropped = async (event) => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer.files[0];
    if (file) setText(await file.text());
  };
  const snapshots = (recent.data || []).filter((one, index, all) => one.snapshot && all.findIndex((other) => other.snapshot === one.snapshot) === index);
  return html`<div class="head"><h1 class="grow">Submit a job</h1></div>
    <div class="two"><div>
      <textarea class=${`job ${isOver ? "over" : ""}`} aria-label="Job file" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}
        onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}></textarea>
      <div class="bar-row" style=${{ marginTop: ".7rem" }}>
        <label>Code <select value=${code} onChange=${(event) => setCode(event.target.value)}>
          <option value="">none</option><option value="files">files of this machine</option>
          ${code.startsWith("snapshot:") && !snapshots.some((one) => `snapshot:${one.snapshot}` === code) && html`<option value=${code}>of the earlier run</option>`}
          ${snapshots.map((one) => html`<option value=${`snapshot:${one.snapshot}`}>of ${title(one)}, ${moment(one.created_at)}</option>`)}
        </select></label>
        ${code === "files" && html`<input type="file" aria-label="Code files" multiple onChange=${(event) => setFiles([...event.target.files])} />`}
        <span class="grow"></span>
        <button disabled=${busy || !text.trim()} onClick=${look}>See the plan</button>
        <button class="primary" disabled=${busy || !text.trim() || (code === "files" && !files.length)} onClick=${run}>Run it</button>
      </div>
      <${Problem} error=${error} />
    </div><div>${plan ? html`<${Plan} plan=${plan} />` : html`<section class="card"><${Empty}>Paste a job file or drop it on the text. The plan shows what every rank will run.<//></section>`}</div></div>`;
}

const newKey = () => `portal-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;

/** @param {{plan: Schemas["PlanView"] & {job: Schemas["JobRead"]}}} _ */
function Plan({ plan }) {
  const notices = [...plan.job.notices, ...plan.notices];
  return html`<section class="card" aria-label="Plan"><h2>Plan</h2>
    ${notices.map((text) => html`<p class="soft">${text}</p>`)}
    ${plan.script && html`<pre class="text">${plan.script}</pre>`}
    ${plan.nodes.map((node) => html`<h3>${node.name} <span class="soft">${node.address}${node.gpus.length ? `, GPUs ${node.gpus.join(" ")}` : ""}</span></h3>
      ${node.ranks.slice(0, 64).map((rank) => html`<details><summary>rank ${rank.rank} <span class="mono">${rank.argv.join(" ").slice(0, 200)}</span></summary><pre class="text">${Object.entries(rank.env).map(([name, value]) => `${name}=${value}`).join("\n")}</pre></details>`)}`)}
  </section>`;
}
