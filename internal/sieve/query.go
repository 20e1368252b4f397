package sieve

// Query is what to find: a line that has at least one text of each clause.
type Query struct {
	clauses [][]text
}

// text is one that a line may hold, as its grams.
type text []uint32

// NewQuery returns a query for lines that have at least one text of each clause. It is
// nil if a sieve cannot tell: a clause with a text that is shorter than [Gram] says
// nothing. The texts are compared without case. Those with bytes beyond ASCII must be as
// they are in a line.
func NewQuery(clauses [][]string) *Query {
	q := &Query{}
	for _, texts := range clauses {
		var clause []text
		for _, s := range texts {
			t := gramsOf(s)
			if len(t) == 0 {
				clause = nil
				break
			}
			clause = append(clause, t)
		}
		if len(clause) > 0 {
			q.clauses = append(q.clauses, clause)
		}
	}
	if len(q.clauses) == 0 {
		return nil
	}
	return q
}

// gramsOf returns the grams of a text.
func gramsOf(s string) text {
	var t text
	var gram uint32
	for i := range len(s) {
		gram = gram<<8 | uint32(fold[s[i]])
		if i+1 >= Gram {
			t = append(t, hash(gram))
		}
	}
	return t
}

// may reports whether a line of a group with this set may match.
func (q *Query) may(set []byte) bool {
	for _, clause := range q.clauses {
		found := false
		for _, t := range clause {
			if found = t.in(set); found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func (t text) in(set []byte) bool {
	for _, gram := range t {
		if len(set) == 0 {
			return false
		}
		if b := bit(gram, len(set)); set[b/8]&(1<<(b%8)) == 0 {
			return false
		}
	}
	return true
}
