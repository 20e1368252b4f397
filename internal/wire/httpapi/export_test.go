package httpapi

// SentinelOf returns the error that a problem stands for, if there is one.
func SentinelOf(code string) error { return problemOf(code).sentinel }

// Update reports whether files are written anew.
func Update() bool { return *update }

// Codes returns the codes of all problems.
func Codes() (codes []string) {
	for _, k := range problemKinds {
		codes = append(codes, k.code)
	}
	return codes
}

// Names returns the names of all operations.
func Names() (names []string) {
	for i := range operations() {
		names = append(names, operations()[i].name)
	}
	return names
}

// Operation is a row of the table.
type Operation struct {
	Method, Pattern, Name string
	Body                  bool
	Open                  bool // needs no subject
}

// Operations returns the table.
func Operations() (all []Operation) {
	for i := range operations() {
		op := &operations()[i]
		all = append(all, Operation{op.method, op.pattern, op.name, op.body != nil, op.open})
	}
	return all
}

// ParseAttach decodes a message of an attached client.
func ParseAttach(b []byte) (AttachRequest, error) { return parseAttach(b) }
