// The live events of a run. A hidden page closes its connection, and resumes later.
import { address } from "../api.js";

const KINDS = ["state", "note", "rank", "checkpoint", "log", "metric", "progress", "end", "refused"];

/**
 * @param {string} run @param {Record<string, any>} query @param {(kind: string, data: any) => void} take
 * @param {(isOpen: boolean) => void} [tell] @returns {() => void} ends it
 */
export function follow(run, query, take, tell = () => {}) {
  let cursor = "";
  let source = /** @type {EventSource | null} */ (null);
  let isOver = false;
  let timer = 0;

  const open = () => {
    if (isOver || source || document.hidden) return;
    const asked = cursor ? { ...query, tail: null, cursor } : query;
    source = new EventSource(address(`/runs/${encodeURIComponent(run)}/stream`, asked));
    source.onopen = () => tell(true);
    source.onerror = () => {
      tell(false);
      // A browser gives up after a response that is not a stream; we retry.
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        timer = setTimeout(open, 2000);
      }
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (event.lastEventId) cursor = event.lastEventId;
        take(kind, JSON.parse(event.data));
        if (kind === "end" || kind === "refused") {
          isOver = true;
          close();
        }
      });
    }
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const seen = () => (document.hidden ? close() : open());

  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}
