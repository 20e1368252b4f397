package rpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	tests := []struct {
		in                 string
		id, method, params string
		result             string
		code               int
		err                string // in the error; empty if there is none
	}{
		{in: `{"id":1,"method":"m"}`, id: `1`, method: "m"},
		{in: ` {"params" : [1] ,"method":"\u006d","id":"x","jsonrpc":"2.0"} `, id: `"x"`, method: "m", params: `[1]`},
		{in: `{"method":"m","params":null}`, method: "m", params: `null`},
		{in: `{"method":""}`},
		{in: `{"id":-1,"result":null}`, id: `-1`, result: `null`},
		{in: `{"id":1,"method":"m","result":2}`, id: `1`, method: "m"},
		{in: `{"id":1,"error":{"code":5,"message":"x","data":[]}}`, id: `1`, code: 5},
		{in: ``, err: "EOF"},
		{in: `[]`, err: "expected an object"},
		{in: `{"id":1}`, err: "neither"},
		{in: `{"result":1}`, err: "neither"},
		{in: `{"id":1.0,"method":"m"}`, err: "id must be"},
		{in: `{"id":null,"method":"m"}`, err: "id must be"},
		{in: `{"id":1,"method":"m"}{}`, err: "trailing characters at line 1 column 22"},
		{in: "{\n1", err: "key must be a string at line 2 column 1"},
		{in: `{"a":1,"\u0061":2,"method":"m"}`, err: "duplicate field `a`"},
		{in: `{"method":"m","params":{"x":[{"y":1,"y":1}]}}`, err: "duplicate field `y`"},
		{in: `{"method":"\ud800\u0041"}`, err: "lone surrogate"},
		{in: `{"method":"\ud83d\ude00"}`, method: "😀"},
		{in: "{\"method\":\"\xff\"}", err: "UTF-8"},
		{in: "{\"method\":\"\x01\"}", err: "control character"},
		{in: `{"method":"m","params":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `}`, method: "m", params: strings.Repeat("[", 126) + strings.Repeat("]", 126)},
		{in: `{"method":"m","params":` + strings.Repeat("[", 127) + strings.Repeat("]", 127) + `}`, err: "recursion limit"},
	}
	for _, tt := range tests {
		m, err := Parse([]byte(tt.in))
		if err != nil || tt.err != "" {
			if err == nil || tt.err == "" || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Parse(%.80q): error %v, want %q", tt.in, err, tt.err)
			}
			continue
		}
		code := 0
		if m.Error != nil {
			code = m.Error.Code
		}
		if string(m.ID) != tt.id || m.Method != tt.method || string(m.Params) != tt.params || string(m.Result) != tt.result || code != tt.code {
			t.Errorf("Parse(%.80q) = %+v", tt.in, m)
		}
	}
}

func TestParseManyKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"method":"m"`)
	for i := range 100 {
		b.WriteString(`,"k` + strings.Repeat("x", i) + `":0`)
	}
	if _, err := Parse([]byte(b.String() + "}")); err != nil {
		t.Error(err)
	}
	for _, again := range []string{"method", "kx", "k" + strings.Repeat("x", 50), "k" + strings.Repeat("x", 99)} {
		if _, err := Parse([]byte(b.String() + `,"` + again + `":0}`)); err == nil || !strings.Contains(err.Error(), "duplicate field") {
			t.Errorf("%s twice: %v", again, err)
		}
	}
}

// FuzzParse compares with encoding/json: what Parse accepts it accepts, with
// the same parts, and what Parse refuses as JSON it refuses, or one of our
// stricter rules is broken.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"method":"initialize","params":{"clientName":"x"}}`, `{"id":"a","result":{}}`, `{"id":1,"error":{"code":1,"message":""}}`,
		`{"method":"m","params":[1,-0.5e+7,true,false,null,"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"]}`, `{"a":{"b":1,"b":2}}`, `[`, `{"id":01}`, "\xff", ` {} `,
		`{"method":"\ud800"}`, `{"method":"m","params":[[[[[[]]]]]]}`, `{"a":1,"a":1}`,
	} {
		f.Add([]byte(seed))
	}
	strict := []string{"duplicate field", "UTF-8", "surrogate", "invalid escape", "recursion limit", "values", "id must be", "method must be", "neither", "error object", "expected an object"}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(bytes.Clone(b))
		if err != nil {
			stricter := false
			for _, rule := range strict {
				stricter = stricter || strings.Contains(err.Error(), rule)
			}
			if !stricter && json.Valid(b) {
				t.Fatalf("refused valid JSON %q: %v", b, err)
			}
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(b, &want); err != nil || !utf8.Valid(b) {
			t.Fatalf("accepted %q: %v", b, err)
		}
		if !bytes.Equal(m.ID, want["id"]) || m.Params != nil && !bytes.Equal(m.Params, want["params"]) {
			t.Fatalf("%q was taken apart into %+v", b, m)
		}
		if isResponse := m.Result != nil || m.Error != nil; isResponse == (want["method"] != nil) {
			t.Fatalf("%q was taken for %+v", b, m)
		}
	})
}
