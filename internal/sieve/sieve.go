// Package sieve tells which parts of a finished log cannot hold a text, so that a search
// need not read them.
//
// A log is cut into groups of events. Of each group a sieve keeps a set of the sequences
// of four bytes ("grams") that are in the lines which end in the group, as a bitmap of
// their hashes: a line holds a text only if the group has all grams of the text. Letters
// are lower case in it, so it serves a search that ignores case as well. A line is what a
// search compares: without escape sequences, and whole, whichever events it came in. It
// counts for the group in which it ends, wherever it begins; so that a search can begin
// at a group, the sieve keeps where the lines begin that are open there.
//
// Events that are not output are not in the set, because their text depends on how
// they are shown. If a group has few of them, the sieve keeps their records; a group with
// more is always read.
//
// A sieve can be lost without harm: a search then reads the log.
package sieve

import (
	"context"
	"hash/crc32"

	"github.com/spool-run/spool"
)

const (
	// GroupBytes is [Builder.GroupBytes] unless it is changed.
	GroupBytes = 1 << 20
	// MaxLine is the size of the pieces in which a longer line is searched.
	MaxLine = 1 << 20
	// Gram is the length of the shortest text that a sieve knows of.
	Gram = 4

	// bitsPerGram is the size of a set; about a fifth of its bits are one.
	bitsPerGram = 4
	// maxSetShare bounds a set: one byte for so many of the log.
	maxSetShare = 40
	// maxOthersShare bounds the records that are kept of events which are not
	// output: one byte for so many of the log.
	maxOthersShare = 64

	// version is that of the form and of the meaning of a sieve. It is raised
	// with every change of either, also of [visible.AppendUnstyled]; a sieve of
	// another version is not used.
	version = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Streams are the streams of output, whose lines are apart.
var Streams = [...]spool.Stream{spool.Stdout, spool.Stderr, spool.PTY}

// Position is an event, and an offset in its bytes.
type Position struct {
	Seq    spool.Seq
	Offset int
}

// Place is where in a log a search may begin: at an event, and for a stream with an
// open line where that begins. The seq of other streams is zero.
type Place struct {
	Next spool.Seq
	Open [len(Streams)]Position
}

// Part is a stretch of a log.
type Part struct {
	Begin, End Place // End.Next is the event after it
	Offset     int64 // of its first record in the segment
	Size       int64 // of its records
	// May says that a line which ends in it may match.
	May bool
	// Others are the records of its events that are not output, if no line of
	// output matches. They are valid until the next use of the buffer that the
	// sieve was read into.
	Others []byte
}

// Sifter is a [spool.Backend] that has sieves.
type Sifter interface {
	// Sift returns parts that follow each other, of which the first has the
	// event after the cursor; none if there is no sieve for that event. It
	// may use buf, and returns it for the next call.
	Sift(ctx context.Context, id spool.RunID, after spool.Seq, q *Query, buf []byte) ([]Part, []byte, error)
}
