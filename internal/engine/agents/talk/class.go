package talk

import (
	"strconv"
	"strings"

	"github.com/spool-run/spool/agent"
)

// classes are what the words of an error say about its cause, in order.
var classes = []struct {
	class string
	words []string
}{
	{agent.ClassSession, []string{"no conversation found", "session not found", "no session found", "no rollout found", "thread not found", "no matching session", "unknown session"}},
	{agent.ClassAuth, []string{"unauthorized", "authentication", "api key", "api-key", "api_key", "credential", "not logged in", "please run /login", "forbidden", "oauth"}},
	{agent.ClassModel, []string{"model_not_found", "model not found", "no such model", "no-such-model", "issue with the selected model", "unknown model", "unsupported model", "invalid model"}},
	{agent.ClassRateLimit, []string{"rate limit", "rate_limit", "too many requests", "usage limit", "quota"}},
	{agent.ClassContext, []string{"context window", "context length", "context_length", "maximum context", "prompt is too long", "max_output_tokens", "maximum output", "output token maximum", "token limit", "too many tokens", "incomplete response"}},
	{agent.ClassOverloaded, []string{"overloaded", "service unavailable", "internal server error", "bad gateway", "server_error", "high demand", "at capacity"}},
	{agent.ClassPermission, []string{"permission", "not allowed", "denied", "rejected by user", "approval"}},
	{agent.ClassNetwork, []string{"connection", "network", "transport", "disconnected", "econn", "socket", "timed out", "terminated", "dns", "stream"}},
	{agent.ClassUsage, []string{"unexpected argument", "unknown option", "unrecognized", "usage:", "invalid value", "unknown argument"}},
}

// statusText finds an HTTP status in an error.
var statusText = Lazily(`(?i)(?:^|status(?: code)?[: ]+|http[: /]+|error[: ]+)([45]\d\d)\b`)

// Classify says what an error is about, from its HTTP status if there is one
// and else from its words. It is a help for people and programs, not a fact.
func Classify(text string, status int) string {
	if status == 0 {
		if m := statusText().FindStringSubmatch(text); m != nil {
			status, _ = strconv.Atoi(m[1])
		}
	}
	lower := strings.ToLower(text)
	switch {
	case status == 401 || status == 403:
		return agent.ClassAuth
	case status == 404 && strings.Contains(lower, "model"):
		return agent.ClassModel
	case status == 429:
		return agent.ClassRateLimit
	case status >= 500:
		return agent.ClassOverloaded
	}
	if text == "" {
		return agent.ClassOther
	}
	for _, c := range classes {
		for _, w := range c.words {
			if strings.Contains(lower, w) {
				return c.class
			}
		}
	}
	if strings.HasPrefix(lower, "model:") {
		return agent.ClassModel
	}
	return agent.ClassOther
}
