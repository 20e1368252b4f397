package kernel

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/python"
)

// display makes a display of a message: bytes and long texts become blobs
// where there is a place for them.
func display(m dict, out engine.Sink) (python.Display, error) {
	d := python.Display{ID: text(m, "d"), Update: flag(m, "u"), Count: int(number(m, "n"))}
	bundle, _ := m["b"].(dict)
	d.Bundle = make(map[string]json.RawMessage, len(bundle))
	var errs []error
	for mime, v := range bundle {
		if !strings.Contains(mime, "/") {
			continue
		}
		raw, err := encodeForm(mime, v, out)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", mime, err))
			continue
		}
		d.Bundle[mime] = raw
	}
	meta, _ := m["m"].(dict)
	for mime, v := range meta {
		if d.Metadata == nil {
			d.Metadata = make(map[string]json.RawMessage, len(meta))
		}
		d.Metadata[mime] = encode(jsonValue(v))
	}
	return d, errors.Join(errs...)
}

// encodeForm makes one form of a bundle.
func encodeForm(mime string, v any, out engine.Sink) (json.RawMessage, error) {
	switch {
	case isJSON(mime):
		raw, err := json.Marshal(jsonValue(v))
		if err != nil {
			return nil, err
		}
		if len(raw) > InlineBytes || looksLikeBlob(v) {
			return blob(mime, raw, raw, out)
		}
		return raw, nil
	case strings.HasPrefix(mime, "image/") && mime != "image/svg+xml":
		b, ok := v.([]byte)
		if s, isText := v.(string); isText {
			var err error
			if b, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), "")); err != nil {
				return nil, fmt.Errorf("an image is neither bytes nor base64: %w", err)
			}
			ok = true
		}
		if !ok {
			return nil, fmt.Errorf("an image is a %T", v)
		}
		return blob(mime, b, encode(base64.StdEncoding.EncodeToString(b)), out)
	}
	switch v := v.(type) {
	case string:
		if len(v) > InlineBytes {
			return blob(mime, []byte(v), encode(v), out)
		}
		return encode(v), nil
	case []byte:
		if len(v) > InlineBytes {
			return blob(mime, v, encode(base64.StdEncoding.EncodeToString(v)), out)
		}
		return encode(base64.StdEncoding.EncodeToString(v)), nil
	}
	return encode(fmt.Sprint(v)), nil
}

func isJSON(mime string) bool {
	return mime == "application/json" || strings.HasSuffix(mime, "+json")
}

// blob puts a value beside the log, or into it if there is no such place.
func blob(mime string, b []byte, inline json.RawMessage, out engine.Sink) (json.RawMessage, error) {
	stored, err := out.PutBlob(mime, bytes.NewReader(b))
	if err == nil {
		return encode(stored), nil
	}
	if !errors.Is(err, spool.ErrUnsupported) {
		return nil, err
	}
	if len(inline) > spool.MaxEventBytes/2 {
		return nil, fmt.Errorf("%d bytes are too many for the log: %w", len(b), err)
	}
	return inline, nil
}

// looksLikeBlob reports whether JSON could be taken for a blob.
func looksLikeBlob(v any) bool {
	m, ok := v.(dict)
	if !ok {
		return false
	}
	_, ok = m["blob"]
	return ok
}

// jsonValue makes a value that encodes as JSON: what is no number there is
// null, and what is too large for one is a string.
func jsonValue(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case *big.Int:
		return v.String()
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = jsonValue(e)
		}
		return list
	case dict:
		m := make(dict, len(v))
		for k, e := range v {
			m[k] = jsonValue(e)
		}
		return m
	}
	return v
}

// encode encodes what always does.
func encode(data any) json.RawMessage {
	b, err := json.Marshal(data)
	if err != nil { // plain structs always encode
		return nil
	}
	return b
}
