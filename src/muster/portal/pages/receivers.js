// Receivers of notifications: the outcome of the last message, and a test.
import { html, useState } from "../view.js";
import { getAll, mayChange, send, useCall } from "../api.js";
import { Copy, Empty } from "../parts/common.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { ago, duration } from "../format.js";

const RUNS = [["mine", "my runs"], ["all", "all runs"], ["named", "runs that name it"]];

export function Receivers() {
  const { data, error, again } = useCall(() => getAll("/notifications"), [], 5000);
  const [adding, setAdding] = useState(false);
  const [name, setName] = useState("");
  const [address, setAddress] = useState("");
  const [runs, setRuns] = useState("mine");
  const [made, setMade] = useState(/** @type {any} */ (null));
  const act = async (work) => {
    try {
      await work();
    } catch (failed) {
      sayError(failed);
    }
    again();
  };
  const path = (one) => `/notifications/${encodeURIComponent(one.name)}`;
  const test = async (one) => {
    const told = await send("POST", `${path(one)}/test`);
    if (told.taken) say(`${one.name} took it: ${told.answer}`);
    else throw new Error(`${one.name} did not take it: ${told.answer}`);
  };
  const add = async () => setMade(await send("POST", "/notifications", { name, address, runs }));
  return html`<${Problem} error=${error} /><section class="card"><div class="head"><span class="grow"></span>${mayChange() && html`<button class="primary" onClick=${() => setAdding(true)}>Add a receiver</button>`}</div>
    ${data && !data.length && html`<${Empty}>No receivers yet. A receiver is a webhook, a channel of Slack or Teams, a topic of ntfy, or a mailbox.<//>`}
    ${data?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>Kind</th><th>Address</th><th>Of</th><th>When</th><th>By</th><th>Last message</th><th>Waiting</th><th></th></tr></thead><tbody>
      ${data.map((one) => html`<tr key=${one.name || one.address}><td>${one.name}</td><td>${one.kind}</td><td class="mono">${one.address}</td><td class="nowrap">${Object.fromEntries(RUNS)[one.runs] || one.runs}</td><td>${one.when.join(", ")}${one.when.includes("hangs") ? html` <span class="soft">(after ${duration(one.quiet_s)})</span>` : ""}</td><td class="nowrap">${one.owner}</td>
        <td>${one.last ? html`<span class=${one.last.taken_at ? "" : "bad"} title=${one.last.answer}>${one.last.event}${one.last.run ? ` of ${one.last.run}` : ""}, ${one.last.taken_at ? `taken ${ago(one.last.taken_at)}` : one.last.given_up ? "given up" : one.last.answer || "on its way"}</span>` : ""}</td><td>${one.waiting || ""}</td>
        <td class="right nowrap">${mayChange() && one.name && html`<button onClick=${() => act(() => test(one))}>Test</button>${" "}<button onClick=${() => act(() => send("DELETE", path(one)))}>Remove</button>`}</td></tr>`)}
    </tbody></table></div>`}</section>
    ${adding && html`<${Ask} title="Add a receiver" confirm="Add" onDone=${async (isYes) => {
      setAdding(false);
      if (isYes) await act(add);
    }}><label>Name<input required value=${name} onInput=${(event) => setName(event.target.value)} /></label>
      <label>Address<input required placeholder="https://…, slack+https://…, mailto:…" value=${address} onInput=${(event) => setAddress(event.target.value)} /></label>
      <label>Is told of<select value=${runs} onChange=${(event) => setRuns(event.target.value)}>${RUNS.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label><//>`}
    ${made?.secret && html`<${Ask} title=${`The secret of ${made.name}`} confirm="Done" onDone=${() => setMade(null)}><p>Its messages are signed with this secret. It is shown only once.</p><${Copy} text=${made.secret} /><//>`}`;
}
