// People, their tokens, and the audit log.
import { html, useState } from "../view.js";
import { getAll, getPage, isAdmin, send, session, useCall } from "../api.js";
import { useHere } from "../router.js";
import { Ask, Problem, say, sayError } from "../parts/notices.js";
import { Copy, Empty, Tabs } from "../parts/common.js";
import { Receivers } from "./receivers.js";
import { ago, moment } from "../format.js";

const ROLES = ["admin", "member", "reader"];

export function PeoplePage() {
  const { query } = useHere();
  const tab = query.get("tab") || "people";
  const tabs = [["people", "People"], ["tokens", "Tokens"], ["receivers", "Receivers"], ...(isAdmin() ? [["audit", "Audit"]] : [])];
  return html`<div class="head"><h1>People</h1></div><${Tabs} tabs=${tabs} chosen=${tab} />
    ${tab === "people" && html`<${People} />`}${tab === "tokens" && html`<${Tokens} />`}${tab === "receivers" && html`<${Receivers} />`}${tab === "audit" && html`<${Audit} />`}`;
}

function People() {
  const { data, error, again } = useCall(() => getAll("/people"), []);
  const [adding, setAdding] = useState(false);
  const [name, setName] = useState("");
  const [role, setRole] = useState("member");
  const [invite, setInvite] = useState(/** @type {any} */ (null));
  const act = async (work) => {
    try {
      await work();
    } catch (failed) {
      sayError(failed);
    }
    again();
  };
  const path = (person) => `/people/${encodeURIComponent(person.name)}`;
  return html`<${Problem} error=${error} /><section class="card"><div class="head"><span class="grow"></span>${isAdmin() && html`<button class="primary" onClick=${() => setAdding(true)}>Add somebody</button>`}</div>
    <div class="scroll"><table><thead><tr><th>Name</th><th>Role</th><th>Added</th><th></th></tr></thead><tbody>
      ${(data || []).map((person) => html`<tr key=${person.name}><td>${person.name}${person.owner && html` <span class="soft">owner</span>`}${person.disabled && html` <span class="bad">locked out</span>`}</td>
        <td>${isAdmin() && !person.owner ? html`<select aria-label=${`Role of ${person.name}`} value=${person.role} onChange=${(event) => act(() => send("PATCH", path(person), { role: event.target.value }))}>${ROLES.map((one) => html`<option>${one}</option>`)}</select>` : person.role}</td>
        <td class="soft">${ago(person.created_at)}${person.created_by && ` by ${person.created_by}`}</td>
        <td class="right">${isAdmin() && !person.owner && html`<button onClick=${() => act(async () => setInvite({ person: person.name, ...(await send("POST", `${path(person)}/invite`, {})) }))}>Invite</button>${" "}<button onClick=${() => act(() => send("PATCH", path(person), { disabled: !person.disabled }))}>${person.disabled ? "Let in" : "Lock out"}</button>`}</td></tr>`)}
    </tbody></table></div></section>
    ${adding && html`<${Ask} title="Add somebody" confirm="Add" onDone=${async (isYes) => {
      setAdding(false);
      if (isYes) await act(() => send("POST", "/people", { name, role }));
    }}><label>Name<input required pattern="[a-z0-9][a-z0-9_.@+\\-]*" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
      <label>Role<select value=${role} onChange=${(event) => setRole(event.target.value)}>${ROLES.map((one) => html`<option>${one}</option>`)}</select></label><//>`}
    ${invite && html`<${Ask} title=${`Invitation for ${invite.person}`} confirm="Done" onDone=${() => setInvite(null)}><p>It is shown only once. They type:</p><${Copy} text=${`muster login '${location.origin}/#${invite.token}${invite.fingerprint ? `&${invite.fingerprint}` : ""}'`} /><//>`}`;
}

function Tokens() {
  const [everybody, setEverybody] = useState(false);
  const { data, error, again } = useCall(() => getAll("/tokens", everybody ? { everybody: true } : {}), [everybody]);
  const [label, setLabel] = useState("");
  const [made, setMade] = useState(/** @type {any} */ (null));
  const create = async (event) => {
    event.preventDefault();
    try {
      setMade(await send("POST", "/tokens", { label }));
      setLabel("");
    } catch (failed) {
      sayError(failed);
    }
    again();
  };
  const revoke = async (token) => {
    try {
      await send("DELETE", `/tokens/${token.id}`);
      say(`${token.label || token.id} opens nothing any more`);
    } catch (failed) {
      sayError(failed);
    }
    again();
  };
  return html`<${Problem} error=${error} /><section class="card">
    <form class="bar-row" onSubmit=${create}><input placeholder="What it is for" aria-label="What the token is for" maxlength="100" value=${label} onInput=${(event) => setLabel(event.target.value)} /><button class="primary" disabled=${!label.trim()}>Create a token</button>
      ${isAdmin() && html`<label><input type="checkbox" checked=${everybody} onChange=${(event) => setEverybody(event.target.checked)} /> of everybody</label>`}</form>
    ${made && html`<p>The token of ${made.label || made.id}, seen only now:</p><${Copy} text=${made.token} />`}
    <div class="scroll"><table><thead><tr><th>For</th><th>Person</th><th>Role</th><th>Created</th><th>Last used</th><th>Ends</th><th></th></tr></thead><tbody>
      ${(data || []).map((token) => html`<tr key=${token.id}><td>${token.label || token.id}${token.kind === "invite" && html` <span class="soft">invitation</span>`}</td><td>${token.person}</td><td>${token.role}</td><td class="soft">${ago(token.created_at)}</td><td class="soft">${token.used_at ? ago(token.used_at) : "never"}</td><td class="soft">${token.expires_at ? ago(token.expires_at) : "never"}</td><td class="right"><button onClick=${() => revoke(token)}>Revoke</button></td></tr>`)}
    </tbody></table></div></section>`;
}

function Audit() {
  const [who, setWho] = useState("");
  const { data, error } = useCall(() => getPage("/audit", { limit: 200, who }), [who], 5000);
  return html`<${Problem} error=${error} /><section class="card"><div class="bar-row"><input type="search" placeholder="Only what this person did" aria-label="Person" value=${who} onChange=${(event) => setWho(event.target.value)} /></div>
    <div class="scroll"><table><thead><tr><th>When</th><th>Who</th><th>From</th><th>What</th><th>To</th></tr></thead><tbody>
      ${(data?.items || []).map((one) => html`<tr key=${one.id}><td class="nowrap soft">${moment(one.at)}</td><td>${one.who}</td><td class="soft">${one.source}</td><td>${one.action}${one.outcome === "refused" && html` <span class="bad">refused</span>`}</td><td>${one.target} <span class="soft">${one.detail}</span></td></tr>`)}
    </tbody></table></div>${data && !data.items.length && html`<${Empty}>Nothing${who ? ` by ${who}` : session ? "" : ""}.<//>`}</section>`;
}
