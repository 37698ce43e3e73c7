// The portal: signs in, chooses a page by the address, and shows what all pages share.
import { html, render, useEffect, useState } from "./view.js";
import { connection, isAdmin, openSession, session, signIn, signOut } from "./api.js";
import { Link, go, useHere } from "./router.js";
import { Notices } from "./parts/notices.js";
import { SignInPage } from "./pages/signin.js";
import { RunsPage } from "./pages/runs.js";
import { RunPage } from "./pages/run.js";
import { ComparePage } from "./pages/compare.js";
import { ClustersPage } from "./pages/clusters.js";
import { DataPage } from "./pages/data.js";
import { ModelsPage } from "./pages/models.js";
import { BatchEndpointPage } from "./pages/batch_endpoints.js";
import { EndpointsPage } from "./pages/endpoints.js";
import { FileServersPage } from "./pages/fileservers.js";
import { EnvironmentsPage } from "./pages/environments.js";
import { PeoplePage } from "./pages/people.js";
import { SubmitPage } from "./pages/submit.js";

/** @type {[RegExp, any][]} */
const PAGES = [
  [/^\/(?:runs)?\/?$/, RunsPage],
  [/^\/runs\/([^/]+)$/, RunPage],
  [/^\/compare$/, ComparePage],
  [/^\/clusters$/, ClustersPage],
  [/^\/data(?:\/([^/]+))?(?:\/(.*))?$/, DataPage],
  [/^\/models(?:\/([^/]+))?$/, ModelsPage],
  [/^\/endpoints(?:\/([^/]+))?$/, EndpointsPage],
  [/^\/batch-endpoints\/([^/]+)$/, BatchEndpointPage],
  [/^\/fileservers(?:\/([^/]+))?$/, FileServersPage],
  [/^\/environments$/, EnvironmentsPage],
  [/^\/people$/, PeoplePage],
  [/^\/submit$/, SubmitPage],
];
const MENU = [
  ["/", "Runs", "r"],
  ["/clusters", "Clusters", "c"],
  ["/data", "Data", "d"],
  ["/fileservers", "File servers", "f"],
  ["/models", "Models", "m"],
  ["/endpoints", "Endpoints", "n"],
  ["/environments", "Environments", "e"],
  ["/people", "People", "p"],
  ["/submit", "Submit", "s"],
];

function App() {
  const { path } = useHere();
  const found = PAGES.map(([pattern, page]) => [pattern.exec(path), page]).find(([match]) => match);
  useKeys();
  if (!session) return html`<${SignInPage} />`;
  const [match, Page] = found || [[], Nowhere];
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <${Header} path=${path} />
    <${Lost} />
    <main id="main" tabindex="-1"><${Page} key=${Page === RunPage ? path : ""} parts=${match.slice(1).map((part) => part && decodeURIComponent(part))} /></main>
    <${Notices} />`;
}

function Header({ path }) {
  const isHere = (to) => (to === "/" ? path === "/" || path.startsWith("/runs") || path === "/compare" : path.startsWith(to));
  return html`<header class="top">
    <${Link} to="/" class="brand" aria-label="Muster, runs"><span class="mark">M</span><span>Muster</span><//>
    <nav aria-label="Pages">
      ${MENU.map(([to, name, key]) => html`<${Link} to=${to} aria-current=${isHere(to) ? "page" : null} title=${`g ${key}`}>${name}<//>`)}
    </nav>
    <div class="who" title=${isAdmin() ? "administrator" : session.role}>
      <span>${session.name}</span><button class="quiet" onClick=${signOut}>Sign out</button>
    </div>
  </header>`;
}

function Lost() {
  const [, set] = useState(0);
  useEffect(() => {
    const watcher = () => set((number) => number + 1);
    connection.watchers.add(watcher);
    return () => connection.watchers.delete(watcher);
  }, []);
  if (connection.up) return null;
  return html`<div class="lost" role="status">
    The server does not answer. What you see is what was last known; it is tried again.
    A workspace's own server ends when it is idle: <code>muster portal</code> starts it again.
  </div>`;
}

function Nowhere() {
  return html`<h1>Nothing here</h1><p>There is no such page. <${Link} to="/">All runs<//></p>`;
}

/** `g` and a letter goes to a page, `/` to the search field, `?` is in the titles of the menu. */
function useKeys() {
  useEffect(() => {
    let before = "";
    const pressed = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.metaKey || event.ctrlKey || event.altKey || target.closest("input, textarea, select, [contenteditable]")) return;
      if (event.key === "/") {
        const field = document.querySelector("input[type=search]");
        if (field) {
          event.preventDefault();
          /** @type {HTMLElement} */ (field).focus();
        }
      }
      const found = before === "g" && MENU.find(([, , key]) => key === event.key);
      before = event.key;
      if (found) go(found[0]);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

async function start() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const link = asked.get("link");
  if (link) {
    // The secret is removed from the address before anything else happens.
    const to = asked.get("to") || "/portal/";
    history.replaceState(null, "", to.startsWith("/portal/") ? to : "/portal/");
    try {
      await signIn({ link });
    } catch (error) {
      await openSession();
      if (!session) return render(html`<${SignInPage} problem=${error} />`, document.getElementById("app"));
    }
  } else {
    await openSession();
  }
  render(html`<${App} />`, document.getElementById("app"));
}

start().catch(() => render(html`<div class="lost">The server does not answer. Reload this page when it does.</div>`, document.getElementById("app")));
