package isolate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spool-run/spool/internal/egress"
)

// secretFile is a header for a host whose value is in a file.
type secretFile struct {
	host, header, file string
}

// parseSecret reads HOST:HEADER=FILE.
func parseSecret(text string) (secretFile, error) {
	at, file, ok := strings.Cut(text, "=")
	i := strings.LastIndexByte(at, ':')
	if !ok || i < 0 || file == "" {
		return secretFile{}, fmt.Errorf("the secret %q is not HOST:HEADER=FILE, such as api.example.org:Authorization=token.txt", text)
	}
	s := secretFile{at[:i], at[i+1:], file}
	_, err := egress.NewSecret(s.host, s.header, "checked later")
	return s, err
}

// read returns the secret.
func (s *secretFile) read() (egress.Secret, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return egress.Secret{}, fmt.Errorf("read the secret %s: %w", s.header, err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return egress.Secret{}, errors.Join(fmt.Errorf("read the secret %s: %s is not a file", s.header, s.file), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, egress.MaxSecret+2))
	if err != nil {
		return egress.Secret{}, fmt.Errorf("read the secret %s: %w", s.header, err)
	}
	return egress.NewSecret(s.host, s.header, strings.TrimRight(string(b), "\r\n"))
}
