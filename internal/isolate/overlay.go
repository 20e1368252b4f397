package isolate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// ErrNoOverlay means that this machine has no overlays, or none of a directory.
var ErrNoOverlay = errors.New("workspace_unavailable")

// OverlayOf returns the overlay that the processes of a run see. It is nil for a run
// without one.
func OverlayOf(spec *spool.Spec, out engine.Sink) *Overlay {
	if spec.Workspace == nil || spec.Workspace.Kind != overlayKind {
		return nil
	}
	o := &Overlay{Base: spec.Workspace.Base}
	if placer, ok := out.(engine.Placer); ok {
		o.Dir = placer.WorkspaceDir()
	}
	return o
}

// overlayKind is the kind of a workspace with an overlay.
const overlayKind = "overlay"

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
