export { type Options, Spool, type StartOptions } from "./client.js";
export * from "./errors.js";
export { bytesOf, textOf } from "./events.js";
export type { Fetch } from "./http.js";
export { describe, Run, Stdin, type Waiting } from "./run.js";
export { Agent, type Answer, type Answerer, type Ask, Cell, type CellError, type Image, Kernel, type Tool, Turn } from "./turns.js";
export * as types from "./types.js";
export type { Change, Done, Event, Excerpt, Hit, Info, Isolation, Limits, Outcome, Problem, ServerInfo, Size, SpecRequest, Workspace } from "./types.js";
