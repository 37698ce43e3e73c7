// Small things that several pages show.
import { html, useEffect, useRef } from "../view.js";
import { setQuery } from "../router.js";
import { duration, hasEnded, number, share, timeLeft } from "../format.js";

/** A run's state as a coloured word. */
export function Status({ status }) {
  const kind = { Completed: "good", Failed: "bad", Canceled: "gone", Running: "live", Queued: "wait" }[status] || "busy";
  return html`<span class=${`status ${kind}`}><i aria-hidden="true"></i>${status}</span>`;
}

/** The progress of a run; that of a stalled run is marked as old. */
export function ProgressBar({ run }) {
  const part = share(run.progress);
  if (part === null) return null;
  const quiet_s = run.moved_at ? Date.now() / 1000 - run.moved_at : 0;
  const isOld = run.status === "Running" && quiet_s > 120;
  const said = `${number(run.progress.done)} / ${number(run.progress.total)} ${run.progress.unit || ""}`.trim();
  const left = isOld ? `nothing new for ${duration(quiet_s)}` : timeLeft(run);
  return html`<div class=${`progress ${isOld ? "old" : ""} ${hasEnded(run.status) ? `over ${run.status}` : ""}`} title=${said}>
    <div class="bar" role="progressbar" aria-valuenow=${Math.round(part * 100)} aria-valuemin="0" aria-valuemax="100" aria-label=${said}>
      <div style=${{ width: `${part * 100}%` }}></div>
    </div>
    <span>${Math.round(part * 100)} %${left ? ` · ${left}` : ""}</span>
  </div>`;
}

/** The parts of a page, the chosen one in the address. */
export function Tabs({ tabs, chosen }) {
  const strip = useRef(null);
  // On a phone not all tabs fit.
  useEffect(() => strip.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [chosen]);
  return html`<div class="tabs" role="tablist" ref=${strip}>
    ${tabs.map(([key, name]) => html`<button role="tab" key=${key} aria-selected=${key === chosen ? "true" : "false"}
      onClick=${() => setQuery({ tab: key === tabs[0][0] ? null : key })}>${name}</button>`)}
  </div>`;
}

/** A sentence with code in backticks. @param {{text: string}} _ */
export function Sentence({ text }) {
  return text.split(/`([^`\n]+)`/).map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** Names and values. @param {{rows: [any, any][]}} _ */
export function Facts({ rows }) {
  const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${kept.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A text that can be copied. */
export function Copy({ text }) {
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard?.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  return html`<div class="copy"><code>${text}</code><button class="quiet" onClick=${copy}>Copy</button></div>`;
}
