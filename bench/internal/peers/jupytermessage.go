package peers

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// request gives the job an id and returns the message that starts its command.
func (j *jupyterJob) request(argv []string) ([]byte, error) {
	j.msg = rand.Text()
	list, err := json.Marshal(argv)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"header":        map[string]any{"msg_id": j.msg, "username": "", "session": j.session, "msg_type": "execute_request", "version": "5.3"},
		"parent_header": map[string]any{}, "metadata": map[string]any{}, "channel": "shell",
		"content": map[string]any{
			"code":   "import subprocess; exit_code = subprocess.run(" + string(list) + ").returncode",
			"silent": false, "store_history": false, "allow_stdin": false, "user_expressions": map[string]string{"code": "exit_code"},
		},
	})
}

// jupyterMessage is a message about a job.
type jupyterMessage struct {
	Type   string `json:"msg_type"`
	Parent struct {
		ID string `json:"msg_id"`
	} `json:"parent_header"`
	Content struct {
		Text        string
		State       string `json:"execution_state"`
		Expressions struct {
			Code struct{ Data map[string]string }
		} `json:"user_expressions"`
	}
}

// exit returns the exit code in the reply to a request.
func (m *jupyterMessage) exit() (exit Exit) {
	_, err := fmt.Sscan(m.Content.Expressions.Code.Data["text/plain"], &exit.Code)
	exit.Known = err == nil
	return exit
}
