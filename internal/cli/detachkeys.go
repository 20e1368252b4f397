package cli

import (
	"bytes"
	"strings"
)

// keySequence is a flag for keys that are typed one after the other:
// ctrl-p,ctrl-q. None has no keys.
type keySequence []byte

// defaultDetachKeys are the keys of docker.
var defaultDetachKeys = keySequence{ctrl('p'), ctrl('q')}

func ctrl(letter byte) byte { return letter & 0x1f }

// Set implements [pflag.Value].
func (k *keySequence) Set(text string) error {
	*k = nil
	if text == "none" {
		return nil
	}
	var keys keySequence
	for key := range strings.SplitSeq(text, ",") {
		letter, isCtrl := strings.CutPrefix(strings.ToLower(key), "ctrl-")
		switch {
		case isCtrl && len(letter) == 1 && (letter[0] >= 'a' && letter[0] <= 'z' || strings.IndexByte(`@[\]^_`, letter[0]) >= 0):
			keys = append(keys, ctrl(letter[0]))
		case len(key) == 1 && key[0] > ' ' && key[0] < 0x7f:
			keys = append(keys, key[0])
		default:
			return usageErrorf("%q is not a key: use a character or ctrl- and a letter, separated by commas, or none", key)
		}
	}
	*k = keys
	return nil
}

// String implements [pflag.Value].
func (k *keySequence) String() string {
	return strings.ToLower(strings.ReplaceAll(k.text(","), "Ctrl", "ctrl"))
}

// Type implements [pflag.Value].
func (k *keySequence) Type() string { return "keys" }

// text names the keys for a person: Ctrl-P Ctrl-Q.
func (k *keySequence) text(separator string) string {
	if len(*k) == 0 {
		return "none"
	}
	var names []string
	for _, c := range *k {
		if c < ' ' {
			names = append(names, "Ctrl-"+string(rune(c|0x40)))
		} else {
			names = append(names, string(rune(c)))
		}
	}
	return strings.Join(names, separator)
}

// keyFilter finds a sequence of keys in typed input.
type keyFilter struct {
	keys keySequence
	held []byte // the beginning of the sequence, which was typed
}

// filter returns the bytes to send, and whether the keys were typed. It holds
// the beginning of the sequence back until the next key.
func (f *keyFilter) filter(b []byte) (pass []byte, typed bool) {
	if len(f.keys) == 0 {
		return b, false
	}
	for _, c := range b {
		f.held = append(f.held, c)
		for !bytes.HasPrefix(f.keys, f.held) {
			pass, f.held = append(pass, f.held[0]), f.held[1:]
		}
		if len(f.held) == len(f.keys) {
			f.held = nil
			return pass, true
		}
	}
	return pass, false
}
