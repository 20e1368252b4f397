package isolate

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoOverlay means that this machine has no overlays, or none of a directory.
var ErrNoOverlay = errors.New("workspace_unavailable")

// overlay makes an overlay what is writable in place of its base.
func (p *Policy) overlay(o *Overlay) error {
	if p.Profile == ReadOnly {
		return fmt.Errorf("profile %s leaves nothing to change in a workspace: use profile %s", p.Profile, WorkspaceWrite)
	}
	for _, path := range p.Writable {
		if path != o.Base && Below(o.Base, path) {
			return fmt.Errorf("the writable path %s is in the workspace, which is writable", path)
		}
	}
	if !slices.Contains(p.Writable, o.Base) {
		p.Writable = append(p.Writable, o.Base)
		slices.Sort(p.Writable)
	}
	p.Overlay = o
	return nil
}
