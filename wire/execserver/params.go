package execserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spool-run/spool/wire/rpc"
)

// decode reads a method's params into v and checks that the required members
// are there and not null, with the wording that clients of the dialect know.
func decode(params json.RawMessage, v any, required ...string) error {
	params = bytes.TrimSpace(params)
	if len(params) == 0 || bytes.Equal(params, []byte("null")) {
		if len(required) == 0 {
			return nil
		}
		params = []byte("{}")
	}
	if len(required) > 0 {
		var have map[string]json.RawMessage
		if err := json.Unmarshal(params, &have); err != nil {
			return invalidParams(err)
		}
		for _, name := range required {
			if _, ok := have[name]; !ok {
				return rpc.Errorf(rpc.CodeInvalidParams, "missing field `%s`", name)
			}
		}
	}
	if err := json.Unmarshal(params, v); err != nil {
		return invalidParams(err)
	}
	return nil
}

// decodeNone accepts absent, null and empty params only.
func decodeNone(params json.RawMessage) error {
	switch s := strings.Join(strings.Fields(string(params)), ""); s {
	case "", "null", "{}":
		return nil
	}
	return rpc.Errorf(rpc.CodeInvalidParams, "invalid type: map, expected unit")
}

func invalidParams(err error) error {
	var rerr *rpc.Error
	if errors.As(err, &rerr) {
		return rerr
	}
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return rpc.Errorf(rpc.CodeInvalidParams, "invalid type: %s, expected %s for field `%s`", te.Value, te.Type, te.Field)
	}
	return rpc.Errorf(rpc.CodeInvalidParams, "%s", fmt.Sprint(err))
}
