// The overview of a run: what happened, and what to do.
import { Fragment, html, useState } from "../view.js";
import { mayChange, send } from "../api.js";
import { Link } from "../router.js";
import { sayError } from "../parts/notices.js";
import { Copy, Facts, Sentence, Status } from "../parts/common.js";
import { plain } from "../parts/ansi.js";
import { ago, duration, moment, number, runTime, size, startsIn, timeLeft } from "../format.js";
import { Metrics } from "./metrics.js";

/** @typedef {import("../types").components["schemas"]} Schemas */

const MOST_RANKS = 256;

/** @param {{run: Schemas["RunView"], events: any[], points: any}} _ */
export function Overview({ run, events, points }) {
  return html`<div class="two">
    <div>
      ${run.verdict && html`<${Verdict} verdict=${run.verdict} run=${run} />`}
      ${run.notices.map((text) => html`<p class="soft">${text}</p>`)}
      <${Story} run=${run} events=${events} />
      <${Metrics} run=${run} points=${points} most=${4} />
    </div>
    <div>
      <${About} run=${run} />
      ${Object.keys(run.metrics).length > 0 && html`<${LastValues} run=${run} />`}
      ${[...run.attempts].reverse().map((attempt) => html`<${Attempt} key=${attempt.number} attempt=${attempt} of=${run.attempts.length} />`)}
      ${run.checkpoints.length > 0 && html`<section class="card"><h2>Checkpoints</h2><table><tbody>${run.checkpoints.slice(0, 10).map((one) => html`<tr><td>${one.name}</td><td class="right">${size(one.size)}</td><td class="right soft">${ago(one.at)}</td></tr>`)}</tbody></table></section>`}
    </div>
  </div>`;
}

/** @param {{verdict: Schemas["Verdict"], run: Schemas["RunView"]}} _ */
function Verdict({ verdict, run }) {
  if (run.status === "Completed" && verdict.code === "completed") return null;
  const where = [verdict.rank !== null && verdict.rank !== undefined && `rank ${verdict.rank}`, verdict.node && `on ${verdict.node}`].filter(Boolean).join(" ");
  return html`<section class="card verdict" aria-label="Verdict">
    <h2>${verdict.message}</h2>
    <span class="soft">${[verdict.code, where, verdict.confidence && verdict.confidence !== "certain" && verdict.confidence].filter(Boolean).join(" · ")}</span>
    ${verdict.next && html`<div class="next"><${Sentence} text=${verdict.next} /></div>`}
    ${verdict.action && html`<div class="soft">${verdict.action}</div>`}
    ${verdict.second && html`<div class="soft">Or: ${verdict.second.message || verdict.second.code}</div>`}
    ${verdict.lines?.length > 0 && html`<pre>${verdict.lines.map(plain).join("\n")}</pre>`}
  </section>`;
}

function Story({ run, events }) {
  const lines = events.map(storyLine).filter(Boolean).slice(-200);
  return html`<section class="card"><h2>What happened</h2>
    ${run.description && html`<p>${run.description}</p>`}
    <ol class="story">${lines.map(([at, what], index) => html`<li key=${index}><time title=${moment(at)}>${moment(at).slice(5)}</time><span>${what}</span></li>`)}</ol>
    ${!lines.length && html`<p class="soft">…</p>`}
  </section>`;
}

function storyLine(event) {
  if (event.kind === "state") return [event.at, html`<${Status} status=${event.status} />${event.reason && html` <span class="soft">${event.reason}</span>`}`];
  if (event.kind === "note") return [event.at, html`<span class=${event.level === "error" ? "bad" : ""}>${event.text}</span>`];
  if (event.kind === "checkpoint") return [event.at, `checkpoint ${event.name}, ${size(event.size)}`];
  if (event.kind === "rank" && event.state === "ended" && (event.exit_code || event.signal)) return [event.at, html`<span class=${event.signal ? "soft" : "bad"}>rank ${event.rank} ended with ${event.signal ? `signal ${event.signal}` : `exit code ${event.exit_code}`}${event.node && ` on ${event.node}`}</span>`];
  return null;
}

/** @param {{run: Schemas["RunView"]}} _ */
function About({ run }) {
  const waited = run.started_at && run.queued_at ? run.started_at - run.queued_at : null;
  const starts = run.starts_between ? startsIn(run.starts_between) : run.starts_at ? ago(run.starts_at) : "";
  return html`<section class="card">
    <${Facts} rows=${[
      ["Submitted", html`<time title=${ago(run.created_at)}>${moment(run.created_at)}</time>`],
      ["Expected to start", run.status === "Queued" ? starts : ""],
      ["Waited", waited === null ? "" : duration(waited)],
      ["Ran", duration(runTime(run))],
      ["Left", timeLeft(run)],
      ["On", html`<${Link} to="/clusters">${run.compute}<//>, ${run.num_nodes} ${run.num_nodes === 1 ? "node" : "nodes"}, ${run.num_ranks} ${run.num_ranks === 1 ? "rank" : "ranks"}`],
      ["Environment", run.environment ? run.environment.name || run.environment.image || run.environment.python : ""],
      ["Keeps off", run.excluded_nodes.join(", ")],
    ]} />
    <${Tags} run=${run} />
    <${Copy} text=${`muster rerun ${run.id}`} />
  </section>`;
}

/** @param {{run: Schemas["RunView"]}} _ */
function Tags({ run }) {
  const [text, setText] = useState("");
  const change = async (tags) => {
    try {
      await send("PATCH", `/runs/${encodeURIComponent(run.id)}`, { tags });
      setText("");
    } catch (error) {
      sayError(error);
    }
  };
  const add = (event) => {
    event.preventDefault();
    const [name, ...value] = text.split("=");
    change({ [name.trim()]: value.join("=").trim() });
  };
  const tags = Object.entries(run.tags);
  return html`<div class="tags" style=${{ margin: ".7rem 0" }}>
    ${tags.map(([name, value]) => html`<${Link} key=${name} class="tag" to=${`/?tag=${encodeURIComponent(`${name}=${value}`)}`} title=${`${name}=${value}`}>${name}=${value}<//>`)}
    ${mayChange() && html`<form onSubmit=${add}><input size="14" placeholder="tag=value" aria-label="New tag" pattern="[^=]+=.*" value=${text} onInput=${(event) => setText(event.target.value)} /></form>`}
  </div>`;
}

/** @param {{run: Schemas["RunView"]}} _ */
function LastValues({ run }) {
  const names = Object.keys(run.metrics).filter((name) => !name.startsWith("node/")).sort();
  if (!names.length && !Object.keys(run.params || {}).length) return null;
  return html`<section class="card">
    <${Fragment}>${names.length > 0 && html`<h2>Last values</h2><table><tbody>${names.slice(0, 30).map((name) => html`<tr key=${name}><td>${name}</td><td class="right mono">${number(run.metrics[name])}</td></tr>`)}</tbody></table>`}<//>
    ${Object.keys(run.params || {}).length > 0 && html`<h2>Parameters</h2><table><tbody>${Object.entries(run.params).map(([name, value]) => html`<tr key=${name}><td>${name}</td><td class="right mono">${value}</td></tr>`)}</tbody></table>`}
  </section>`;
}

/** The attempt's job in Slurm or Ray. @param {{job: Schemas["QueueJob"]}} _ */
function QueueJob({ job }) {
  const used = job.usage;
  const link = /^https?:/.test(job.link || "") ? job.link : "";
  return html`<${Facts} rows=${[
    ["Job", html`<span class="mono">${job.id}</span>`],
    ["Queue", [job.state && job.reason ? `${job.state} (${job.reason})` : job.state, job.partition && `partition ${job.partition}`, job.account && `account ${job.account}`, job.qos && `QOS ${job.qos}`].filter(Boolean).join(", ")],
    ["Expected to start", job.starts_at ? ago(job.starts_at) : ""],
    ["Nodes", job.nodes],
    ["Used", used ? [duration(used.elapsed_s), used.cpu_s != null && `${duration(used.cpu_s)} of CPU`, used.memory_peak_bytes && `${size(used.memory_peak_bytes)} of memory at most`, used.energy_j && `${number(used.energy_j / 1000)} kJ`, `${used.state} with exit code ${used.exit_code}`].filter(Boolean).join(", ") : job.usage_note ? `not known: ${job.usage_note}` : ""],
    ["Dashboard", link && html`<a href=${link} target="_blank" rel="noreferrer">${link}</a>`],
  ]} />`;
}

/** @param {{attempt: Schemas["AttemptView"], of: number}} _ */
function Attempt({ attempt, of }) {
  const byNode = new Map();
  for (const rank of attempt.ranks) {
    const name = rank.node || "";
    if (!byNode.has(name)) byNode.set(name, []);
    byNode.get(name).push(rank);
  }
  const info = new Map(attempt.nodes.map((node) => [node.name, node]));
  let shown = 0;
  return html`<section class="card"><h2>${of > 1 ? `Attempt ${attempt.number}` : "Ranks"} <${Status} status=${attempt.status} /></h2>
    ${of > 1 && attempt.verdict && attempt.verdict.code !== "completed" && html`<p>${attempt.verdict.message}</p>`}
    <p class="soft">${[attempt.resumed_from !== null && attempt.resumed_from !== undefined && `resumed from checkpoint ${attempt.resumed_from}`, attempt.job_id && !attempt.queue_job && `job ${attempt.job_id}`, attempt.started_at && `ran ${duration((attempt.ended_at || Date.now() / 1000) - attempt.started_at)}`].filter(Boolean).join(" · ")}</p>
    ${attempt.queue_job && html`<${QueueJob} job=${attempt.queue_job} />`}
    ${[...byNode].map(([name, ranks]) => {
      const node = info.get(name);
      const some = ranks.slice(0, Math.max(0, MOST_RANKS - shown));
      shown += some.length;
      return html`<div key=${name} style=${{ marginBottom: ".6rem" }}><b>${name || "no node yet"}</b>
        <span class="soft"> ${[node?.phase, node?.cpus && `${node.cpus} CPUs`, node?.gpus?.length > 0 && `${node.gpus.length} GPUs`, node?.address].filter(Boolean).join(" · ")}</span>
        <div class="ranks">${some.map((rank) => html`<span key=${rank.rank} class=${`rank ${lookOf(rank)}`} title=${rankTitle(rank)}>${rank.rank}${rank.exit_code ? ` exit ${rank.exit_code}` : rank.signal && !rank.expected ? ` signal ${rank.signal}` : ""}</span>`)}${some.length < ranks.length && html`<span class="soft">and ${ranks.length - some.length} more</span>`}</div>
      </div>`;
    })}
  </section>`;
}

const lookOf = (rank) => (rank.state === "running" ? "running" : rank.state !== "ended" ? "" : rank.exit_code || (rank.signal && !rank.expected) ? "failed" : "ok");
const rankTitle = (rank) => [`${rank.role} ${rank.state}`, rank.pid && `process ${rank.pid}`, rank.log].filter(Boolean).join(", ");
