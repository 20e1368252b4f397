package strict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

type spec struct {
	Argv   []string          `json:"argv"`
	Env    map[string]string `json:"env"`
	Since  time.Time         `json:"since"`
	Raw    json.RawMessage   `json:"raw"`
	Bytes  []byte            `json:"bytes"`
	Limits *struct {
		Pids int `json:"pids"`
	} `json:"limits"`
}

func TestKeysFit(t *testing.T) {
	for in, want := range map[string]bool{
		`{}`: true, `null`: true, ` { "argv" : [ "a" , "\"" ] , "env" : { "A" : "1" } } `: true,
		`{"raw":{"any":[1,-2.5E+3,true,{"x":null}]},"limits":{"pids":1},"bytes":"aGk=","since":"x"}`: true,
		`{"limits":null,"raw":[],"argv":[]}`:   true,
		`{"argv":[],"argv":[]}`:                false,
		`{"env":{"A":"1","A":"2"}}`:            false,
		`{"\u0061rgv":[]}`:                     false,
		`{"Argv":[]}`:                          false,
		`{"limits":{"x":1}}`:                   false,
		`{"argv":[]} 1`:                        false,
		`{"argv":[]`:                           false,
		`{"argv" []}`:                          false,
		`{"env":{"é":"1"}}`:                    false, // the walker takes it
		`{"raw":` + strings.Repeat("[", 1<<20): false,
		`{"env":{` + strings.Repeat(`"A":"1",`, 70) + `"":""`: false,
	} {
		if got := keysFit([]byte(in), reflect.TypeFor[spec]()); got != want {
			t.Errorf("%.80s: %v", in, got)
		}
	}
}

// FuzzKeysFit checks that the walker takes what the quick look takes.
func FuzzKeysFit(f *testing.F) {
	f.Add([]byte(`{"argv":["a"],"env":{"A":"1"},"limits":{"pids":1},"raw":{"x":[{}]}}`))
	f.Add([]byte(`{"argv":["a"],"env":{"A":"1","A":"2"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) || !keysFit(b, reflect.TypeFor[spec]()) {
			return
		}
		w := walker{dec: json.NewDecoder(bytes.NewReader(b)), what: "spec"}
		if err := w.value(reflect.TypeFor[spec](), ""); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	})
}

func BenchmarkUnmarshal(b *testing.B) {
	in := []byte(`{"argv":["sh","-c","true"],"env":{"PATH":"/usr/local/bin:/usr/bin:/bin","HOME":"/root","LANG":"C"},"limits":{"pids":5}}`)
	b.ReportAllocs()
	for b.Loop() {
		var s spec
		if err := Unmarshal(in, &s, "spec"); err != nil {
			b.Fatal(err)
		}
	}
}
