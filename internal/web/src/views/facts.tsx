// All that is known about a run.
import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { get, runPath, type Entry, type Info } from "../api.ts";
import { bytes, commandLine, count, date, duration, took } from "../format.ts";
import { outcomeText } from "../status.ts";
import { note, now } from "../store.ts";
import { Copyable, Skeleton } from "../ui.tsx";

export function Facts({ info }: { info: Info }) {
  const [used, setUsed] = useState<Entry | null>(null);
  const [known, setKnown] = useState(false); // all of it: nothing comes between later
  useEffect(() => {
    void Promise.allSettled([
      get<Info>(runPath(info.id)).then(i => note([i])),
      get<Entry>(runPath(info.id) + "/ledger").then(setUsed),
    ]).then(() => setKnown(true));
  }, [info.id, info.state]);
  const ledger = used?.ledger ?? info.ledger;
  const fact = (name: string, value: ComponentChildren) =>
    value !== undefined && value !== null && value !== "" && value !== false ? (
      <>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </>
    ) : null;
  if (!known)
    return (
      <div class="pane padded">
        <Skeleton rows={12} label="Loading facts" />
      </div>
    );
  return (
    <div class="pane padded">
      <h2>Run</h2>
      <dl class="facts">
        {fact("Id", <Copyable text={info.id} />)}
        {fact("Name", info.name)}
        {fact("Engine", info.engine)}
        {fact("Command", info.argv?.length && <Copyable text={commandLine(info.argv)} />)}
        {fact("Directory", info.cwd && <Copyable text={info.cwd} />)}
        {fact("Node", info.node)}
        {fact("State", info.state)}
        {fact("Outcome", info.outcome && outcomeText(info.outcome))}
        {fact("Started", date(info.created))}
        {fact("Ended", info.ended && date(info.ended))}
        {fact("Took", duration(took(info, now.value)))}
        {fact("Process", info.pid)}
        {fact("Keeper", info.owner)}
        {fact("Terminal", info.size && `${info.size.cols} columns, ${info.size.rows} rows`)}
        {fact("Title", info.title)}
        {fact(
          "Labels",
          info.labels && Object.keys(info.labels).length > 0 && (
            <span class="labels">
              {Object.entries(info.labels).map(([k, v]) => (
                <a key={k} class="pill" href={"/?label=" + encodeURIComponent(`${k}:${v}`)}>
                  {k}={v}
                </a>
              ))}
            </span>
          ),
        )}
      </dl>
      <h2>Log</h2>
      <dl class="facts">
        {fact("Events", count(info.last))}
        {fact("Output", `${bytes(info.bytes)} (${count(info.bytes)} bytes)`)}
      </dl>
      {ledger && (
        <>
          <h2>What it used</h2>
          <dl class="facts">
            {fact("Processor", ledger.processes && `${duration(ledger.processes.user_us / 1000)} user, ${duration(ledger.processes.system_us / 1000)} system`)}
            {fact("Most memory", ledger.processes?.peak_memory_bytes && bytes(ledger.processes.peak_memory_bytes))}
            {fact("Turns", ledger.turns)}
            {fact("Input", ledger.input_bytes && bytes(ledger.input_bytes))}
            {fact("Tokens", ledger.tokens && `${count(ledger.tokens.input)} in, ${count(ledger.tokens.output)} out`)}
            {fact("Cost", ledger.tokens?.cost_usd && `$${ledger.tokens.cost_usd.toFixed(4)}`)}
            {fact("Limits reached", ledger.limits?.join(", "))}
          </dl>
        </>
      )}
      {info.isolation && (
        <>
          <h2>Isolation</h2>
          <pre class="code">{JSON.stringify(info.isolation, null, 2)}</pre>
        </>
      )}
      {info.workspace && (
        <>
          <h2>Workspace</h2>
          <pre class="code">{JSON.stringify(info.workspace, null, 2)}</pre>
        </>
      )}
      {info.details !== undefined && (
        <>
          <h2>Details of the engine</h2>
          <pre class="code">{JSON.stringify(info.details, null, 2)}</pre>
        </>
      )}
    </div>
  );
}
