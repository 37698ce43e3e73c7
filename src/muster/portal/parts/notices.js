// Notices: errors, and confirmations of actions.
import { html, useEffect, useState } from "../view.js";

/** @type {{id: number, text: string, kind: string}[]} */
let shown = [];
let last = 0;
let redraw = () => {};

/** Show a notice for some seconds. @param {string} text */
export function say(text, kind = "info") {
  last += 1;
  const id = last;
  shown = [...shown.slice(-3), { id, text, kind }];
  redraw();
  setTimeout(() => {
    shown = shown.filter((one) => one.id !== id);
    redraw();
  }, kind === "error" ? 12000 : 5000);
}

/** @param {any} error */
export function sayError(error) {
  say([error.message, error.hint].filter(Boolean).join(" "), "error");
}

export function Notices() {
  const [, set] = useState(0);
  useEffect(() => {
    redraw = () => set((number) => number + 1);
    return () => (redraw = () => {});
  }, []);
  return html`<div class="notices" role="status" aria-live="polite">
    ${shown.map((one) => html`<div class=${`toast ${one.kind}`} key=${one.id}>${one.text}</div>`)}
  </div>`;
}

/** An error in place of the content that failed to load. */
export function Problem({ error }) {
  // A server that does not answer is reported at the top of every page.
  if (!error || error.status === 0) return null;
  return html`<div class="problem" role="alert"><b>${error.message}</b>${error.hint && html`<div>${error.hint}</div>`}</div>`;
}

/** A confirmation dialog. */
export function Ask({ title, children, confirm, danger = false, onDone }) {
  useEffect(() => {
    const before = document.activeElement;
    const pressed = (event) => event.key === "Escape" && onDone(false);
    addEventListener("keydown", pressed);
    return () => {
      removeEventListener("keydown", pressed);
      /** @type {HTMLElement | null} */ (before)?.focus?.();
    };
  }, []);
  const enter = (event) => {
    event.preventDefault();
    onDone(true);
  };
  return html`<div class="veil" onClick=${(event) => event.target === event.currentTarget && onDone(false)}>
    <form class="dialog" role="dialog" aria-modal="true" aria-label=${title} onSubmit=${enter}>
      <h2>${title}</h2>
      ${children}
      <div class="buttons">
        <button type="button" onClick=${() => onDone(false)}>Back</button>
        <button class=${danger ? "danger" : "primary"} autofocus>${confirm}</button>
      </div>
    </form>
  </div>`;
}
