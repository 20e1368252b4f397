package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/strict"
)

// Problem is the body of every answer that is no success, as RFC 9457 has it. A
// program branches on Code.
type Problem struct {
	Type     string      `json:"type"`
	Title    string      `json:"title"`
	Status   int         `json:"status"`
	Code     string      `json:"code"`
	Detail   string      `json:"detail,omitempty"`
	Hint     string      `json:"hint,omitempty"` // the next step, for a person
	Instance string      `json:"instance"`       // the id of the request
	Run      spool.RunID `json:"run,omitempty"`
	// Errors are the members and parameters that are wrong.
	Errors []MemberError `json:"errors,omitempty"`
	Scope  access.Scope  `json:"scope,omitempty"` // the one that is missing
	// RetryAfterMs is how long to wait before the next attempt.
	RetryAfterMs int64 `json:"retry_after_ms,omitempty"`
	// By and Time are of the answer that counted, of an ask that is answered.
	By   string    `json:"by,omitempty"`
	Time time.Time `json:"time,omitzero"`
	// First is the first event that is left of the log, of an event that is
	// gone.
	First spool.Seq `json:"first,omitempty"`
	// Changes are those with conflicts, of changes that cannot be applied.
	Changes *spool.ChangePage `json:"changes,omitempty"`
	// Errno is the error of the operating system where a start failed.
	Errno int `json:"errno,omitempty"`
}

// MemberError is what is wrong with a member of the body or a parameter.
type MemberError struct {
	Pointer string `json:"pointer"` // a JSON pointer, or the name of a parameter
	Detail  string `json:"detail"`
}

func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// problemKind is a row of the table of problems.
type problemKind struct {
	code   string
	status int
	title  string
	// sentinel is the error of package spool that becomes this problem; nil if
	// there is none. The first row of a sentinel is the one that it becomes
	// without further knowledge.
	sentinel error
	text     string // what it means and what to do, for a person
}

// problemKinds are all problems. An error that is several sentinels becomes the
// first: the narrower ones come before the wider ones.
var problemKinds = []problemKind{
	{"not_asked", 409, "Nothing was asked, or it is answered", spool.ErrNotAsked, "The ask was answered, its turn ended, or it never was one. The first answer counts; the members by and time say whose it was."},
	{"not_retyped", 422, "It must be typed again", spool.ErrNotRetyped, "The policy of the run calls it dangerous: an answer that allows it needs the member retype, with the command of the ask, or its name if it has no command. The ask stays open."},
	{"input_closed", 409, "The run takes no input", spool.ErrInputClosed, "The run has no standard input, it was closed, or the run has ended."},
	{"ended", 409, "The run has ended", spool.ErrEnded, "Stop and kill do nothing after the end of a run; every other control needs a live one."},
	{"exists", 409, "It exists already", spool.ErrExists, "Another run has the id or the name. Repeat a start only with the same spec. Of changes to apply: a file was changed since the run began."},
	{"ambiguous", 409, "More than one run matches", spool.ErrAmbiguous, "Use more characters of the id, or the whole id."},
	{"not_found", 404, "No such run or blob", spool.ErrNotFound, "The run does not exist, was removed, or belongs to someone else: the answer is the same."},
	{"busy", 429, "Busy", spool.ErrBusy, "Later it may work: something is full, a quota is used up for now, or the run must end first."},
	{"forbidden", 403, "Not allowed", spool.ErrDenied, "The token lacks a scope, which the member scope names, or a policy forbids the request."},
	{"closing", 503, "The server ends", spool.ErrClosed, "The server is shutting down. Runs go on: come back with the cursor."},
	{"unsupported", 422, "Not supported", spool.ErrUnsupported, "Such a run, or this server, cannot do that."},
	{"invalid", 400, "The request makes no sense", spool.ErrInvalid, "A value is out of range or contradicts another; the members detail and errors say which."},

	{"unknown_member", 400, "Unknown member or parameter", spool.ErrInvalid, "A member of the body or a parameter of the query does not exist. It is refused, because a misspelled limit would be no limit."},
	{"bad_cursor", 400, "No such cursor", spool.ErrInvalid, "A cursor is a number of an event, or the text that the page before said."},
	{"bad_json", 400, "The body is not JSON", spool.ErrInvalid, "The body does not parse as JSON."},
	{"unauthenticated", 401, "Who are you?", spool.ErrDenied, "The request needs the header \"Authorization: Bearer TOKEN\", or the cookie and the key of a page that signed in. Tokens in a query are not accepted."},
	{"expired", 401, "Not any more", spool.ErrDenied, "The token, the code or the session was valid once and has expired. Sign in again: \"spool open\" does it on the machine of the server."},
	{"bad_host", 403, "Not a name of this server", spool.ErrDenied, "The Host header names another server. Use an IP address or localhost, or start the server with --host NAME."},
	{"bad_origin", 403, "Not an origin of this server", spool.ErrDenied, "A page of another origin sent the request. Allow that origin with --allow-origin, and let the page send a token."},
	{"cross_site", 403, "Sent by a page of another site", spool.ErrDenied, "The browser says that a page of another site sent the request."},
	{"no_event", 404, "No such event", spool.ErrNotFound, "The log has no event with that number yet."},
	{"no_form", 404, "No such form", spool.ErrNotFound, "The event is no display, or it has no form of that type."},
	{"no_turn", 404, "No such turn", spool.ErrNotFound, "A turn is named by the number of the input event that began it."},
	{"no_route", 404, "No such address", nil, "The server has no such address; /openapi.json lists all."},
	{"method", 405, "Not with this method", nil, "The header Allow names the methods of this address."},
	{"not_acceptable", 406, "Not in that form", nil, "The header Accept names no form that this address has."},
	{"live", 409, "The run is live", spool.ErrBusy, "Only finished runs can be removed: stop it first."},
	{"trimmed", 410, "The event is gone", spool.ErrNotFound, "The beginning of the log was dropped; the member first is the first event that is left."},
	{"too_large", 413, "Too large", spool.ErrInvalid, "The body is larger than the server takes, or the answer larger than it gives; GET /v1/server says how much that is."},
	{"media_type", 415, "Not with this content type", nil, "The body must have the content type that the address asks for."},
	{"upgrade", 426, "A WebSocket is needed", nil, "The address speaks WebSocket: the request must ask for that, over HTTP/1.1."},
	{"start_invalid", 422, "The spec makes no sense", spool.ErrInvalid, "The spec of the run contradicts itself or has a value that cannot be."},
	{"start_not_found", 422, "No such program", nil, "There is no such program in the PATH of the environment of the run."},
	{"start_not_executable", 422, "The program may not be executed", nil, "The file is not executable."},
	{"start_bad_format", 422, "No program for this machine", nil, "The file is no program that this machine can execute."},
	{"start_bad_cwd", 422, "No such working directory", nil, "The working directory must exist on the machine of the server."},
	{"start_unsupported", 422, "Not supported", spool.ErrUnsupported, "This server cannot do what the spec asks."},
	{"start_name_taken", 409, "A live run has the name", spool.ErrExists, "The name of a run is unique among live runs."},
	{"queue_full", 429, "Too much waits already", spool.ErrBusy, "The run has as many turns or as much input waiting as it takes."},
	{"too_many_streams", 429, "Too many streams", spool.ErrBusy, "The subject, the run or the server has as many open streams as it may have."},
	{"rate", 429, "Too fast", spool.ErrBusy, "The subject sends more requests of this kind than it may; the header Retry-After says how long to wait."},
	{"too_many_failures", 429, "Too many failed attempts", spool.ErrDenied, "Too many requests without valid credentials came from there, or from everywhere; the header Retry-After says how long to wait."},
	{"internal", 500, "The server failed", nil, "An error of the machine or of the server; its log has the id of the request."},
	{"start_other", 500, "The start failed", nil, "The member detail says why."},
	{"start_limit", 503, "Out of processes, descriptors or memory", nil, "The machine has too few resources for the start."},
	{"start_pty", 503, "No terminal could be had", nil, "The machine has too few pseudo-terminals."},
	{"backend_lost", 503, "The owner of the run is lost", spool.ErrLost, "The process or the machine that owns the run cannot be reached."},
	{"no_space", 507, "The disk is full", nil, "Free some disk space; \"spool prune\" removes finished runs."},
}

// problemOf returns the row of a code. Every code in the source has one.
func problemOf(code string) *problemKind {
	i := slices.IndexFunc(problemKinds, func(k problemKind) bool { return k.code == code })
	if i < 0 {
		return problemOf("internal")
	}
	return &problemKinds[i]
}

// problemf returns a problem with a detail.
func problemf(code, format string, args ...any) *Problem {
	return &Problem{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// toProblem turns an error into a problem.
func toProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	p = &Problem{Detail: err.Error()}
	var errno syscall.Errno
	var start *spool.StartError
	switch {
	case errors.As(err, &start):
		p.Code, p.Hint = "start_"+start.Reason, start.Hint
		if start.Err != nil {
			p.Detail = "start: " + start.Err.Error()
		}
		if problemOf(p.Code).code != p.Code {
			p.Code = "start_other"
		}
		if errors.As(err, &errno) {
			p.Errno = int(errno)
		}
		return p
	case errors.Is(err, syscall.ENOSPC):
		p.Code = "no_space"
		return p
	}
	for i := range problemKinds {
		if k := &problemKinds[i]; k.sentinel != nil && errors.Is(err, k.sentinel) {
			p.Code = k.code
			break
		}
	}
	switch p.Code {
	case "":
		p.Code = "internal"
	case "busy":
		p.RetryAfterMs = 1000
	}
	return p
}

// complete fills in what every problem has.
func (c *call) complete(p Problem) Problem {
	kind := problemOf(p.Code)
	p.Type, p.Title, p.Status, p.Code, p.Instance = "/v1/problems/"+kind.code, kind.title, kind.status, kind.code, c.id
	return p
}

// bodyProblem turns an error of decoding the body into a problem.
func bodyProblem(err error) error {
	var unknown *strict.UnknownError
	var syntax *json.SyntaxError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &unknown):
		p := problemf("unknown_member", "%s", err)
		e := MemberError{Pointer: "/" + pointer(unknown.Key), Detail: "there is no such member"}
		if unknown.Near != "" {
			e.Detail = fmt.Sprintf("did you mean %q?", unknown.Near)
		}
		p.Errors = []MemberError{e}
		return p
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return problemf("bad_json", "%s", err)
	case errors.As(err, &large):
		return problemf("too_large", "the body has more than %d bytes", large.Limit)
	}
	return problemf("invalid", "%s", err)
}

// pointer turns the keys that lead to a member into a JSON pointer.
func pointer(key string) string {
	var b []byte
	for _, c := range []byte(key) {
		switch c {
		case '.':
			b = append(b, '/')
		case '~':
			b = append(b, "~0"...)
		case '/':
			b = append(b, "~1"...)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// fail answers with the problem that an error is.
func (c *call) fail(err error) {
	if c.r.Context().Err() != nil && !errors.Is(context.Cause(c.ctx), spool.ErrClosed) {
		return // nobody waits for the answer
	}
	p := c.complete(*toProblem(err))
	c.server.counters.count(&c.server.counters.problems, p.Code)
	if p.Run == "" {
		if id := spool.RunID(c.r.PathValue("run")); id.Check() == nil {
			p.Run = id
		}
	}
	if p.Status >= http.StatusInternalServerError && p.Code != "closing" {
		c.server.log.Error("request failed", "request", c.id, "method", c.r.Method, "path", c.r.URL.Path, "err", err)
	}
	if c.refuseSocket(&p) {
		return
	}
	h := c.w.Header()
	switch {
	case p.Status == http.StatusUpgradeRequired:
		h.Set("Upgrade", "websocket")
		h.Set("Connection", "Upgrade")
	case p.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case p.RetryAfterMs == 0 && p.Status == http.StatusServiceUnavailable:
		p.RetryAfterMs = 1000
	}
	if p.RetryAfterMs > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(float64(p.RetryAfterMs)/1000))))
	}
	body, err := json.Marshal(p)
	if err != nil { // plain fields always encode
		body = []byte("{}")
	}
	h.Set("Content-Type", "application/problem+json")
	h.Del("ETag")
	c.w.WriteHeader(p.Status)
	_, _ = c.w.Write(append(body, '\n')) // the client may have left
}

// unauthenticated is the problem of a refusal.
func unauthenticated(refusal *access.Refusal) *Problem {
	p := &Problem{Code: "unauthenticated", Detail: "the request has no valid token", RetryAfterMs: refusal.RetryAfter.Milliseconds()}
	switch {
	case refusal.Err != nil:
		p.Code, p.Detail = "internal", refusal.Text
	case refusal.Status == http.StatusTooManyRequests:
		p.Code, p.Detail = "too_many_failures", refusal.Text
	case refusal.Status == http.StatusForbidden:
		p.Code, p.Detail = "forbidden", refusal.Text
	case refusal.Expired:
		p.Code, p.Detail = "expired", "the token, the code or the session has expired"
	}
	return p
}
