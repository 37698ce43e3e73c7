// Logs of ranks: live, of all ranks or of one, searched by the server, as many lines as a page can hold.
import { html, useEffect, useMemo, useRef, useState } from "../view.js";
import { getBytes } from "../api.js";
import { follow } from "./stream.js";
import { color } from "./series.js";
import { pieces, plain } from "./ansi.js";

const LINE = 18;
const KEPT = 20000;
const TAIL = 2000;
const BY_HAND_MS = 500;
const ERRORS = "Traceback|\\b[A-Za-z.]*(Error|Exception)\\b|\\b(error|ERROR|FATAL|fatal):|Segmentation fault|out of memory";

/** Splits pieces of bytes of many streams into lines. */
class Lines {
  constructor() {
    /** @type {{stream: string, attempt: number, text: string}[]} */
    this.all = [];
    this.rest = new Map();
    this.decoders = new Map();
    this.dropped = 0;
  }

  /** @param {{attempt: number, stream: string, base64: string}} piece */
  take(piece) {
    const key = `${piece.attempt} ${piece.stream}`;
    if (!this.decoders.has(key)) this.decoders.set(key, new TextDecoder());
    const bytes = Uint8Array.from(atob(piece.base64), (char) => char.charCodeAt(0));
    const parts = ((this.rest.get(key) || "") + this.decoders.get(key).decode(bytes, { stream: true })).split("\n");
    // An endless line, such as that of a progress bar, is kept short.
    this.rest.set(key, parts.pop().slice(-20000));
    for (const text of parts) this.all.push({ stream: piece.stream, attempt: piece.attempt, text });
    if (this.all.length > KEPT) {
      this.dropped += this.all.length - KEPT;
      this.all = this.all.slice(-KEPT);
    }
  }

  /** All lines, with unfinished ones. */
  shown() {
    const open = [...this.rest].filter(([, text]) => text).map(([key, text]) => {
      const [attempt, ...stream] = key.split(" ");
      return { stream: stream.join(" "), attempt: Number(attempt), text };
    });
    return open.length ? [...this.all, ...open] : this.all;
  }
}

/** @param {{run: any}} _ */
export function Log({ run }) {
  const [rank, setRank] = useState("");
  const [attempt, setAttempt] = useState("");
  const [search, setSearch] = useState("");
  const [pattern, setPattern] = useState("");
  const [whole, setWhole] = useState(false);
  const [excerpt, setExcerpt] = useState(/** @type {any} */ (null));
  const ranks = useMemo(() => run.attempts.flatMap((one) => one.ranks.map((each) => ({ ...each, attempt: one.number }))), [run.attempts.length, run.num_ranks, run.attempts.at(-1)?.ranks.length]);
  const numbers = [...new Set(ranks.map((one) => one.rank))];
  const nameOf = useMemo(() => new Map(ranks.map((one) => [`${one.attempt} ${one.log}`, one.rank])), [ranks]);
  const query = { rank, attempt, grep: pattern, tail: whole ? null : TAIL, metrics: false };
  const searching = (event) => {
    event.preventDefault();
    setExcerpt(null);
    setPattern(search);
  };
  const firstError = async () => setExcerpt(await findError(run.id, rank, attempt));
  return html`
    <form class="bar-row" onSubmit=${searching}>
      <select aria-label="Rank" value=${rank} onChange=${(event) => setRank(event.target.value)}>
        <option value="">All ranks</option>
        ${numbers.map((one) => html`<option value=${one}>Rank ${one}</option>`)}
      </select>
      ${run.attempts.length > 1 && html`<select aria-label="Attempt" value=${attempt} onChange=${(event) => setAttempt(event.target.value)}>
        <option value="">All attempts</option>
        ${run.attempts.map((one) => html`<option value=${one.number}>Attempt ${one.number}</option>`)}
      </select>`}
      <input type="search" placeholder="Search, a regular expression" value=${search} onInput=${(event) => setSearch(event.target.value)} />
      <button>Search</button>
      ${pattern && html`<button type="button" onClick=${() => { setPattern(""); setSearch(""); }}>All lines</button>`}
      <button type="button" onClick=${firstError}>First error</button>
      ${excerpt && html`<button type="button" onClick=${() => setExcerpt(null)}>Back to the log</button>`}
      <label class="nowrap"><input type="checkbox" checked=${whole} onChange=${(event) => setWhole(event.target.checked)} /> from the beginning</label>
    </form>
    ${excerpt
      ? html`<${Window} lines=${excerpt.lines} nameOf=${nameOf} one=${true} mark=${excerpt.at} note=${excerpt.note} />`
      : html`<${Live} key=${JSON.stringify(query)} run=${run} query=${query} nameOf=${nameOf} one=${rank !== "" || numbers.length < 2} />`}`;
}

function Live({ run, query, nameOf, one }) {
  const [state, setState] = useState({ lines: [], dropped: 0, note: "" });
  useEffect(() => {
    const lines = new Lines();
    let note = "";
    let waiting = 0;
    const draw = () => {
      waiting = 0;
      setState({ lines: lines.shown(), dropped: lines.dropped, note });
    };
    const end = follow(run.id, query, (kind, data) => {
      if (kind === "log") lines.take(data);
      else if (kind === "refused") note = `${data.message} ${data.hint}`;
      else return;
      if (!waiting) waiting = setTimeout(draw, 60);
    });
    return () => {
      clearTimeout(waiting);
      end();
    };
  }, []);
  const note = state.note || (state.dropped ? `${state.dropped.toLocaleString("en")} earlier lines are not shown; Files has the whole log.` : "");
  return html`<${Window} lines=${state.lines} nameOf=${nameOf} one=${one} note=${note} empty=${run.status === "Queued" ? "Nothing is printed before the run starts." : "Nothing was printed."} />`;
}

/** Only visible lines are rendered; a view at the end stays at the end. */
function Window({ lines, nameOf, one, mark = -1, note = "", empty = "" }) {
  const box = useRef(/** @type {any} */ (null));
  const atEnd = useRef(mark < 0);
  const moved = useRef(0);
  const held = useRef(false);
  const [top, setTop] = useState(0);
  const height = box.current?.clientHeight || 600;
  const first = Math.max(0, Math.floor(top / LINE) - 20);
  const seen = lines.slice(first, first + Math.ceil(height / LINE) + 40);
  useEffect(() => {
    if (atEnd.current) box.current.scrollTop = lines.length * LINE;
  }, [lines, lines.length]);
  useEffect(() => {
    if (mark >= 0) box.current.scrollTop = Math.max(0, (mark - 8) * LINE);
  }, [mark]);
  const byHand = () => (moved.current = Date.now());
  const hold = (isHeld) => () => (held.current = isHeld);
  const scrolled = (event) => {
    const element = event.currentTarget;
    const isBelow = element.scrollTop + element.clientHeight > element.scrollHeight - 3 * LINE;
    // Only scrolling by hand leaves the end; new lines scroll as well.
    if (isBelow || held.current || Date.now() - moved.current < BY_HAND_MS) atEnd.current = isBelow;
    setTop(element.scrollTop);
  };
  return html`
    ${note && html`<p class="soft">${note}</p>`}
    <div class="log" ref=${box} onScroll=${scrolled} onWheel=${byHand} onTouchMove=${byHand} onKeyDown=${byHand} onPointerDown=${hold(true)} onPointerUp=${hold(false)} onPointerLeave=${hold(false)} tabindex="0" role="log" aria-label="Log">
      ${!lines.length && html`<p class="empty">${empty}</p>`}
      <div style=${{ height: `${lines.length * LINE}px` }}></div>
      <div class="lines" style=${{ top: `${first * LINE}px` }}>
        ${seen.map((line, index) => html`<${Line} key=${first + index} line=${line} nameOf=${nameOf} one=${one} hit=${first + index === mark} />`)}
      </div>
    </div>`;
}

function Line({ line, nameOf, one, hit }) {
  const rank = nameOf.get(`${line.attempt} ${line.stream}`);
  return html`<span class=${`line ${hit ? "hit" : ""}`}>${!one && html`<b style=${{ color: color(rank ?? 0) }}>${rank ?? line.stream}</b>`}${pieces(line.text.slice(0, 5000)).map(([look, text]) => html`<span class=${look}>${text}</span>`)}</span>`;
}

/** The first line that looks like an error, with its context. @returns {Promise<any>} */
function findError(id, rank, attempt) {
  return new Promise((resolve) => {
    let found = false;
    follow(id, { rank, attempt, grep: ERRORS, head: 1, follow: 0, metrics: false }, async (kind, data) => {
      if (kind === "log" && !found) {
        found = true;
        resolve(await around(id, data));
      }
      if (kind === "end" && !found) resolve({ lines: [], at: -1, note: "No line looks like an error." });
    });
    setTimeout(() => !found && resolve({ lines: [], at: -1, note: "No line looks like an error so far." }), 5000);
  });
}

async function around(id, piece) {
  const begin = Math.max(0, piece.offset - 8000);
  const matched = plain(new TextDecoder().decode(Uint8Array.from(atob(piece.base64), (char) => char.charCodeAt(0))).split("\n")[0]);
  let texts = [matched];
  try {
    const bytes = await getBytes(`/runs/${encodeURIComponent(id)}/files/${piece.stream}`, begin, piece.offset + 32000);
    texts = new TextDecoder().decode(bytes).split("\n").slice(begin ? 1 : 0);
  } catch {
    // The log of an earlier attempt has another path: show only the line itself.
  }
  const at = Math.max(0, texts.findIndex((text) => plain(text) === matched));
  return { lines: texts.map((text) => ({ stream: piece.stream, attempt: piece.attempt, text })), at, note: `The first line that looks like an error, in ${piece.stream} of attempt ${piece.attempt}.` };
}
