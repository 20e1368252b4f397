package kernel

import (
	"bytes"
	"math"
	"math/big"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is written here Python reads, and what Python writes is read here.
func TestMarshalAgreesWithPython(t *testing.T) {
	python := testPython(t)
	want := dict{
		"none": nil, "yes": true, "no": false, "int": int64(-5), "long": int64(1) << 40, "negative": -int64(1) << 50,
		"text": "ünï\x00\U0001F600", "bytes": []byte{0, 255}, "list": []any{int64(1), "two", nil}, "dict": dict{"deep": dict{}},
		"max": int64(math.MaxInt64), "min": int64(math.MinInt64),
	}
	cmd := exec.Command(python, "-c", "import sys, marshal; sys.stdout.buffer.write(marshal.dumps(marshal.loads(sys.stdin.buffer.read()), 2))")
	cmd.Stdin = bytes.NewReader(appendValue(nil, want))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeValue(out)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(any(want), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	out, err = exec.Command(python, "-c", `import sys, marshal
sys.stdout.buffer.write(marshal.dumps({"f": 1.5, "t": (1, 2), "big": 2**70, "lone": "a\ud800b", "nan": float("inf")}, 2))`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err = decodeValue(out); err != nil {
		t.Fatal(err)
	}
	more := dict{
		"f": 1.5, "t": []any{int64(1), int64(2)}, "big": new(big.Int).Lsh(big.NewInt(1), 70), "lone": `a\ud800b`, "nan": math.Inf(1),
	}
	if d := cmp.Diff(any(more), got, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// testPython is the interpreter of tests that need no packages: not a script
// of a version manager, which would only be slow.
func testPython(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("find python3: %v", err)
	}
	return strings.TrimSpace(string(out))
}
