import { useEffect, useState } from "preact/hooks";
import { signIn } from "../store.ts";

/** SignIn is what a page shows that the server does not know. */
export function SignIn({ why }: { why: string }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Spool";
  }, []);
  const submit = async (e: Event) => {
    e.preventDefault();
    const t = token.trim();
    if (!t) return;
    setBusy(true);
    setToken("");
    await signIn({ token: t });
    setBusy(false);
  };
  return (
    <main class="door">
      <svg class="door-logo" viewBox="0 0 32 32" aria-hidden="true">
        <path d="M7 7h18M7 25h18" />
        <path d="M11 12h10M11 16h10M11 20h10" />
      </svg>
      <h1>Sign in to Spool</h1>
      {why && <p role="alert" class="why">{why}</p>}
      <section>
        <h2>On the machine of the server</h2>
        <p>
          Type <code>spool open</code> in a shell. It opens this page and signs you in.
        </p>
      </section>
      <section>
        <h2>From elsewhere</h2>
        <form onSubmit={submit}>
          <label for="token">Token</label>
          <input id="token" type="password" autocomplete="current-password" spellcheck={false} value={token} onInput={e => setToken(e.currentTarget.value)} aria-describedby="token-help" />
          <p id="token-help" class="quiet">
            <code>spool token create NAME</code> makes one. It is not kept: the page gets a session, which you can end.
          </p>
          <button class="primary" disabled={busy || !token.trim()}>
            {busy ? "Signing in…" : "Sign in"}
          </button>
        </form>
      </section>
    </main>
  );
}
