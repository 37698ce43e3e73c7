// One run: overview, logs, metrics, files, code and job.
import { html, useEffect, useRef, useState } from "../view.js";
import { get, mayChange, send, useCall } from "../api.js";
import { Link, go, useHere } from "../router.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { ProgressBar, Status, Tabs } from "../parts/common.js";
import { Log } from "../parts/log.js";
import { follow } from "../parts/stream.js";
import { Overview } from "../run/overview.js";
import { Metrics } from "../run/metrics.js";
import { Files } from "../run/files.js";
import { Code } from "../run/code.js";
import { Job } from "../run/job.js";
import { duration, hasEnded, runTime, title } from "../format.js";

const TABS = [["overview", "Overview"], ["logs", "Logs"], ["metrics", "Metrics"], ["system", "System"], ["files", "Files"], ["code", "Code"], ["job", "Job"]];

export function RunPage({ parts: [id] }) {
  const { query } = useHere();
  const tab = query.get("tab") || "overview";
  const { run, error, events, points, again } = useRun(id);
  useEffect(() => {
    document.title = run ? `${title(run)} · ${run.status}` : "Muster";
    return () => (document.title = "Muster");
  }, [run?.status, run?.display_name]);
  if (!run) return error ? html`<${Problem} error=${error} />` : html`<p class="empty">…</p>`;
  return html`
    <div class="head">
      <div class="grow"><h1>${title(run)}</h1><span class="soft">${run.id} · <${Link} to=${`/?experiment=${encodeURIComponent(run.experiment)}`}>${run.experiment}<//>${run.submitted_by && ` · ${run.submitted_by}`}</span></div>
      <${Status} status=${run.status} />
      <span class="soft nowrap">${duration(runTime(run))}</span>
      <${Actions} run=${run} again=${again} />
    </div>
    ${run.reason && html`<p class="soft">${run.reason}</p>`}
    <div class="card" hidden=${!run.progress?.total}><${ProgressBar} run=${run} /></div>
    <${Tabs} tabs=${TABS} chosen=${tab} />
    ${tab === "overview" && html`<${Overview} run=${run} events=${events} points=${points} />`}
    ${tab === "logs" && html`<${Log} run=${run} />`}
    ${tab === "metrics" && html`<${Metrics} run=${run} points=${points} />`}
    ${tab === "system" && html`<${Metrics} run=${run} points=${points} system=${true} />`}
    ${tab === "files" && html`<${Files} run=${run} />`}
    ${tab === "code" && html`<${Code} run=${run} />`}
    ${tab === "job" && html`<${Job} run=${run} />`}`;
}

/** A live run: its view is fetched again when its stream reports a change. */
function useRun(id) {
  const { data: run, error, again } = useCall(() => get(`/runs/${encodeURIComponent(id)}`), [id]);
  const [events, setEvents] = useState([]);
  const [progress, setProgress] = useState(/** @type {any} */ (null));
  const points = useRef(/** @type {{take: ((point: any) => void) | null}} */ ({ take: null }));
  const known = run?.id;
  useEffect(() => {
    if (!known) return undefined;
    let timer = 0;
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(again, 150);
    };
    const seen = [];
    const ranks = new Map();
    const end = follow(known, { logs: false }, (kind, data) => {
      if (kind === "metric") points.current.take?.(data);
      else if (kind === "progress") {
        ranks.set(data.rank ?? null, data);
        setProgress([...ranks.values()].sort((a, b) => a.done / (a.total || 1) - b.done / (b.total || 1))[0]);
        return;
      }
      if (["state", "note", "rank", "checkpoint"].includes(kind)) {
        seen.push({ kind, ...data });
        setEvents([...seen]);
      }
      if (kind === "state" || kind === "rank" || kind === "end" || kind === "checkpoint") soon();
    });
    return () => {
      clearTimeout(timer);
      end();
    };
  }, [known]);
  // The remaining time and the reason to wait change without an event.
  useEffect(() => {
    if (!run || hasEnded(run.status)) return undefined;
    const timer = setInterval(() => !document.hidden && again(), 5000);
    return () => clearInterval(timer);
  }, [run?.status]);
  return { run: run && progress && !hasEnded(run.status) ? { ...run, progress } : run, error, events, points: points.current, again };
}

function Actions({ run, again }) {
  const [asking, setAsking] = useState("");
  if (!mayChange()) return null;
  const act = async (method, path, body, text) => {
    try {
      await send(method, `/runs/${encodeURIComponent(run.id)}${path}`, body);
      say(text);
      again();
    } catch (error) {
      sayError(error);
    }
  };
  const answered = async (isYes) => {
    const what = asking;
    setAsking("");
    if (!isYes) return;
    if (what === "cancel") await act("POST", "/cancel", { force: run.status === "CancelRequested" }, "It is being cancelled");
    if (what === "remove") {
      await act("DELETE", "", undefined, "It was removed");
      go("/");
    }
  };
  const isOver = hasEnded(run.status);
  return html`<span class="nowrap">
    ${!isOver && html`<button onClick=${() => setAsking("cancel")}>${run.status === "CancelRequested" ? "Kill" : "Cancel"}</button>`}
    ${isOver && run.status !== "Completed" && html`<button onClick=${() => act("POST", "/retry", undefined, "One more attempt was queued")}>Retry</button>`}
    ${" "}<button onClick=${() => go(`/submit?run=${encodeURIComponent(run.id)}`)}>Run again</button>
    ${isOver && html`${" "}<button onClick=${() => setAsking("remove")}>Remove</button>`}
    ${asking === "cancel" && html`<${Ask} title="Cancel this run?" confirm="Cancel it" danger=${true} onDone=${answered}><p>${run.status === "CancelRequested" ? "Its ranks are killed at once." : "Its ranks get SIGTERM, and 30 seconds to end."}</p><//>`}
    ${asking === "remove" && html`<${Ask} title="Remove this run?" confirm="Remove it" danger=${true} onDone=${answered}><p>Its logs, metrics and outputs are removed too.</p><//>`}
  </span>`;
}
