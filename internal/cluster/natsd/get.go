package natsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spool-run/spool/internal/cluster"
)

// codeNoMessage says that a subject has no message, and codeNoStream that there is no
// stream for it.
const (
	codeNoMessage = 10037
	codeNoStream  = 10059
)

var errNoStream = errors.New("the store has no such stream")

// getAnswer is what the leader of a stream says of a message.
type getAnswer struct {
	Error *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Message *struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Data    []byte `json:"data"`
	} `json:"message"`
}

// decodeGet reads the answer to a request for a fact.
func decodeGet(b []byte) (cluster.Fact, error) {
	var a getAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return cluster.Fact{}, err
	}
	switch {
	case a.Error != nil && a.Error.Code == codeNoMessage:
		return cluster.Fact{}, cluster.ErrNoFact
	case a.Error != nil && a.Error.Code == codeNoStream:
		return cluster.Fact{}, errNoStream
	case a.Error != nil:
		return cluster.Fact{}, fmt.Errorf("%s (%d)", a.Error.Description, a.Error.Code)
	case a.Message == nil:
		return cluster.Fact{}, fmt.Errorf("the store answered without a message")
	}
	return cluster.Fact{Key: strings.TrimPrefix(a.Message.Subject, subjects), Rev: a.Message.Seq, Data: a.Message.Data}, nil
}
