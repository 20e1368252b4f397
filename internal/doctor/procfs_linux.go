package doctor

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process is a process of this user.
type process struct {
	pid  int
	args []string
	cwd  string // empty if it cannot be read
}

func (p process) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.pid), name)
}

// processes returns the processes of this user.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var list []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p := process{pid: pid}
		fi, err := os.Stat(p.file(""))
		if err != nil {
			continue // it ended
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			list = append(list, p)
		}
	}
	return list, nil
}

// spoolProcesses returns the processes of this user that execute spool: this
// program, or one with its name.
func spoolProcesses() ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	var list []process
	for _, p := range all {
		exe, err := os.Readlink(p.file("exe"))
		if err != nil || p.pid == os.Getpid() {
			continue
		}
		if fi, err := os.Stat(p.file("exe")); strings.TrimSuffix(filepath.Base(exe), " (deleted)") != "spool" && (err != nil || !os.SameFile(fi, own)) {
			continue
		}
		line, err := os.ReadFile(p.file("cmdline"))
		if err != nil {
			continue
		}
		p.args = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		p.cwd, _ = os.Readlink(p.file("cwd"))
		list = append(list, p)
	}
	return list, nil
}

// links returns the targets of the descriptors of a process.
func (p process) links() []string {
	entries, err := os.ReadDir(p.file("fd"))
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(p.file("fd"), e.Name())); err == nil {
			list = append(list, target)
		}
	}
	return list
}

// sockets returns the inodes of the sockets of a process.
func (p process) sockets() map[string]bool {
	inodes := make(map[string]bool)
	for _, target := range p.links() {
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

// unixListeners returns the paths of the unix sockets on which spool processes of
// this user listen.
func unixListeners() ([]string, error) {
	list, err := spoolProcesses()
	if err != nil {
		return nil, err
	}
	const accepts = "00010000" // the flag of a listening socket
	var found []string
	for _, p := range list {
		sockets := p.sockets()
		table, err := os.ReadFile(p.file("net/unix"))
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) >= 8 && f[3] == accepts && sockets[f[6]] && filepath.IsAbs(f[7]) {
				found = append(found, f[7])
			}
		}
	}
	return found, nil
}

// listeners returns the TCP sockets on which spool processes of this user listen.
func listeners() ([]listener, error) {
	list, err := spoolProcesses()
	if err != nil {
		return nil, err
	}
	var found []listener
	for _, p := range list {
		sockets := p.sockets()
		for _, name := range []string{"net/tcp", "net/tcp6"} { // of the process's own network
			table, err := os.ReadFile(p.file(name))
			if err != nil {
				continue
			}
			for address, inode := range listening(table) {
				if sockets[inode] {
					found = append(found, listener{p, address})
				}
			}
		}
	}
	return found, nil
}

// listening returns the inodes of the listening sockets in a table of the
// kernel, by address.
func listening(table []byte) map[netip.AddrPort]string {
	const stateListen = "0A"
	found := make(map[netip.AddrPort]string)
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		if address, err := parseAddress(f[1]); err == nil {
			found[address] = f[9]
		}
	}
	return found
}

// parseAddress reads an address such as 0100007F:1F90: words of 32 bits in the
// order of the machine, and a port.
func parseAddress(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", text, err)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	address, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address %q", text)
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(n)), nil
}

// liveOwners returns a function that reports whether the keeper of a name is
// alive: a process of this user has its file open, or the name begins with the
// number of a live process.
func liveOwners() (func(owner string) bool, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	open := make(map[string]bool)
	pids := make(map[string]bool)
	for _, p := range all {
		pids[strconv.Itoa(p.pid)] = true
		for _, target := range p.links() {
			target = strings.TrimSuffix(target, " (deleted)")
			if filepath.Base(filepath.Dir(target)) == "hosts" {
				open[strings.TrimSuffix(filepath.Base(target), ".json")] = true
			}
		}
	}
	return func(owner string) bool {
		pid, _, dashed := strings.Cut(owner, "-")
		return open[owner] || dashed && pids[pid]
	}, nil
}
