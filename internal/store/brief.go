package store

import (
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// maxLearned bounds how many terms a list remembers the meaning of. With more, it reads
// more logs.
const maxLearned = 1 << 18

// briefs describes filed runs by what the index has of them. The index has a hash of each
// property, and not the property: the description of the first run with a hash tells what
// it means. So a list reads one log for each engine, outcome and label that it meets, and
// one for each run that the index alone does not tell enough of.
//
// Terms have 64 bits, so that no property of millions is taken for another one. A run has
// one engine, one outcome and one value of each of its labels; where terms say otherwise,
// its log is read.
type briefs struct {
	known map[index.Term]property
}

// property is what a term means.
type property struct {
	kind        propertyKind
	name, value string
}

type propertyKind byte

const (
	propOther     propertyKind = iota // nothing that a brief description has
	propAmbiguous                     // several things
	propEngine
	propOutcome
	propHasLabel
	propLabel
)

// describe describes a run by its entry. It reports false for one whose log must be read.
func (b *briefs) describe(e *index.Entry) (spool.Info, bool) {
	info := spool.Info{
		ID: spool.RunID(e.ID), Name: e.Name, State: spool.StateClosed,
		Created: time.Unix(0, e.Created).UTC(), Ended: time.Unix(0, e.Ended).UTC(),
	}
	if info.ID.Check() != nil || e.NameIsCut() {
		return info, false
	}
	name, labels := index.NewTerm(termName, e.Name), 0
	for _, t := range e.Terms {
		p, ok := b.known[t]
		switch {
		case t == name && !ok:
		case !ok || p.kind == propAmbiguous:
			return info, false
		case p.kind == propEngine:
			if info.Engine != "" {
				return info, false
			}
			info.Engine = p.value
		case p.kind == propOutcome:
			if info.Outcome != nil {
				return info, false
			}
			info.Outcome = &spool.Outcome{Kind: spool.OutcomeKind(p.value)}
		case p.kind == propHasLabel:
			labels++
			if p.name == LabelImported { // it ages from another time on than that of its end
				return info, false
			}
		}
	}
	if info.Engine == "" || info.Outcome == nil {
		return info, false
	}
	if labels == 0 {
		return info, !b.hasValues(e)
	}
	info.Labels = make(map[string]string, labels)
	for _, t := range e.Terms {
		if p := b.known[t]; p.kind == propHasLabel {
			info.Labels[p.name] = ""
		}
	}
	for _, t := range e.Terms {
		if p := b.known[t]; p.kind == propLabel {
			if had, ok := info.Labels[p.name]; !ok || had != "" {
				return info, false
			}
			info.Labels[p.name] = p.value
		}
	}
	return info, len(info.Labels) == labels
}

// hasValues reports whether an entry has values of labels.
func (b *briefs) hasValues(e *index.Entry) bool {
	for _, t := range e.Terms {
		if b.known[t].kind == propLabel {
			return true
		}
	}
	return false
}

// learn learns what the terms of an entry mean from the description of its run.
func (b *briefs) learn(e *index.Entry, r *summary) {
	info := &r.info
	if r.err != nil || len(b.known)+len(e.Terms) > maxLearned {
		return
	}
	if b.known == nil {
		// Only a log tells what is wrong with a run, and of which blobs it is.
		b.known = map[index.Term]property{index.NewTerm(termManyBlobs): {kind: propAmbiguous}}
	}
	b.add(index.NewTerm(termEngine, info.Engine), property{kind: propEngine, value: info.Engine})
	if info.Outcome != nil {
		kind := string(info.Outcome.Kind)
		b.add(index.NewTerm(termOutcome, kind), property{kind: propOutcome, value: kind})
	}
	for name, value := range info.Labels {
		b.add(labelTerm(name, ""), property{kind: propHasLabel, name: name})
		if value != "" {
			b.add(labelTerm(name, value), property{kind: propLabel, name: name, value: value})
		}
	}
	name := index.NewTerm(termName, info.Name)
	for _, t := range e.Terms { // blobs, and what changed since
		if _, ok := b.known[t]; !ok && t != name {
			b.known[t] = property{}
		}
	}
}

// add adds what a term means.
func (b *briefs) add(t index.Term, p property) {
	if had, ok := b.known[t]; ok && had != p {
		p = property{kind: propAmbiguous}
	}
	b.known[t] = p
}
