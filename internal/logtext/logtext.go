// Package logtext makes text as programs log it, for tests and benchmarks: the output of
// builds and tests, access logs in JSON, and the messages of servers, with the times,
// numbers and identifiers that make such text hard to compress and to index.
package logtext

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Source makes lines. The same seed makes the same lines.
type Source struct {
	r    *rand.Rand
	now  time.Time
	done int
}

// New returns a source.
func New(seed uint64) *Source {
	return &Source{r: rand.New(rand.NewPCG(seed, 0x10c)), now: time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)}
}

// Append appends lines to dst until it has at least size bytes more. A stretch of lines
// comes from one kind of program, as in a real log.
func (s *Source) Append(dst []byte, size int) []byte {
	for end := len(dst) + size; len(dst) < end; {
		kind := programs[s.r.IntN(len(programs))]
		for range 5 + s.r.IntN(60) {
			s.now = s.now.Add(time.Duration(s.r.IntN(40_000)) * time.Microsecond)
			s.done++
			dst = append(kind(s, dst), '\n')
		}
	}
	return dst
}

var programs = []func(*Source, []byte) []byte{
	(*Source).compiler, (*Source).compiler, (*Source).compiler, (*Source).compiler, (*Source).tests, (*Source).tests, (*Source).tests,
	(*Source).server, (*Source).server, (*Source).access, (*Source).download, (*Source).trace,
}

// often returns one of these. The first are much more frequent than the last.
func (s *Source) often(from []string) string {
	return from[s.r.IntN(1+s.r.IntN(1+s.r.IntN(len(from))))]
}

// name returns an identifier of a program, and path that of a file: of these it has as
// many as a project has.
func (s *Source) name() string { return s.often(verbs) + "_" + s.often(nouns) }

func (s *Source) path() string {
	n := s.r.IntN(1 + s.r.IntN(1+s.r.IntN(3000)))
	return nouns[n%17] + "/" + verbs[n/7%len(verbs)] + "_" + nouns[n%len(nouns)]
}

// next returns the file that a build or a test comes to next.
func (s *Source) next() string {
	n := s.done % 3000
	return nouns[n/180] + "/" + verbs[n/7%len(verbs)] + "_" + nouns[n*7%len(nouns)]
}

func (s *Source) access(dst []byte) []byte {
	return fmt.Appendf(dst, `{"time":"%s","level":"%s","msg":"request served","method":"%s","path":"/api/v1/%s/%d","status":%s,"duration_ms":%d,"trace":"%08x"}`,
		s.now.Format("2006-01-02T15:04:05.000Z"), s.often(levels), s.often(methods), s.often(nouns), s.r.IntN(1000), s.often(statuses), s.r.IntN(1+s.r.IntN(300)), s.r.Uint32())
}

func (s *Source) server(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%s %-5s [worker-%d] ", s.now.Format("2006-01-02T15:04:05.000Z"), strings.ToUpper(s.often(levels)), s.r.IntN(8))
	switch s.r.IntN(4) {
	case 0:
		return fmt.Appendf(dst, "%s: %s of %s took %d ms", s.name(), s.often(verbs), s.often(nouns), s.r.IntN(1+s.r.IntN(200)))
	case 1:
		return fmt.Appendf(dst, "cache miss key=%s:%d, loading from replica %d", s.often(nouns), s.r.IntN(1+s.r.IntN(10_000)), s.r.IntN(3))
	case 2:
		return fmt.Appendf(dst, "session %08x: %s accepted, %d pending", s.r.Uint32(), s.name(), s.r.IntN(1+s.r.IntN(30)))
	}
	return fmt.Appendf(dst, "job %d finished: %d %ss, next run in 15 minutes", s.done, s.r.IntN(1+s.r.IntN(500)), s.often(nouns))
}

func (s *Source) compiler(dst []byte) []byte {
	file := s.next()
	switch s.r.IntN(20) {
	case 0:
		return fmt.Appendf(dst, "src/%s.c:%d:%d: warning: unused variable '%s' [-Wunused-variable]", file, s.r.IntN(3000), s.r.IntN(90), s.name())
	case 1, 2, 3:
		return fmt.Appendf(dst, "[%4d/3000] Building C object src/CMakeFiles/core.dir/%s.c.o", s.done%3000, file)
	}
	return fmt.Appendf(dst, "gcc -c -fno-strict-overflow -fstack-protector-strong -Wsign-compare -DNDEBUG -g -O3 -Wall -std=c11 -Wextra -Wno-unused-parameter -fvisibility=hidden -I./include/internal -I. -I./include -DCORE_BUILD -o build/%s.o src/%s.c", file, file)
}

func (s *Source) tests(dst []byte) []byte {
	return fmt.Appendf(dst, "tests/%s.py::Test%s::test_%s %s [%3d%%]", s.next(), strings.ToUpper(nouns[s.done/9%40][:1])+nouns[s.done/9%40][1:], s.name(), s.often(results), s.done%3000/30)
}

func (s *Source) download(dst []byte) []byte {
	if s.r.IntN(5) == 0 {
		return fmt.Appendf(dst, "Downloading %s-%s-%d.%d.%d-py3-none-any.whl (%d kB) sha256:%016x%016x", s.often(nouns), s.often(verbs), s.r.IntN(3), s.r.IntN(40), s.r.IntN(20), s.r.IntN(900), s.r.Uint64(), s.r.Uint64())
	}
	return fmt.Appendf(dst, "Requirement already satisfied: %s in /usr/lib/python3/dist-packages (from %s==%d.%d)", s.often(nouns), s.often(nouns), s.r.IntN(3), s.r.IntN(20))
}

func (s *Source) trace(dst []byte) []byte {
	if s.r.IntN(9) == 0 {
		return fmt.Appendf(dst, "ValueError: %s %q is not valid for %s", s.often(nouns), s.name(), s.often(nouns))
	}
	file := s.path()
	return fmt.Appendf(dst, "  File \"/usr/lib/python3/dist-packages/%s.py\", line %d, in %s\n    return self.%s(%s)", file, len(file)*37, file[strings.IndexByte(file, '/')+1:], s.name(), s.often(nouns))
}

var (
	levels   = []string{"info", "info", "info", "info", "info", "info", "debug", "debug", "warn", "error"}
	methods  = []string{"GET", "GET", "GET", "GET", "POST", "PUT", "DELETE"}
	statuses = []string{"200", "200", "200", "200", "201", "204", "304", "400", "404", "500"}
	results  = []string{"PASSED", "PASSED", "PASSED", "PASSED", "PASSED", "SKIPPED", "FAILED"}

	verbs = strings.Fields(`get set load read write open close find parse check build update create remove send
		receive encode decode merge split start stop flush sync lock copy move hash sign verify render resolve
		register dispatch schedule retry cancel commit rollback publish subscribe validate normalize compress`)
	nouns = strings.Fields(`user order session item account request response message record event token config
		index cache queue batch block buffer channel client cluster column command context cursor database
		device digest document domain driver endpoint engine entry error exception export field file filter
		format frame gateway graph group handler header history host image import input instance interval
		invoice job journal kernel key label layer layout ledger library limit line link list listener lock
		log machine manager manifest map matrix member memory metric migration mirror model module monitor
		mutex name network node notice number object offset operator option origin output owner package page
		parameter parser partition password patch path payload payment peer permission pipeline plan plugin
		policy pool port prefix price process product profile project property protocol provider proxy query
		quota range rate reader reason receipt region registry relation release remote replica report
		repository resource result retry role route row rule runtime sample schedule schema scope script
		search secret section segment sequence series server service shard signal signature size slot snapshot
		socket source space stack stage state status step storage store stream string subject summary
		suffix symbol system table tag target task template tenant text thread threshold ticket timeout
		timer topic total trace track traffic transaction transfer tree trigger tuple type unit upload
		usage value variable vector vendor version view volume wallet warning watcher window worker writer zone`)
)
