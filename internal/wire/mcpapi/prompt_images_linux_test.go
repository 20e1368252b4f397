package mcpapi_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/wire/mcpapi"
	"github.com/spool-run/spool/python"
)

// viewer is an agent that says how many images it was shown.
const viewer = `
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')" "$1"; }
read -r line; answer '{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{"image":true}}}'
read -r line; answer '{"sessionId":"s1"}'
while read -r line; do
	n=$(printf %s "$line" | grep -o '"type":"image"' | wc -l)
	printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d images"}}}}\n' "$n"
	answer '{"stopReason":"end_turn"}'
done`

// TestImagesOfPrompts shows an agent what a cell displayed, by its address, and a picture of a
// data URL.
func TestImagesOfPrompts(t *testing.T) {
	usePython(t)
	state := t.TempDir()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		agent.Engine:        func(owner string) (engine.Engine, error) { return agents.New(agents.Options{Owner: owner, Dir: state}) },
		python.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	run, err := spool.Start(t.Context(), h, agent.Config{Agent: agent.ACP, Command: []string{"sh", "-c", viewer}}.Spec())
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, mcpapi.Options{Backend: h}, versions[0], nil)
	drawn, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "python", Arguments: args{"code": fmt.Sprintf(plot, 1, 20, 10), "images": 0, "wait_ms": 50_000}})
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	for _, content := range drawn.Content {
		if link, ok := content.(*mcp.ResourceLink); ok {
			address = link.URI
		}
	}
	data := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n"))
	v, text := c.call("ask_agent", args{"run": string(run.ID()), "prompt": "look", "images": []string{address, data}})
	if v.State == "" || !strings.Contains(text, "2 images") {
		t.Errorf("%q, shown %q: %s", v.State, address, text)
	}
	for _, tt := range []struct{ address, want string }{
		{"https://example.com/a.png", "neither"},
		{"data:image/png,x", "base64"},
		{"data:image/svg+xml;base64,PHN2Zy8+", "PNG, JPEG, GIF and WebP"},
		{strings.Replace(address, "/forms/", "/form/", 1), "neither"},
		{strings.Replace(address, "image/png", "image/jpeg", 1), "not found"},
	} {
		if text := c.fails("ask_agent", args{"run": string(run.ID()), "prompt": "look", "images": []string{tt.address}}); !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s", tt.address, text)
		}
	}
}
