// The secret leaves the address before anything else happens.
const fragment = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, "", location.pathname + location.search);

const at = id => document.getElementById(id);
const say = text => { at("who").textContent = text; };

function call(method, path, body) {
  const headers = {};
  const key = localStorage.getItem("spool-key");
  if (key) headers["Spool-Key"] = key;
  if (body) headers["Content-Type"] = "application/json";
  return fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
}

async function problem(answer) {
  try {
    const p = await answer.json();
    return p.detail || p.title;
  } catch {
    return "The server answers " + answer.status + ".";
  }
}

async function signIn(proof) {
  const answer = await call("POST", "/v1/session", proof);
  if (!answer.ok) {
    say(await problem(answer));
    at("sign-in").hidden = false;
    at("token").focus();
    return;
  }
  const session = await answer.json();
  localStorage.setItem("spool-key", session.key);
  await show(session);
}

async function show(session) {
  at("sign-in").hidden = true;
  at("api").hidden = false;
  say("Signed in as " + session.subject + " (" + session.scopes.join(", ") + ").");
  const run = location.pathname.match(/^\/runs\/([^/]+)$/);
  if (!run) return;
  const base = "/v1/runs/" + run[1];
  const answer = await call("GET", base);
  const section = at("run");
  section.hidden = false;
  if (!answer.ok) {
    section.querySelector("h2").textContent = await problem(answer);
    return;
  }
  const info = await answer.json();
  section.querySelector("h2").textContent = (info.argv || [info.name || info.id]).join(" ") + ": " + info.state;
  const output = await call("GET", base + "/output?tail_bytes=65536&ansi=strip");
  section.querySelector("pre").textContent = output.ok ? await output.text() : await problem(output);
}

at("sign-in").addEventListener("submit", e => {
  e.preventDefault();
  signIn({ token: at("token").value.trim() });
  at("token").value = "";
});
at("sign-out").addEventListener("click", async () => {
  await call("DELETE", "/v1/session");
  localStorage.removeItem("spool-key");
  location.reload();
});

if (fragment.has("c")) {
  await signIn({ code: fragment.get("c") });
} else if (fragment.has("s")) {
  await signIn({ token: fragment.get("s") });
} else {
  const answer = localStorage.getItem("spool-key") ? await call("GET", "/v1/session") : null;
  if (answer && answer.ok) {
    await show(await answer.json());
  } else {
    say("Sign in to see what runs here.");
    at("sign-in").hidden = false;
  }
}
