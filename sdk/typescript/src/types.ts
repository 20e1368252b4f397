// The types of Spool's HTTP API. Generated from openapi.json; do not edit.

export interface Agent {
  agent: string;
  capabilities?: Array<string>;
  error?: string;
  install?: string;
  modes: Array<string>;
  path?: string;
  version?: string;
}

export interface AgentList {
  agents: Array<Agent>;
}

export interface Answer {
  ask?: number;
  by?: string;
  data?: unknown;
  error?: AnswerError;
  retype?: string;
}

export interface AnswerError {
  code?: string;
  message: string;
}

export interface AnswerRequest {
  data?: unknown;
  error?: AnswerError;
  id?: string;
  retype?: string;
}

export interface ApplyRequest {
  dry?: boolean;
  paths?: Array<string>;
  paths_base64?: Array<string>;
}

export interface Ask {
  ask: AskAsk;
  cwd?: string;
  engine: string;
  name?: string;
  run: string;
  seq: number;
  time: string;
  turn?: number;
}

export interface AskAsk {
  answer?: Answer;
  data?: unknown;
  deadline?: string;
  kind: string;
  name?: string;
  options?: Array<Option>;
  prompt?: string;
  retype?: boolean;
  secret?: boolean;
}

export interface AskList {
  asks: Array<Ask>;
  version: string;
}

export interface Cell {
  args?: Array<string>;
  code: string;
  file?: string;
  keep?: boolean;
  module?: string;
  no_history?: boolean;
  silent?: boolean;
  timeout_ms?: number;
}

export interface Change {
  binary?: boolean;
  conflict?: string;
  mode?: string;
  old_mode?: string;
  old_type?: string;
  op: string;
  patch?: string;
  path: string;
  path_base64?: string;
  size_bytes?: number;
  type: string;
}

export interface ChangePage {
  changes: Array<Change>;
  more?: number;
}

export interface ControlRequest {
  by?: string;
  grace_ms?: number;
  id?: string;
  op: string;
  signal?: string;
  size?: Size;
  turn?: number;
}

export interface Cursor {
  col: number;
  row: number;
  visible: boolean;
}

export interface Done {
  answer?: string;
  duration_ms?: number;
  ended_by?: string;
  error?: string;
  error_class?: string;
  execution_count?: number;
  exit_code?: number;
  id?: string;
  limit_ms?: number;
  outcome: string;
  resume?: string;
  signal?: string;
  stderr?: string;
  stopped_with?: string;
  usage?: unknown;
}

export interface Entry {
  created: string;
  ended?: string;
  ledger?: Ledger;
  output_bytes: number;
  run: string;
  subject?: string;
  wall_ms?: number;
}

export interface EnvPolicy {
  exclude?: Array<string>;
  ignore_default_excludes?: boolean;
  include_only?: Array<string>;
  inherit?: string;
  set?: Record<string, string>;
}

export interface Event {
  base64?: string;
  data?: unknown;
  kind: string;
  run: string;
  seq: number;
  stream?: "stdout" | "stderr" | "pty";
  text?: string;
  time: string;
  turn?: number;
}

export interface EventPage {
  events: Array<Event>;
  failure?: string;
  info: Info;
  next: number;
}

export interface Excerpt {
  lines: number;
  omitted?: Array<Omitted>;
  text: string;
  tokens: number;
}

export interface GuestRequest {
  page: string;
  role?: string;
}

export interface Hit {
  end: number;
  kind: string;
  n?: number;
  offset?: number;
  run: string;
  seq: number;
  start: number;
  stream?: string;
  text: string;
  time: string;
  turn?: number;
}

export interface Image {
  base64?: string;
  blob?: string;
  mime: string;
  size_bytes?: number;
}

export interface Info {
  argv?: Array<string>;
  asks?: InfoAsks;
  bytes: number;
  created: string;
  cwd?: string;
  details?: unknown;
  ended?: string;
  engine: string;
  first_size?: Size;
  id: string;
  isolation?: Isolation;
  labels?: Record<string, string>;
  last: number;
  ledger?: Ledger;
  mirror?: Mirror;
  name?: string;
  node?: string;
  outcome?: Outcome;
  owner?: string;
  pid?: number;
  size?: Size;
  state: string;
  title?: string;
  tty?: boolean;
  turn?: number;
  turn_outcome?: string;
  workspace?: Workspace;
}

export interface InfoAsks {
  count: number;
  open: Array<number>;
}

export interface InputRequest {
  base64?: string;
  data?: unknown;
  id?: string;
  kind: string;
  secret?: boolean;
}

export interface Isolation {
  ask_hosts?: boolean;
  bare?: boolean;
  denied_hosts?: Array<string>;
  guarantees?: Array<string>;
  hidden?: Array<string>;
  host_tmp?: boolean;
  hosts?: Array<string>;
  mechanism?: string;
  profile?: string;
  protected?: Array<string>;
  proxy?: string;
  readable?: Array<string>;
  secrets?: Array<string>;
  waive?: Array<string>;
  writable?: Array<string>;
}

export interface Ledger {
  input_bytes?: number;
  limits?: Array<string>;
  processes?: Processes;
  tokens?: Tokens;
  turns?: number;
}

export interface Limits {
  cpus?: number;
  grace_ms?: number;
  idle_ms?: number;
  memory_bytes?: number;
  open_files?: number;
  output_bytes?: number;
  output_policy?: string;
  pids?: number;
  wall_ms?: number;
}

export interface Line {
  continued?: boolean;
  cut?: boolean;
  n: number;
  off?: number;
  open?: boolean;
  raw?: boolean;
  s: string;
  seq: number;
  t: string;
  text: string;
}

export interface LinePage {
  complete: boolean;
  damaged_from?: number;
  lines: Array<Line>;
  next: number;
  total: number;
}

export interface LogIndex {
  bytes: number;
  complete: boolean;
  damaged_from?: number;
  first: number;
  last: number;
  last_ms: number;
  lines: number;
  marks: Array<Mark>;
  points: Array<Array<number>>;
}

export interface Mark {
  kind: string;
  line?: number;
  ms: number;
  seq: number;
  truncation?: Truncation;
}

export interface Mirror {
  lag_ms: number;
  last: number;
  node: string;
}

export interface Node {
  address: string;
  build?: string;
  control?: boolean;
  cores?: number;
  engines?: Array<string>;
  epoch: number;
  joined?: string;
  labels?: Record<string, string>;
  live: number;
  memory_bytes?: number;
  memory_free_bytes?: number;
  name: string;
  reason?: string;
  self?: boolean;
  slots: number;
  state: string;
  via?: Array<string>;
}

export interface NodeList {
  nodes: Array<Node>;
}

export interface Omitted {
  from: number;
  lines: number;
  size_bytes: number;
  to: number;
}

export interface Option {
  id: string;
  kind?: string;
  label?: string;
}

export interface Outcome {
  code: number;
  kind: string;
  reason?: string;
  signal?: string;
}

export interface Presence {
  run: string;
  viewers: Array<Viewer>;
}

export interface ProbeEcho {
  bytes: number;
  from: string;
  host: string;
  proto: string;
  secure: boolean;
  sha256: string;
  time: string;
  via?: Array<string>;
}

export interface Problem {
  by?: string;
  changes?: ChangePage;
  code: string;
  detail?: string;
  errno?: number;
  errors?: Array<ProblemError>;
  first?: number;
  hint?: string;
  instance: string;
  retry_after_ms?: number;
  run?: string;
  scope?: string;
  status: number;
  time?: string;
  title: string;
  type: string;
}

export interface ProblemError {
  detail: string;
  pointer: string;
}

export interface Processes {
  peak_memory_bytes?: number;
  system_us: number;
  user_us: number;
}

export interface Prompt {
  images?: Array<Image>;
  text: string;
  timeout_ms?: number;
}

export interface Quotas {
  answer_rate_bytes?: number;
  disk_bytes?: number;
  live?: number;
  sandboxes?: number;
  starts_per_minute?: number;
}

export interface Receipt {
  repeated?: boolean;
  seq?: number;
}

export interface Removal {
  blobs: number;
  bytes: number;
  runs: Array<string>;
}

export interface RemoveRequest {
  dry?: boolean;
  runs: Array<string>;
}

export interface RenameRequest {
  name: string;
}

export interface ResourceList {
  runs: Array<ResourceListRun>;
}

export interface ResourceListRun {
  cpu_ms: number;
  logged_bytes: number;
  memory_bytes: number;
  processes: number;
  read_bytes: number;
  run: string;
  source?: string;
  time: string;
  written_bytes: number;
}

export interface RunCounts {
  counts: Record<string, number>;
}

export interface RunList {
  errors?: Array<Problem>;
  next?: string;
  runs: Array<Info>;
}

export interface RunSearch {
  hits: Array<Hit>;
  next?: string;
  read_bytes: number;
}

export interface RunStats {
  by: string;
  errors?: Array<Problem>;
  groups: Array<RunStatsGroup>;
  total: RunStatsGroup;
}

export interface RunStatsGroup {
  failed: number;
  input_bytes: number;
  key: string;
  limits?: Record<string, number>;
  live: number;
  output_bytes: number;
  processes?: Processes;
  runs: number;
  tokens?: Tokens;
  turns: number;
  unknown: number;
  unmeasured: number;
  wall_ms: number;
}

export interface SearchPage {
  errors?: Array<Problem>;
  hits: Array<SearchPageHit>;
  next?: string;
  read_bytes: number;
}

export interface SearchPageHit {
  end: number;
  kind: string;
  offset?: number;
  run: string;
  seq: number;
  start: number;
  stream?: string;
  text: string;
  time: string;
  turn?: number;
}

export interface Server {
  name: string;
  version: string;
}

export interface ServerInfo {
  features: Array<string>;
  limits: Record<string, number>;
  scopes: Array<string>;
  subject: string;
  time: string;
  version: string;
}

export interface SessionInfo {
  expires?: string;
  id?: string;
  key?: string;
  labels?: Record<string, string>;
  runs?: Array<string>;
  scopes: Array<string>;
  server: Server;
  subject: string;
}

export interface SessionRequest {
  code?: string;
  token?: string;
}

export interface ShareInfo {
  by: string;
  created: string;
  expires?: string;
  id: string;
  last_used?: string;
  run: string;
  scopes: Array<string>;
  url?: string;
}

export interface ShareList {
  shares: Array<ShareInfo>;
}

export interface ShareRequest {
  expires?: string;
  scopes?: Array<string>;
}

export interface Size {
  cols: number;
  rows: number;
}

export interface SpecRequest {
  arg0?: string;
  argv?: Array<string>;
  config?: unknown;
  cwd?: string;
  engine?: string;
  env?: Record<string, string>;
  env_policy?: EnvPolicy;
  id?: string;
  isolation?: Isolation;
  labels?: Record<string, string>;
  limits?: Limits;
  line_buffered?: boolean;
  name?: string;
  notify?: Array<string>;
  stdin?: boolean;
  tty?: Size;
  workspace?: Workspace;
}

export interface Storage {
  blob_bytes: number;
  blobs: number;
  by?: string;
  finished_bytes: number;
  finished_raw_bytes: number;
  finished_runs: number;
  groups?: Array<StorageGroup>;
  index_bytes: number;
  live_bytes: number;
  live_runs: number;
  workspace_bytes: number;
}

export interface StorageGroup {
  bytes: number;
  name: string;
  raw_bytes: number;
  runs: number;
}

export interface Tail {
  run: string;
  seq: number;
  text: string;
}

export interface TailList {
  tails: Array<Tail>;
}

export interface TerminalScreen {
  alt: boolean;
  ansi?: string;
  cols: number;
  cursor: Cursor;
  exact: boolean;
  rows: number;
  scrollback?: Array<string>;
  seq: number;
  text?: Array<string>;
}

export interface TicketInfo {
  expires?: string;
  url: string;
}

export interface TicketRequest {
  path: string;
  stream?: boolean;
}

export interface TokenInfo {
  created: string;
  expires?: string;
  id: string;
  labels?: Record<string, string>;
  last_used?: string;
  name: string;
  quotas?: Quotas;
  runs?: Array<string>;
  scopes: Array<string>;
  secret?: string;
  subject: string;
}

export interface TokenList {
  tokens: Array<TokenInfo>;
}

export interface TokenRequest {
  expires?: string;
  labels?: Record<string, string>;
  name: string;
  quotas?: Quotas;
  runs?: Array<string>;
  scopes?: Array<string>;
  subject?: string;
}

export interface Tokens {
  cache_read?: number;
  cache_write?: number;
  cost_usd?: number;
  input: number;
  output: number;
  reasoning?: number;
  steps?: number;
}

export interface Truncation {
  dropped_bytes?: Record<string, number>;
  from?: number;
  limit_bytes?: number;
  to?: number;
}

export interface TurnInfo {
  began?: string;
  done?: Done;
  kind?: string;
  repeated?: boolean;
  seq: number;
}

export interface TurnList {
  next?: number;
  turns: Array<TurnInfo>;
}

export interface TurnRequest {
  cell?: Cell;
  id?: string;
  prompt?: Prompt;
}

export interface Viewer {
  device?: string;
  id: number;
  name: string;
  role: string;
  self?: boolean;
  since: string;
}

export interface Workspace {
  base?: string;
  kind: string;
  max_bytes?: number;
  reason?: string;
}
