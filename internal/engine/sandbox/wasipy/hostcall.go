package wasipy

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/tetratelabs/wazero/api"
)

// hostCall is a function that the guest imports. Params and results are
// letters: i is an i32, I an i64.
type hostCall struct {
	name    string
	params  string
	results string
	do      func(g *guestCall) uint64
}

// guestCall is one call of the guest: its instance and its arguments.
type guestCall struct {
	*instance
	args []uint64
	mem  []byte
}

// callContext leads from a call of the guest to its instance.
type callContext struct {
	context.Context
	instance *instance
}

func (c hostCall) function() api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, stack []uint64) {
		i := ctx.(*callContext).instance
		g := &i.scratch
		g.instance, g.args = i, stack
		g.mem, _ = m.Memory().Read(0, m.Memory().Size())
		r := c.do(g)
		if c.results != "" {
			stack[0] = r
		}
	}
}

// u32 is an argument.
func (g *guestCall) u32(n int) uint32 { return uint32(g.args[n]) }

// bytes is a piece of the guest's memory, or nil if it is not.
func (g *guestCall) bytes(at, n uint32) []byte {
	if uint64(at)+uint64(n) > uint64(len(g.mem)) {
		return nil
	}
	return g.mem[at : uint64(at)+uint64(n) : uint64(at)+uint64(n)]
}

// text is a string of the guest whose address and size are two arguments.
func (g *guestCall) text(n int) (string, bool) {
	b := g.bytes(g.u32(n), g.u32(n+1))
	return string(b), b != nil
}

// put32 and put64 give the guest a number at an address.
func (g *guestCall) put32(at uint32, v uint32) bool {
	b := g.bytes(at, 4)
	if b != nil {
		binary.LittleEndian.PutUint32(b, v)
	}
	return b != nil
}

func (g *guestCall) put64(at uint32, v uint64) bool {
	b := g.bytes(at, 8)
	if b != nil {
		binary.LittleEndian.PutUint64(b, v)
	}
	return b != nil
}

func (g *guestCall) get32(at uint32) uint32 {
	if b := g.bytes(at, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// errno makes of an error what WASI returns.
func errno(err error) uint64 { return uint64(vfs.ErrnoOf(err)) }

// wrote is the end of a call that gave its result to the guest's memory.
func wrote(ok bool) uint64 {
	if !ok {
		return uint64(vfs.EFAULT)
	}
	return 0
}

// spoolCalls is the module spool that the guest imports.
var spoolCalls = []hostCall{
	{"tick", "", "i", (*guestCall).tick},
	{"ask", "iiii", "i", (*guestCall).ask},
	{"take", "i", "", (*guestCall).take},
	{"mode", "", "i", func(g *guestCall) uint64 { return uint64(g.lastMode & vfs.PermMask) }},
	{"chmod", "iii", "i", (*guestCall).chmod},
	{"fchmod", "ii", "i", (*guestCall).fchmod},
}

func (g *guestCall) tick() uint64 {
	if g.instance.tick() {
		return 1
	}
	return 0
}

func (g *guestCall) ask() uint64 {
	kind := g.bytes(g.u32(0), g.u32(1))
	payload := g.bytes(g.u32(2), g.u32(3))
	if kind == nil || payload == nil || len(kind) > 256 || len(payload) > guest.MaxAskBytes {
		g.reply = tooLarge
		return uint64(len(g.reply))
	}
	g.flush()
	if g.exceptionIsDue() {
		g.reply = wasInterrupted
		return uint64(len(g.reply))
	}
	began := g.now()
	reply, err := g.link.Ask(string(kind), payload)
	g.waited += g.now() - began
	g.heed(err)
	if errors.Is(err, errInterrupt) {
		g.raise()
		reply = wasInterrupted
	}
	if len(reply) > guest.MaxAnswerBytes {
		reply = tooLarge
	}
	g.reply = reply
	return uint64(len(reply))
}

func (g *guestCall) take() uint64 {
	copy(g.bytes(g.u32(0), uint32(len(g.reply))), g.reply)
	g.reply = nil
	return 0
}

func (g *guestCall) chmod() uint64 {
	path, ok := g.text(0)
	if !ok {
		return uint64(vfs.EFAULT)
	}
	return errno(g.fs.Chmod(path, vfs.Mode(g.u32(2))&vfs.PermMask))
}

func (g *guestCall) fchmod() uint64 {
	d, err := g.files.get(g.u32(0))
	if err != nil {
		return errno(err)
	}
	if d.path == "" {
		return uint64(vfs.EINVAL)
	}
	return errno(g.fs.Chmod(d.path, vfs.Mode(g.u32(1))&vfs.PermMask))
}
