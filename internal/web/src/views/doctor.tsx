// What is between this browser and the server.
import { useState } from "preact/hooks";
import { get, key, post, request, words, type ServerInfo } from "../api.ts";
import { duration } from "../format.ts";
import { frames } from "../frames.ts";
import { choose, link, type Rung } from "../link.ts";

interface Finding {
  level: "okay" | "warn" | "fail";
  name: string;
  text: string;
  hint?: string;
}

async function checkServer(): Promise<Finding[]> {
  const began = performance.now();
  const s = await get<ServerInfo>("/v1/server");
  const took = performance.now() - began;
  const skew = Math.abs(Date.parse(s.time) - Date.now());
  return [
    { level: took > 1000 ? "warn" : "okay", name: "Requests", text: `Spool ${s.version} answers in ${duration(took)}.` },
    skew > 5000
      ? { level: "warn", name: "Clocks", text: `The clocks of the server and of this device differ by ${duration(skew)}.`, hint: "Ages and durations of live runs are off by as much." }
      : { level: "okay", name: "Clocks", text: "The clocks agree." },
  ];
}

async function checkStream(): Promise<Finding[]> {
  const gaps: number[] = [];
  let before = performance.now();
  const answer = await request("GET", "/v1/doctor/stream?frames=5&every_ms=200", { accept: "text/event-stream" });
  for await (const _ of frames(answer)) {
    gaps.push(performance.now() - before);
    before = performance.now();
  }
  const together = gaps.slice(1).filter(g => g < 50).length;
  if (gaps.length < 5) return [{ level: "fail", name: "Streams", text: `Only ${gaps.length} of 5 frames came.`, hint: "Something on the way ends streams." }];
  if (together >= 3)
    return [{ level: "fail", name: "Streams", text: "All frames came at once.", hint: "A proxy holds streams back. For nginx: proxy_buffering off. The console uses long polling meanwhile." }];
  return [{ level: "okay", name: "Streams", text: "Frames come as they are sent." }];
}

async function checkSocket(): Promise<Finding[]> {
  const began = performance.now();
  return new Promise(resolve => {
    const ws = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/v1/rpc", ["spool.v1", "spool-key." + key.get()]);
    const end = (f: Finding) => {
      clearTimeout(timer);
      ws.onclose = null;
      ws.close();
      resolve([f]);
    };
    const timer = setTimeout(() => end({ level: "fail", name: "WebSocket", text: "It did not open within 5 s.", hint: "Something on the way holds it back. The console uses streams instead." }), 5000);
    ws.onopen = () => end({ level: "okay", name: "WebSocket", text: `It opens in ${duration(performance.now() - began)}.` });
    ws.onclose = e => end({ level: "fail", name: "WebSocket", text: `It was refused${e.reason ? ": " + e.reason : ""}.`, hint: "For nginx: proxy_http_version 1.1 and the Upgrade and Connection headers. The console uses streams instead." });
  });
}

async function checkBody(): Promise<Finding[]> {
  const size = 2 << 20;
  const echo = (await (await request("POST", "/v1/doctor/echo", { bytes: new Uint8Array(size) })).json()) as { bytes: number; from: string; proto: string; secure: boolean; via?: string[] };
  const list: Finding[] = [
    echo.bytes === size
      ? { level: "okay", name: "Bodies", text: `2 MiB arrive whole, over ${echo.proto}.` }
      : { level: "fail", name: "Bodies", text: `Of 2 MiB ${echo.bytes} bytes arrived.`, hint: "A proxy limits bodies. For nginx: client_max_body_size." },
    { level: "okay", name: "Way", text: `The server sees you at ${echo.from}${echo.via?.length ? `, through ${echo.via.join(", ")}` : ", directly"}.` },
  ];
  const local = ["127.0.0.1", "[::1]", "localhost"].includes(location.hostname) || location.hostname.endsWith(".localhost");
  if (!echo.secure && !local) list.push({ level: "fail", name: "Secrecy", text: "The connection is plain text: others on the network can read and change everything.", hint: "spool serve --tls-self-signed, or a proxy that ends TLS." });
  return list;
}

async function checkWait(): Promise<Finding[]> {
  const began = performance.now();
  await post("/v1/doctor/echo?wait_ms=1000", {});
  const took = performance.now() - began;
  return [{ level: took < 950 ? "warn" : "okay", name: "Waiting", text: `A request that waits for a second was answered after ${duration(took)}.` }];
}

const checks: [string, () => Promise<Finding[]>][] = [["Requests", checkServer], ["WebSocket", checkSocket], ["Streams", checkStream], ["Bodies", checkBody], ["Waiting", checkWait]];

export function Doctor() {
  const [findings, setFindings] = useState<Finding[]>([]);
  const [running, setRunning] = useState("");
  const run = async () => {
    const all: Finding[] = [];
    setFindings([]);
    for (const [name, check] of checks) {
      setRunning(name);
      try {
        all.push(...(await check()));
      } catch (e) {
        all.push({ level: "fail", name, text: words(e) });
      }
      setFindings([...all]);
    }
    setRunning("");
  };
  const marks = { okay: "✓", warn: "!", fail: "✕" };
  const rungs: [Rung, string][] = [["websocket", "WebSocket"], ["stream", "Streams"], ["poll", "Long polling"]];
  return (
    <>
      <div class="title"><h1>Doctor</h1></div>
      <section class="section">
        <h2>How this page is connected</h2>
        <p>{rungs.find(r => r[0] === link.value.rung)![1]}{link.value.why && `: ${link.value.why}`}. The page takes the best way that works; choose one to find out what is wrong.</p>
        <div class="choices" role="group" aria-label="Connection">
          {rungs.map(([r, text]) => <button key={r} class="chip" aria-pressed={link.value.rung === r} onClick={() => choose(r === "websocket" ? null : r)}>{text}</button>)}
        </div>
      </section>
      <section class="section">
        <h2>What is on the way</h2>
        <p>Finds out what is between this browser and the server. On the machine of the server, <code>spool doctor</code> looks at everything else.</p>
        <div><button class="primary" disabled={!!running} onClick={() => void run()}>{running ? `Trying ${running.toLowerCase()}…` : "Examine"}</button></div>
        <div role="status">
          {findings.map((f, i) => (
            <div key={i} class="finding">
              <span class={f.level} role="img" aria-label={f.level === "okay" ? "good" : f.level === "warn" ? "warning" : "failed"}>{marks[f.level]}</span>
              <span><b>{f.name}.</b> {f.text}</span>
              {f.hint && <span class="quiet">{f.hint}</span>}
            </div>
          ))}
        </div>
      </section>
    </>
  );
}
