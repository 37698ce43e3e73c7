// Routing: the address holds the state of a page, so that it can be shared and restored.
import { useEffect, useState, html } from "./view.js";

const ROOT = "/portal";
/** @type {Set<() => void>} */
const watchers = new Set();

export function here() {
  const path = location.pathname.replace(/^\/portal/, "") || "/";
  return { path, query: new URLSearchParams(location.search) };
}

export function useHere() {
  const [, set] = useState(0);
  useEffect(() => {
    const watcher = () => set((number) => number + 1);
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  }, []);
  return here();
}

function tell() {
  for (const watcher of watchers) watcher();
}

/** @param {string} to below /portal */
export function go(to, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", ROOT + to);
  if (!replace) scrollTo(0, 0);
  tell();
}

/** Change parameters of the query; null removes one. @param {Record<string, any>} changes */
export function setQuery(changes, replace = false) {
  const { path, query } = here();
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, String(one));
    }
  }
  const text = query.toString();
  history[replace ? "replaceState" : "pushState"](null, "", ROOT + path + (text ? `?${text}` : ""));
  tell();
}

addEventListener("popstate", tell);

/** A link inside the portal. */
export function Link({ to, children, ...more }) {
  const follow = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${ROOT + to} onClick=${follow} ...${more}>${children}</a>`;
}
