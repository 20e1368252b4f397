package launch

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// A tree that works is measured with all its processes.
func TestMeasure(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sleep 60 & i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo ready; read x`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("pkill", "-P", strconv.Itoa(cmd.Process.Pid)).Run()
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	const gone = 1 << 30 // no pid
	used, err := Measure([]int{cmd.Process.Pid, gone})
	if err != nil {
		t.Fatal(err)
	}
	u, ok := used[cmd.Process.Pid]
	if !ok || u.Processes != 2 || u.Memory < int64(os.Getpagesize()) || u.CPU < 10*time.Millisecond || u.Source != SourceProc {
		t.Errorf("used %+v", u)
	}
	if u, ok := used[gone]; ok {
		t.Errorf("a process that is not there uses %+v", u)
	}
}
