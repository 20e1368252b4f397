// Parts of the page that are loaded when somebody wants to see them.
import { signal } from "@preact/signals";
import { createElement, type ComponentType, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { loadMore } from "../lazy.ts";
import { Skeleton, Wrong } from "../ui.tsx";

type More = Awaited<ReturnType<typeof loadMore>>;
type PropsOf<F> = F extends (props: infer P) => unknown ? P : never;

const loaded = signal<More | null>(null);

/** Part shows a component of more.tsx; label says what is loaded, which a screen has as its
 * heading until then. Meanwhile has its place until then. */
export function Part<N extends Exclude<keyof More, "openFile">>({ name, props, label, screen, meanwhile }: { name: N; props: PropsOf<More[N]>; label: string; screen?: boolean; meanwhile?: JSX.Element }) {
  const [error, setError] = useState<unknown>(null);
  const load = () => {
    setError(null);
    loadMore().then(p => (loaded.value = p), setError);
  };
  useEffect(load, []);
  if (loaded.value) return createElement(loaded.value[name] as ComponentType<any>, props as object);
  return (
    <>
      {screen && <h1 class="sr">{label}</h1>}
      {error !== null ? <Wrong error={error} again={load} /> : meanwhile ?? <Skeleton label={"Loading: " + label} />}
    </>
  );
}
