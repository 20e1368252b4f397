package python_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

func TestDisplayJSON(t *testing.T) {
	d := python.Display{
		Bundle: map[string]json.RawMessage{
			"text/plain": json.RawMessage(`"<Figure>"`),
			"image/png":  json.RawMessage(`{"blob":"sha256:00","size_bytes":3}`),
		},
		Metadata: map[string]json.RawMessage{"image/png": json.RawMessage(`{"width":10}`)},
		ID:       "plot", Update: true, Count: 4,
	}
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"execution_count":4,"id":"plot","image/png":{"blob":"sha256:00","size_bytes":3},"metadata":{"image/png":{"width":10}},"text/plain":"<Figure>","update":true}`
	var members map[string]any
	if err := json.Unmarshal(b, &members); err != nil {
		t.Fatal(err)
	}
	var wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, members); diff != "" {
		t.Error(diff)
	}
	var back python.Display
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	back.Bundle["text/plain"] = d.Bundle["text/plain"] // < may be escaped
	if diff := cmp.Diff(d, back); diff != "" {
		t.Error(diff)
	}
}

func TestDisplayIgnoresUnknownMembers(t *testing.T) {
	var d python.Display
	if err := json.Unmarshal([]byte(`{"text/plain":"a","colour":"red"}`), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Bundle) != 1 || string(d.Bundle["text/plain"]) != `"a"` {
		t.Errorf("bundle %v", d.Bundle)
	}
}

func TestDisplayRefusesMemberThatIsNoType(t *testing.T) {
	_, err := json.Marshal(python.Display{Bundle: map[string]json.RawMessage{"id": json.RawMessage(`"a"`)}})
	if !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}
