package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/skiptest"
)

func openSpares(t *testing.T, n int) *Launcher {
	t.Helper()
	l, err := New(Options{Mode: TreeCgroup, Spares: n})
	if err != nil {
		skiptest.Missing(t, "no control groups here: %v", err)
	}
	return l
}

// A start that finds no free group begins to make groups for the next ones, which have the limit of the last
// start, and closing the launcher removes all of them.
func TestGroupsAreMadeAhead(t *testing.T) {
	l := openSpares(t, 6)
	g := l.groups
	run := func(pids int) *Tree {
		t.Helper()
		c := sh("exec sleep 1000")
		c.Pids = pids
		tree, err := l.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	free := func() int {
		g.ahead.wg.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.free)
	}
	trees := []*Tree{run(100)} // in the group that was made to see whether it works
	if n := free(); n != 0 {
		t.Errorf("%d groups are free after the first start, want none", n)
	}
	trees = append(trees, run(100))
	if n := free(); n != 6 {
		t.Errorf("%d groups are free while two trees live, want 6", n)
	}
	made := g.made
	for range 3 {
		trees = append(trees, run(100))
	}
	if g.made != made {
		t.Errorf("made %d groups while enough were free", g.made-made)
	}
	trees = append(trees, run(100)) // leaves two, fewer than half
	if n := free(); n != 6 {
		t.Errorf("%d groups are free again, want 6", n)
	}
	if l.Guarantees().Pids {
		for _, s := range g.free {
			if b, err := os.ReadFile(g.limitFile(s)); err != nil || strings.TrimSpace(string(b)) != "100" {
				t.Errorf("group %s has the limit %q, %v", s.dir, b, err)
			}
		}
	}
	trees = append(trees, run(50)) // another limit than that of the groups made ahead
	if last := trees[len(trees)-1]; l.Guarantees().Pids {
		if b, err := os.ReadFile(g.limitFile(last.slot)); err != nil || strings.TrimSpace(string(b)) != "50" {
			t.Errorf("the tree has the limit %q, %v", b, err)
		}
	}
	for _, tree := range trees {
		list, err := os.ReadFile(filepath.Join(tree.Group(), "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(list)) != strconv.Itoa(tree.Pid()) {
			t.Errorf("the group of %d has %q, %v", tree.Pid(), list, err)
		}
		if err := tree.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Error(err)
		}
		tree.Release()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{g.tree, g.pids} {
		if dir != "" {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", dir, err)
			}
		}
	}
}

// Closing a launcher waits for a group that is being made.
func TestCloseWhileGroupsAreMade(t *testing.T) {
	for range 5 {
		l := openSpares(t, 8)
		var trees [2]*Tree
		for i := range trees {
			var err error
			if trees[i], err = l.Start(sh("true")); err != nil {
				t.Fatal(err)
			}
		}
		for _, tree := range trees {
			if _, err := tree.Reap(); err != nil {
				t.Error(err)
			}
			tree.Release()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.groups.tree); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", l.groups.tree, err)
		}
	}
}

// The files of a group that is used again and again stay open, however many groups were
// made ahead, or were in use at once.
func TestFilesOfUsedGroupsStayOpen(t *testing.T) {
	l := openSpares(t, 2*maxOpenFree)
	g := l.groups
	run := func(script string) *Tree {
		t.Helper()
		tree, err := l.Start(sh(script))
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	end := func(tree *Tree) {
		t.Helper()
		if _, err := tree.Reap(); err != nil {
			t.Error(err)
		}
		tree.Release()
	}
	for _, atOnce := range []int{2, 3 * maxOpenFree} { // the second finds no free group
		var trees []*Tree
		for range atOnce {
			trees = append(trees, run("exit 0"))
		}
		g.ahead.wg.Wait()
		for _, tree := range trees {
			end(tree)
		}
		for range 3 {
			tree := run("exit 0")
			s := tree.slot
			end(tree)
			if s.files == nil {
				t.Fatalf("after %d runs at once the files of group %s are closed after a run", atOnce, s.dir)
			}
		}
		open := 0
		for _, s := range g.free {
			if s.files != nil {
				open++
			}
		}
		if open != g.ready || open > maxOpenFree || g.busy != 0 {
			t.Errorf("%d free groups are open, %d count as open, and %d as open and in use", open, g.ready, g.busy)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
