package visible

import "bytes"

// AppendUnstyled appends text without terminal escape sequences, as [Unstyled]
// returns it, without allocations: a search does that with every coloured line.
func AppendUnstyled(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, 0x1b)
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		text = text[i+max(1, escapeSize(text[i:])):]
	}
}

// escapeSize returns the length of the escape sequence that b begins with, zero if it
// is cut.
func escapeSize(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '[':
		i := 2 + span(b[2:], '0', '?')
		i += span(b[i:], ' ', '/')
		if i < len(b) && b[i] >= '@' && b[i] <= '~' {
			return i + 1
		}
	case ']':
		i := bytes.IndexAny(b[2:], "\x07\x1b")
		switch {
		case i < 0:
		case b[2+i] == 0x07:
			return 2 + i + 1
		case 2+i+1 < len(b) && b[2+i+1] == '\\':
			return 2 + i + 2
		}
	case 'P', 'X', '^', '_':
		i := bytes.IndexByte(b[2:], 0x1b)
		if i >= 0 && 2+i+1 < len(b) && b[2+i+1] == '\\' {
			return 2 + i + 2
		}
	}
	i := 1 + span(b[1:], ' ', '/')
	if i < len(b) && b[i] >= '0' && b[i] <= '~' {
		return i + 1
	}
	return 0
}

// span returns how many bytes at the beginning of b are in a range.
func span(b []byte, low, high byte) int {
	i := 0
	for i < len(b) && b[i] >= low && b[i] <= high {
		i++
	}
	return i
}
