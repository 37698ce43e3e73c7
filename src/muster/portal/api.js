// Calls of the REST API. The portal is a client of it like any other.
import { useEffect, useRef, useState } from "./view.js";

const ROOT = "/api/v1";

/** @typedef {import("./types").components["schemas"]} Schemas */

/** An error response of the server. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {string} hint */
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

/** Who is signed in; null: nobody. @type {Schemas["Session"] | null} */
export let session = null;

/** Whether this role may change anything at all. */
export const mayChange = () => session !== null && session.role !== "reader";
export const isAdmin = () => session !== null && session.role === "admin";

/** @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") words.append(name, String(one));
    }
  }
  const text = words.toString();
  return ROOT + path + (text ? `?${text}` : "");
}

/**
 * @param {string} method @param {string} path
 * @param {{query?: Record<string, any>, body?: any, headers?: Record<string, string>, signal?: AbortSignal}} [more]
 */
export async function request(method, path, { query, body, headers = {}, signal } = {}) {
  const asked = { ...headers };
  if (session && method !== "GET") asked["Muster-Csrf"] = session.csrf;
  if (body !== undefined && !(body instanceof Blob)) asked["Content-Type"] = "application/json";
  const sent = body === undefined || body instanceof Blob ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(address(path, query), { method, body: sent, headers: asked, signal, cache: "no-store" });
  } catch (error) {
    if (signal && signal.aborted) throw error;
    connection.set(false);
    throw new ApiError(0, "The server does not answer.", "It may have ended; `muster portal` starts it again.");
  }
  connection.set(true);
  if (!answer.ok && answer.status !== 304) throw await explained(answer);
  return answer;
}

/** @param {Response} answer */
async function explained(answer) {
  let found = {};
  try {
    found = (await answer.json()).error || {};
  } catch {
    // A proxy's own page.
  }
  if (answer.status === 403 && session && !(await stillSignedIn())) location.reload();
  return new ApiError(answer.status, found.message || `${answer.status} ${answer.statusText}`, found.hint || "");
}

async function stillSignedIn() {
  return (await fetch(`${ROOT}/session`)).status !== 403;
}

/** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, query, signal) {
  return (await request("GET", path, { query, signal })).json();
}

/** @param {string} method @param {string} path @param {any} [body] @returns {Promise<any>} */
export async function send(method, path, body) {
  const answer = await request(method, path, { body });
  return answer.status === 204 ? null : answer.json();
}

/**
 * One page of a list: its items, the cursor of the next page, and the total where the server gives it.
 * @param {string} path @param {Record<string, any>} query
 */
export async function getPage(path, query, tag = "", signal = undefined) {
  const answer = await request("GET", path, { query, headers: tag ? { "If-None-Match": tag } : {}, signal });
  if (answer.status === 304) return null;
  const link = /[?&]cursor=([^&>]+)/.exec(answer.headers.get("Link") || "");
  const total = answer.headers.get("Muster-Total");
  const items = await answer.json();
  return {
    items,
    next: link ? decodeURIComponent(link[1]) : null,
    total: total === null ? null : Number(total),
    tag: answer.headers.get("ETag") || "",
  };
}

/** All items of a list that is not long. @param {string} path @param {Record<string, any>} [query] */
export async function getAll(path, query = {}) {
  const found = [];
  let cursor = null;
  do {
    const page = await getPage(path, { ...query, cursor });
    found.push(...page.items);
    cursor = page.next;
  } while (cursor && found.length < 20000);
  return found;
}

/** The text of a part of a file. @param {string} path @param {number} first @param {number} last */
export async function getBytes(path, first, last) {
  const answer = await request("GET", path, { headers: { Range: `bytes=${first}-${last}` } });
  return new Uint8Array(await answer.arrayBuffer());
}

export async function openSession() {
  const answer = await fetch(`${ROOT}/session`);
  session = answer.ok ? await answer.json() : null;
  return session;
}

/** @param {{link?: string, token?: string}} shown */
export async function signIn(shown) {
  const answer = await fetch(`${ROOT}/sign-in`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(shown),
  });
  if (!answer.ok) {
    const found = (await answer.json()).error || {};
    throw new ApiError(answer.status, found.message || "It did not work.", found.hint || "");
  }
  session = await answer.json();
}

export async function signOut() {
  await send("DELETE", "/session");
  location.assign("/portal/");
}

/** Whether the server answers, with listeners. */
export const connection = {
  up: true,
  /** @type {Set<() => void>} */
  watchers: new Set(),
  /** @param {boolean} up */
  set(up) {
    if (up === this.up) return;
    this.up = up;
    for (const watcher of this.watchers) watcher();
  },
};

/**
 * The result of a call, polled while the page is visible; the last result stays while it fails.
 * @template T
 * @param {() => Promise<T | null>} load null: as before @param {any[]} needs @param {number} pause_ms 0: once
 * @returns {{data: T | null, error: ApiError | null, again: () => void}}
 */
export function useCall(load, needs, pause_ms = 0) {
  const [state, setState] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  const work = useRef(load);
  work.current = load;
  useEffect(() => {
    let ended = false;
    let timer = 0;
    const ask = async () => {
      try {
        const data = document.hidden && turn > 0 ? null : await work.current();
        if (!ended) setState((old) => (data === null && old.error === null ? old : { data: data ?? old.data, error: null }));
      } catch (error) {
        if (!ended) setState((old) => ({ data: old.data, error }));
      }
      if (!ended && pause_ms) timer = setTimeout(ask, pause_ms);
    };
    const seen = () => {
      if (!document.hidden) {
        clearTimeout(timer);
        ask();
      }
    };
    ask();
    if (pause_ms) document.addEventListener("visibilitychange", seen);
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...needs, turn]);
  return { ...state, again: () => setTurn((number) => number + 1) };
}
