package jupyter

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/zmtp"
)

// protocolVersion is that of the messaging protocol of Jupyter.
const protocolVersion = "5.4"

// Connection is a connection file: where a front end expects the sockets of its kernel.
type Connection struct {
	Transport string `json:"transport"`
	IP        string `json:"ip"`
	Shell     int    `json:"shell_port"`
	IOPub     int    `json:"iopub_port"`
	Stdin     int    `json:"stdin_port"`
	Control   int    `json:"control_port"`
	Heartbeat int    `json:"hb_port"`
	Key       string `json:"key"`
	Scheme    string `json:"signature_scheme"`
}

// ReadConnection reads a connection file.
func ReadConnection(name string) (*Connection, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the connection file: %w", err)
	}
	c := new(Connection)
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("read the connection file %s: %w: %w", name, spool.ErrInvalid, err)
	}
	switch {
	case c.Scheme != "" && c.Scheme != "hmac-sha256":
		return nil, fmt.Errorf("read the connection file %s: %w: the signature scheme %q", name, spool.ErrUnsupported, c.Scheme)
	case c.Transport != "" && c.Transport != "tcp" && c.Transport != "ipc":
		return nil, fmt.Errorf("read the connection file %s: %w: the transport %q", name, spool.ErrUnsupported, c.Transport)
	}
	return c, nil
}

// address is where a socket is bound.
func (c *Connection) address(port int) (network, address string) {
	if c.Transport == "ipc" {
		return "unix", c.IP + "-" + strconv.Itoa(port)
	}
	if c.IP == "*" {
		return "tcp", ":" + strconv.Itoa(port)
	}
	ip := c.IP
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	return "tcp", ip + ":" + strconv.Itoa(port)
}

// header says what a message is.
type header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// message is a request of a front end.
type message struct {
	header  header
	raw     json.RawMessage // the header as it came: the parent of what it causes
	content json.RawMessage
}

// delimiter stands between the identities and the parts of a message.
const delimiter = "<IDS|MSG>"

// codec signs messages, and reads those that are signed.
type codec struct {
	key     []byte
	session string
}

func newCodec(key string) *codec { return &codec{key: []byte(key), session: newID()} }

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (c *codec) sign(parts ...[]byte) []byte {
	if len(c.key) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, c.key)
	for _, p := range parts {
		mac.Write(p)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

var errUnsigned = errors.New("a message with a wrong signature")

// decode reads a request.
func (c *codec) decode(m zmtp.Message) (*message, error) {
	at := 0
	for at < len(m) && string(m[at]) != delimiter {
		at++
	}
	if len(m)-at < 6 {
		return nil, fmt.Errorf("a message of %d frames: %w", len(m), spool.ErrInvalid)
	}
	parts := m[at+1:]
	if !hmac.Equal(parts[0], c.sign(parts[1:5]...)) {
		return nil, errUnsigned
	}
	r := &message{raw: parts[1], content: parts[4]}
	if err := json.Unmarshal(r.raw, &r.header); err != nil {
		return nil, fmt.Errorf("decode the header: %w", err)
	}
	return r, nil
}

// encode makes a message. The parent is a header as it came, or nil.
func (c *codec) encode(kind string, parent json.RawMessage, content any, identities ...[]byte) (zmtp.Message, error) {
	h, err := json.Marshal(header{
		ID: newID(), Session: c.session, Username: "spool", Type: kind, Version: protocolVersion,
		Date: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	})
	if err != nil {
		return nil, err
	}
	if parent == nil {
		parent = json.RawMessage("{}")
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	metadata := []byte("{}")
	return append(identities, []byte(delimiter), c.sign(h, parent, metadata, body), h, parent, metadata, body), nil
}
