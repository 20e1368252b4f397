import type { Problem } from "./types.js";

/** What this package throws. */
export class SpoolError extends Error {
  override name = this.constructor.name;
}

/** The server could not be reached, and did not come back in time. */
export class ConnectionLost extends SpoolError {}

/** The server sent a log that is not in order. */
export class LogError extends SpoolError {}

/** A run or a turn that had to succeed did not. */
export class RunFailed extends SpoolError {}

/** There is no spool program on this machine. */
export class NoProgram extends SpoolError {}

/** The server refused a request: `code` is for programs, `hint` for people. */
export class ProblemError extends SpoolError {
  readonly status: number;
  readonly code: string;
  readonly hint: string;

  constructor(readonly problem: Partial<Problem>) {
    const text = problem.detail || problem.title || `status ${problem.status}`;
    super(problem.hint ? `${text}\nhint: ${problem.hint}` : text);
    this.status = problem.status ?? 0;
    this.code = problem.code ?? "";
    this.hint = problem.hint ?? "";
  }
}

/** The request is wrong. */
export class InvalidRequest extends ProblemError {}
/** There is no token, or it is not valid any more. */
export class Unauthenticated extends ProblemError {}
/** The token may not do this. */
export class Forbidden extends ProblemError {}
/** There is no such run, event or turn, or the token may not see it. */
export class NotFound extends ProblemError {}
/** The run is not in a state for this. */
export class Conflict extends ProblemError {}
/** Several runs have this name. */
export class Ambiguous extends Conflict {}
/** Another run has this id or name. */
export class Exists extends Conflict {}
/** The run has ended. */
export class Ended extends Conflict {}
/** The run takes no more input. */
export class InputClosed extends Conflict {}
/** The ask is not open: `problem.by` says who answered it. */
export class NotAsked extends Conflict {}
/** What is dangerous must be typed again to be allowed, in the last argument of `answer`. */
export class NotRetyped extends ProblemError {}
/** The run could not be started. */
export class StartFailed extends ProblemError {}
/** There is no such program. */
export class ProgramNotFound extends StartFailed {}
/** The server or the engine cannot do this. */
export class Unsupported extends ProblemError {}
/** Too many requests, runs or streams; try again later. */
export class TooMany extends ProblemError {}
/** The server cannot answer now. */
export class Unavailable extends ProblemError {}

const byCode: Record<string, typeof ProblemError> = {
  ambiguous: Ambiguous,
  exists: Exists,
  ended: Ended,
  input_closed: InputClosed,
  not_asked: NotAsked,
  not_retyped: NotRetyped,
  start_not_found: ProgramNotFound,
  unsupported: Unsupported,
};

const byStatus: Record<number, typeof ProblemError> = {
  400: InvalidRequest,
  401: Unauthenticated,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  410: NotFound,
  429: TooMany,
  503: Unavailable,
};

/** Returns the error for an answer that is no success. */
export function problemError(status: number, body: string): ProblemError {
  let problem: Partial<Problem> = { status };
  try {
    problem = { ...problem, ...(JSON.parse(body) as Partial<Problem>) };
  } catch {
    problem.title = body.slice(0, 1000);
  }
  const code = problem.code ?? "";
  const kind = byCode[code] ?? (code.startsWith("start_") ? StartFailed : (byStatus[status] ?? ProblemError));
  return new kind(problem);
}
