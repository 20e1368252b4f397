package httpapi

import (
	"fmt"
	"net/http"

	"github.com/spool-run/spool"
)

// NodeList is the nodes of a cluster.
type NodeList struct {
	Nodes []spool.Node `json:"nodes"`
}

func (c *call) listNodes() error {
	if c.server.nodes == nil {
		return fmt.Errorf("list the nodes: %w: this server is no node of a cluster", spool.ErrUnsupported)
	}
	return c.reply(http.StatusOK, NodeList{c.server.nodes()})
}
