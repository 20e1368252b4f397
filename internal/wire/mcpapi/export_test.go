package mcpapi

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Connect serves a client behind a transport of the SDK.
func (s *Server) Connect(ctx context.Context, t mcp.Transport) (*mcp.ServerSession, error) {
	return s.mcp.Connect(ctx, t, nil)
}

// Limits of images, for tests.
const (
	MaxImageEdge  = maxImageEdge
	MaxImageBytes = maxImageBytes
	MaxResource   = maxResource
	MaxBody       = maxBody
)

// Shrink is shrink.
var Shrink = shrink

// MaxSubscriptions is how many resources clients listen to.
const MaxSubscriptions = maxSubscriptions
