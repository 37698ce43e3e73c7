// The sign-in page, for people without a sign-in link.
import { html, useState } from "../view.js";
import { get, signIn, useCall } from "../api.js";
import { Problem } from "../parts/notices.js";

export function SignInPage({ problem = null }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(problem);
  const [busy, setBusy] = useState(false);
  const service = useCall(() => get("/sso"), []).data;
  const here = location.pathname.startsWith("/portal/sign-in") ? "/portal/" : location.pathname + location.search;
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn({ token: token.trim() });
      location.replace(here);
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return html`<main class="signin">
    <h1><span class="mark">M</span> Muster</h1>
    ${service && html`<p><a class="button primary" href=${`/portal/sso?to=${encodeURIComponent(here)}`}>Sign in at ${new URL(service.issuer).host}</a></p>`}
    <p><code>muster portal</code> on your machine opens this page signed in${" "}
      (after <code>muster login URL</code>, with <code>--sso</code> where your team signs on by a service).</p>
    <form onSubmit=${enter}>
      <label>Or with a token<input type="password" autocomplete="current-password" value=${token} placeholder="muster_…"
        onInput=${(event) => setToken(event.target.value)} autofocus required /></label>
      <button class="primary" disabled=${busy || !token.trim()}>Sign in</button>
    </form>
    ${error && html`<${Problem} error=${error} />`}
  </main>`;
}
