package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// A token file has at most maxTokens tokens and maxTokenFile bytes.
func TestTokenFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	create(t, path, Token{Name: "first"})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tokens []map[string]any `json:"tokens"`
	}
	if err := json.Unmarshal(b, &file); err != nil || len(file.Tokens) != 1 {
		t.Fatalf("%s: %v", b, err)
	}
	fill := func(n int, pad string) {
		t.Helper()
		tokens := make([]map[string]any, n)
		for i := range tokens {
			tokens[i] = make(map[string]any)
			for k, v := range file.Tokens[0] {
				tokens[i][k] = v
			}
			tokens[i]["id"], tokens[i]["name"] = fmt.Sprintf("%08d", i), fmt.Sprint(i)
		}
		all := map[string]any{}
		if err := json.Unmarshal(b, &all); err != nil {
			t.Fatal(err)
		}
		all["tokens"] = tokens
		out, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(out, pad...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(maxTokens, "")
	if list, err := ListTokens(path); err != nil || len(list) != maxTokens {
		t.Errorf("%d tokens, %v", len(list), err)
	}
	if _, _, err := CreateToken(path, Token{Name: "more"}); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	fill(maxTokens+1, "")
	if _, err := OpenTokens(path); err == nil || !strings.Contains(err.Error(), "more than 1000 tokens") {
		t.Errorf("a file with one more: %v", err)
	}
	fill(1, strings.Repeat(" ", maxTokenFile))
	if _, err := OpenTokens(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
}

func TestSecretFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, make([]byte, maxSecretFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	skew := time.Duration(0)
	_, err := NewBearer(BearerOptions{Mode: ModeSignedBearerToken, SharedSecretFile: path, MaxClockSkew: &skew})
	if err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

func TestLinksOfAPathAreBounded(t *testing.T) {
	dir := t.TempDir()
	target := dir
	for i := range maxLinks + 1 {
		link := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		target = link
	}
	s := Scopes{FilesOf(dir)}
	if err := s.CheckPath(filepath.Join(dir, fmt.Sprint(maxLinks-1))); err != nil {
		t.Errorf("%d links: %v", maxLinks, err)
	}
	if err := s.CheckPath(target); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("one more: %v", err)
	}
}
