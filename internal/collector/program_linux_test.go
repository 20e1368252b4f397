package collector

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Return takes the pages of the program out of memory, and the program goes on.
func TestReturnDropsTheProgram(t *testing.T) {
	before := programPages(t)
	Return()
	if after := programPages(t); after >= before {
		t.Errorf("%d kB of the program are in memory, and were %d kB", after, before)
	}
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]mapping{
		"00400000-00e22000 r-xp 00000000 fe:00 10813903                           /usr/bin/a program": {from: 0x400000, to: 0xe22000, path: "/usr/bin/a program"},
		"01eb8000-01f42000 rw-p 01ab8000 fe:00 10813903                           /usr/bin/spool":     {from: 0x1eb8000, to: 0x1f42000, writable: true, path: "/usr/bin/spool"},
		"24776b400000-24776b800000 rw-p 00000000 00:00 0 ":                                            {from: 0x24776b400000, to: 0x24776b800000, writable: true},
		"Rss:                7880 kB":            {},
		"VmFlags: rd ex mr mw me sd ":            {},
		"ProtectionKey:         0":               {},
		"02-01 r-xp 00000000 fe:00 1 /usr/bin/x": {},
	} {
		got, ok := parseMapping(line)
		if got != want || ok != (want != mapping{}) {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
}

// programPages is how many kB of the program are in the memory of this process.
func programPages(t *testing.T) int {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var m mapping
	sum := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if next, ok := parseMapping(lines.Text()); ok {
			m = next
		} else if rss, ok := strings.CutPrefix(lines.Text(), "Rss:"); ok && m.path == program && !m.writable {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rss), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	if sum == 0 {
		t.Fatal("no page of the program is in memory")
	}
	return sum
}
