"""The types of Spool's HTTP API. Generated from openapi.json; do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = [
    "Agent",
    "AgentList",
    "Answer",
    "AnswerError",
    "AnswerRequest",
    "ApplyRequest",
    "Ask",
    "AskAsk",
    "AskList",
    "Cell",
    "Change",
    "ChangePage",
    "ControlRequest",
    "Cursor",
    "Done",
    "Entry",
    "EnvPolicy",
    "Event",
    "EventPage",
    "Excerpt",
    "GuestRequest",
    "Hit",
    "Image",
    "Info",
    "InfoAsks",
    "InputRequest",
    "Isolation",
    "Ledger",
    "Limits",
    "Line",
    "LinePage",
    "LogIndex",
    "Mark",
    "Mirror",
    "Node",
    "NodeList",
    "Omitted",
    "Option",
    "Outcome",
    "Presence",
    "ProbeEcho",
    "Problem",
    "ProblemError",
    "Processes",
    "Prompt",
    "Quotas",
    "Receipt",
    "Removal",
    "RemoveRequest",
    "RenameRequest",
    "ResourceList",
    "ResourceListRun",
    "RunCounts",
    "RunList",
    "RunSearch",
    "RunStats",
    "RunStatsGroup",
    "SearchPage",
    "SearchPageHit",
    "Server",
    "ServerInfo",
    "SessionInfo",
    "SessionRequest",
    "ShareInfo",
    "ShareList",
    "ShareRequest",
    "Size",
    "SpecRequest",
    "Storage",
    "StorageGroup",
    "Tail",
    "TailList",
    "TerminalScreen",
    "TicketInfo",
    "TicketRequest",
    "TokenInfo",
    "TokenList",
    "TokenRequest",
    "Tokens",
    "Truncation",
    "TurnInfo",
    "TurnList",
    "TurnRequest",
    "Viewer",
    "Workspace",
]


class _Agent(TypedDict):
    agent: str
    modes: list[str]


class Agent(_Agent, total=False):
    capabilities: list[str]
    error: str
    install: str
    path: str
    version: str


class AgentList(TypedDict):
    agents: list[Agent]


class Answer(TypedDict, total=False):
    ask: int
    by: str
    data: Any
    error: AnswerError
    retype: str


class _AnswerError(TypedDict):
    message: str


class AnswerError(_AnswerError, total=False):
    code: str


class AnswerRequest(TypedDict, total=False):
    data: Any
    error: AnswerError
    id: str
    retype: str


class ApplyRequest(TypedDict, total=False):
    dry: bool
    paths: list[str]
    paths_base64: list[str]


class _Ask(TypedDict):
    ask: AskAsk
    engine: str
    run: str
    seq: int
    time: str


class Ask(_Ask, total=False):
    cwd: str
    name: str
    turn: int


class _AskAsk(TypedDict):
    kind: str


class AskAsk(_AskAsk, total=False):
    answer: Answer
    data: Any
    deadline: str
    name: str
    options: list[Option]
    prompt: str
    retype: bool
    secret: bool


class AskList(TypedDict):
    asks: list[Ask]
    version: str


class _Cell(TypedDict):
    code: str


class Cell(_Cell, total=False):
    args: list[str]
    file: str
    keep: bool
    module: str
    no_history: bool
    silent: bool
    timeout_ms: int


class _Change(TypedDict):
    op: str
    path: str
    type: str


class Change(_Change, total=False):
    binary: bool
    conflict: str
    mode: str
    old_mode: str
    old_type: str
    patch: str
    path_base64: str
    size_bytes: int


class _ChangePage(TypedDict):
    changes: list[Change]


class ChangePage(_ChangePage, total=False):
    more: int


class _ControlRequest(TypedDict):
    op: str


class ControlRequest(_ControlRequest, total=False):
    by: str
    grace_ms: int
    id: str
    signal: str
    size: Size
    turn: int


class Cursor(TypedDict):
    col: int
    row: int
    visible: bool


class _Done(TypedDict):
    outcome: str


class Done(_Done, total=False):
    answer: str
    duration_ms: int
    ended_by: str
    error: str
    error_class: str
    execution_count: int
    exit_code: int
    id: str
    limit_ms: int
    resume: str
    signal: str
    stderr: str
    stopped_with: str
    usage: Any


class _Entry(TypedDict):
    created: str
    output_bytes: int
    run: str


class Entry(_Entry, total=False):
    ended: str
    ledger: Ledger
    subject: str
    wall_ms: int


class EnvPolicy(TypedDict, total=False):
    exclude: list[str]
    ignore_default_excludes: bool
    include_only: list[str]
    inherit: str
    set: dict[str, str]


class _Event(TypedDict):
    kind: str
    run: str
    seq: int
    time: str


class Event(_Event, total=False):
    base64: str
    data: Any
    stream: Literal["stdout", "stderr", "pty"]
    text: str
    turn: int


class _EventPage(TypedDict):
    events: list[Event]
    info: Info
    next: int


class EventPage(_EventPage, total=False):
    failure: str


class _Excerpt(TypedDict):
    lines: int
    text: str
    tokens: int


class Excerpt(_Excerpt, total=False):
    omitted: list[Omitted]


class _GuestRequest(TypedDict):
    page: str


class GuestRequest(_GuestRequest, total=False):
    role: str


class _Hit(TypedDict):
    end: int
    kind: str
    run: str
    seq: int
    start: int
    text: str
    time: str


class Hit(_Hit, total=False):
    n: int
    offset: int
    stream: str
    turn: int


class _Image(TypedDict):
    mime: str


class Image(_Image, total=False):
    base64: str
    blob: str
    size_bytes: int


class _Info(TypedDict):
    bytes: int
    created: str
    engine: str
    id: str
    last: int
    state: str


class Info(_Info, total=False):
    argv: list[str]
    asks: InfoAsks
    cwd: str
    details: Any
    ended: str
    first_size: Size
    isolation: Isolation
    labels: dict[str, str]
    ledger: Ledger
    mirror: Mirror
    name: str
    node: str
    outcome: Outcome
    owner: str
    pid: int
    size: Size
    title: str
    tty: bool
    turn: int
    turn_outcome: str
    workspace: Workspace


class InfoAsks(TypedDict):
    count: int
    open: list[int]


class _InputRequest(TypedDict):
    kind: str


class InputRequest(_InputRequest, total=False):
    base64: str
    data: Any
    id: str
    secret: bool


class Isolation(TypedDict, total=False):
    ask_hosts: bool
    bare: bool
    denied_hosts: list[str]
    guarantees: list[str]
    hidden: list[str]
    host_tmp: bool
    hosts: list[str]
    mechanism: str
    profile: str
    protected: list[str]
    proxy: str
    readable: list[str]
    secrets: list[str]
    waive: list[str]
    writable: list[str]


class Ledger(TypedDict, total=False):
    input_bytes: int
    limits: list[str]
    processes: Processes
    tokens: Tokens
    turns: int


class Limits(TypedDict, total=False):
    cpus: float
    grace_ms: int
    idle_ms: int
    memory_bytes: int
    open_files: int
    output_bytes: int
    output_policy: str
    pids: int
    wall_ms: int


class _Line(TypedDict):
    n: int
    s: str
    seq: int
    t: str
    text: str


class Line(_Line, total=False):
    continued: bool
    cut: bool
    off: int
    open: bool
    raw: bool


class _LinePage(TypedDict):
    complete: bool
    lines: list[Line]
    next: int
    total: int


class LinePage(_LinePage, total=False):
    damaged_from: int


class _LogIndex(TypedDict):
    bytes: int
    complete: bool
    first: int
    last: int
    last_ms: int
    lines: int
    marks: list[Mark]
    points: list[list[int]]


class LogIndex(_LogIndex, total=False):
    damaged_from: int


class _Mark(TypedDict):
    kind: str
    ms: int
    seq: int


class Mark(_Mark, total=False):
    line: int
    truncation: Truncation


class Mirror(TypedDict):
    lag_ms: int
    last: int
    node: str


class _Node(TypedDict):
    address: str
    epoch: int
    live: int
    name: str
    slots: int
    state: str


class Node(_Node, total=False):
    build: str
    control: bool
    cores: int
    engines: list[str]
    joined: str
    labels: dict[str, str]
    memory_bytes: int
    memory_free_bytes: int
    reason: str
    self: bool
    via: list[str]


class NodeList(TypedDict):
    nodes: list[Node]


Omitted = TypedDict(
    "Omitted",
    {
        "from": "int",
        "lines": "int",
        "size_bytes": "int",
        "to": "int",
    },
)


class _Option(TypedDict):
    id: str


class Option(_Option, total=False):
    kind: str
    label: str


class _Outcome(TypedDict):
    code: int
    kind: str


class Outcome(_Outcome, total=False):
    reason: str
    signal: str


class Presence(TypedDict):
    run: str
    viewers: list[Viewer]


_ProbeEcho = TypedDict(
    "_ProbeEcho",
    {
        "bytes": "int",
        "from": "str",
        "host": "str",
        "proto": "str",
        "secure": "bool",
        "sha256": "str",
        "time": "str",
    },
)


class ProbeEcho(_ProbeEcho, total=False):
    via: list[str]


class _Problem(TypedDict):
    code: str
    instance: str
    status: int
    title: str
    type: str


class Problem(_Problem, total=False):
    by: str
    changes: ChangePage
    detail: str
    errno: int
    errors: list[ProblemError]
    first: int
    hint: str
    retry_after_ms: int
    run: str
    scope: str
    time: str


class ProblemError(TypedDict):
    detail: str
    pointer: str


class _Processes(TypedDict):
    system_us: int
    user_us: int


class Processes(_Processes, total=False):
    peak_memory_bytes: int


class _Prompt(TypedDict):
    text: str


class Prompt(_Prompt, total=False):
    images: list[Image]
    timeout_ms: int


class Quotas(TypedDict, total=False):
    answer_rate_bytes: int
    disk_bytes: int
    live: int
    sandboxes: int
    starts_per_minute: int


class Receipt(TypedDict, total=False):
    repeated: bool
    seq: int


class Removal(TypedDict):
    blobs: int
    bytes: int
    runs: list[str]


class _RemoveRequest(TypedDict):
    runs: list[str]


class RemoveRequest(_RemoveRequest, total=False):
    dry: bool


class RenameRequest(TypedDict):
    name: str


class ResourceList(TypedDict):
    runs: list[ResourceListRun]


class _ResourceListRun(TypedDict):
    cpu_ms: int
    logged_bytes: int
    memory_bytes: int
    processes: int
    read_bytes: int
    run: str
    time: str
    written_bytes: int


class ResourceListRun(_ResourceListRun, total=False):
    source: str


class RunCounts(TypedDict):
    counts: dict[str, int]


class _RunList(TypedDict):
    runs: list[Info]


class RunList(_RunList, total=False):
    errors: list[Problem]
    next: str


class _RunSearch(TypedDict):
    hits: list[Hit]
    read_bytes: int


class RunSearch(_RunSearch, total=False):
    next: str


class _RunStats(TypedDict):
    by: str
    groups: list[RunStatsGroup]
    total: RunStatsGroup


class RunStats(_RunStats, total=False):
    errors: list[Problem]


class _RunStatsGroup(TypedDict):
    failed: int
    input_bytes: int
    key: str
    live: int
    output_bytes: int
    runs: int
    turns: int
    unknown: int
    unmeasured: int
    wall_ms: int


class RunStatsGroup(_RunStatsGroup, total=False):
    limits: dict[str, int]
    processes: Processes
    tokens: Tokens


class _SearchPage(TypedDict):
    hits: list[SearchPageHit]
    read_bytes: int


class SearchPage(_SearchPage, total=False):
    errors: list[Problem]
    next: str


class _SearchPageHit(TypedDict):
    end: int
    kind: str
    run: str
    seq: int
    start: int
    text: str
    time: str


class SearchPageHit(_SearchPageHit, total=False):
    offset: int
    stream: str
    turn: int


class Server(TypedDict):
    name: str
    version: str


class ServerInfo(TypedDict):
    features: list[str]
    limits: dict[str, int]
    scopes: list[str]
    subject: str
    time: str
    version: str


class _SessionInfo(TypedDict):
    scopes: list[str]
    server: Server
    subject: str


class SessionInfo(_SessionInfo, total=False):
    expires: str
    id: str
    key: str
    labels: dict[str, str]
    runs: list[str]


class SessionRequest(TypedDict, total=False):
    code: str
    token: str


class _ShareInfo(TypedDict):
    by: str
    created: str
    id: str
    run: str
    scopes: list[str]


class ShareInfo(_ShareInfo, total=False):
    expires: str
    last_used: str
    url: str


class ShareList(TypedDict):
    shares: list[ShareInfo]


class ShareRequest(TypedDict, total=False):
    expires: str
    scopes: list[str]


class Size(TypedDict):
    cols: int
    rows: int


class SpecRequest(TypedDict, total=False):
    arg0: str
    argv: list[str]
    config: Any
    cwd: str
    engine: str
    env: dict[str, str]
    env_policy: EnvPolicy
    id: str
    isolation: Isolation
    labels: dict[str, str]
    limits: Limits
    line_buffered: bool
    name: str
    notify: list[str]
    stdin: bool
    tty: Size
    workspace: Workspace


class _Storage(TypedDict):
    blob_bytes: int
    blobs: int
    finished_bytes: int
    finished_raw_bytes: int
    finished_runs: int
    index_bytes: int
    live_bytes: int
    live_runs: int
    workspace_bytes: int


class Storage(_Storage, total=False):
    by: str
    groups: list[StorageGroup]


class StorageGroup(TypedDict):
    bytes: int
    name: str
    raw_bytes: int
    runs: int


class Tail(TypedDict):
    run: str
    seq: int
    text: str


class TailList(TypedDict):
    tails: list[Tail]


class _TerminalScreen(TypedDict):
    alt: bool
    cols: int
    cursor: Cursor
    exact: bool
    rows: int
    seq: int


class TerminalScreen(_TerminalScreen, total=False):
    ansi: str
    scrollback: list[str]
    text: list[str]


class _TicketInfo(TypedDict):
    url: str


class TicketInfo(_TicketInfo, total=False):
    expires: str


class _TicketRequest(TypedDict):
    path: str


class TicketRequest(_TicketRequest, total=False):
    stream: bool


class _TokenInfo(TypedDict):
    created: str
    id: str
    name: str
    scopes: list[str]
    subject: str


class TokenInfo(_TokenInfo, total=False):
    expires: str
    labels: dict[str, str]
    last_used: str
    quotas: Quotas
    runs: list[str]
    secret: str


class TokenList(TypedDict):
    tokens: list[TokenInfo]


class _TokenRequest(TypedDict):
    name: str


class TokenRequest(_TokenRequest, total=False):
    expires: str
    labels: dict[str, str]
    quotas: Quotas
    runs: list[str]
    scopes: list[str]
    subject: str


class _Tokens(TypedDict):
    input: int
    output: int


class Tokens(_Tokens, total=False):
    cache_read: int
    cache_write: int
    cost_usd: float
    reasoning: int
    steps: int


Truncation = TypedDict(
    "Truncation",
    {
        "dropped_bytes": "dict[str, int]",
        "from": "int",
        "limit_bytes": "int",
        "to": "int",
    },
    total=False,
)


class _TurnInfo(TypedDict):
    seq: int


class TurnInfo(_TurnInfo, total=False):
    began: str
    done: Done
    kind: str
    repeated: bool


class _TurnList(TypedDict):
    turns: list[TurnInfo]


class TurnList(_TurnList, total=False):
    next: int


class TurnRequest(TypedDict, total=False):
    cell: Cell
    id: str
    prompt: Prompt


class _Viewer(TypedDict):
    id: int
    name: str
    role: str
    since: str


class Viewer(_Viewer, total=False):
    device: str
    self: bool


class _Workspace(TypedDict):
    kind: str


class Workspace(_Workspace, total=False):
    base: str
    max_bytes: int
    reason: str
