package wasipy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// preload are imported before the image is taken: what scripts use most. What
// is not here is imported from the library when it is needed.
const preload = `
import abc, argparse, array, ast, asyncio, base64, binascii, bisect, calendar, collections, collections.abc
import contextlib, copy, csv, dataclasses, datetime, decimal, enum, errno, fnmatch, fractions, functools, gc
import glob, hashlib, heapq, html, inspect, io, itertools, json, keyword, linecache, locale, logging, math
import numbers, operator, os, pathlib, pickle, platform, posixpath, pprint, queue, random, re, secrets, shutil
import signal, stat, statistics, string, struct, sys, tempfile, textwrap, threading, time, timeit, tokenize
import traceback, types, typing, unicodedata, urllib.parse, uuid, warnings, weakref, zlib, zipfile
import encodings.ascii, encodings.latin_1, encodings.idna
import _sitebuiltins, builtins
builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
builtins.help = _sitebuiltins._Helper()
`

// freeze ends the preparation of an interpreter: nothing that exists by now is
// ever collected, so that no collection writes to the pages it is on.
const freeze = `
import gc, sys, linecache
linecache.clearcache()
sys.modules["_spool_boot"]._count = 0
for name in ("_spool_preload", "_spool_prepare"):
    sys.modules.pop(name, None)
gc.collect()
`

const frozen = "import gc\ngc.freeze()\n"

// exercises are executed before the image is taken, so that the interpreter
// has adapted its own code to what it does each time.
const exercises = 12

func (i *instance) exercise() error {
	for range exercises {
		if err := i.renew(guest.BootConfig{Cwd: "/"}); err != nil {
			return err
		}
		for _, s := range []guest.Script{{Code: "pass"}, {Code: "pass", Cell: true}} {
			if res, err := i.run(s); err != nil || res.ExitCode != 0 {
				return fmt.Errorf("an exercise ended with %+v: %w", res, err)
			}
		}
	}
	i.renewed = false
	return nil
}

// span is a range of memory.
type span struct{ From, To uint64 }

// image is the memory of an interpreter that is initialised and has done
// nothing since. Only what lies between From and To was ever written.
type image struct {
	Size     uint64
	From, To uint64
	Hot      []span // what every script writes to
	file     *os.File
	contents []byte // of the file, mapped
}

// open maps the contents of the file.
func (im *image) open() error {
	m, err := mapFile(im.file)
	if err != nil {
		return err
	}
	if uint64(len(m.bytes)) != im.To-im.From {
		m.close()
		return errors.New("the image does not have the size in its header")
	}
	im.contents = m.bytes
	return nil
}

// Close lets go of the image, not of what is mapped from it elsewhere.
func (im *image) Close() error {
	if im.contents != nil {
		(&mapping{im.contents}).close()
	}
	return im.file.Close()
}

// takeImage initialises an interpreter and returns its memory.
func takeImage(ctx context.Context, m *machine, data []byte) (*image, []byte, error) {
	i, err := m.instantiate(ctx, instanceOptions{memory: maxMemory, files: guest.DefaultOpenFiles})
	if err != nil {
		return nil, nil, err
	}
	defer i.close()
	var said strings.Builder
	i.begin(ctx, &recorder{out: &said}, m.files(vfs.NewTree(vfs.NewMemory(nil))))
	fail := func(step string, err error) (*image, []byte, error) {
		return nil, nil, fmt.Errorf("initialise the interpreter: %s: %w %s", step, err, said.String())
	}
	if !i.memory().Write(0, data) {
		return fail("load", fmt.Errorf("%d bytes of data do not fit", len(data)))
	}
	if _, err := i.call("_initialize"); err != nil {
		return fail("start", err)
	}
	// The hashes of an image are its own: they are drawn here, on this
	// machine, once, because every object that is in the image has one.
	if err := i.mustCall("sb_init", uint64(rand.Uint32())); err != nil {
		return fail("init", err)
	}
	for _, module := range []struct{ name, source string }{
		{"_spool_preload", preload},
		{"spool", guest.Module},
		{"_spool_boot", guest.Boot},
		{"_spool_prepare", "import _spool_boot\n_spool_boot.prepare()\n"},
	} {
		if err := i.callText("sb_module", module.name, module.source); err != nil {
			return fail(module.name, err)
		}
	}
	if err := i.callText("sb_seal", "_spool_boot"); err != nil {
		return fail("seal", err)
	}
	if err := i.exercise(); err != nil {
		return fail("exercise", err)
	}
	for _, last := range []string{freeze, frozen} {
		if last == frozen {
			if _, err := i.call("sb_immortalize"); err != nil {
				return fail("freeze", err)
			}
		}
		if err := i.callText("sb_module", "_spool_freeze", last); err != nil {
			return fail("freeze", err)
		}
	}
	im, contents := capture(i.memory().region[:i.memory().size])
	im.file, err = share("spool-python-image", contents)
	if err != nil {
		return nil, nil, err
	}
	if err := im.open(); err != nil {
		return nil, nil, errors.Join(err, im.Close())
	}
	return im, contents, nil
}

// pageSize is that of the machine, or a multiple: what changes is looked at in
// pieces of this size.
const pageSize = 4096

// stackSize is that of the guest's C stack, which is at the bottom of its
// memory and empty whenever the host holds control.
const stackSize = 8 << 20

// capture finds what of a memory has to be kept, and copies it.
func capture(memory []byte) (*image, []byte) {
	im := &image{Size: uint64(len(memory)), From: stackSize, To: uint64(len(memory))}
	blank := func(at uint64) bool { return string(memory[at:at+pageSize]) == string(zeroPage[:]) }
	for im.From < im.To && blank(im.From) {
		im.From += pageSize
	}
	for im.To > im.From && blank(im.To-pageSize) {
		im.To -= pageSize
	}
	return im, bytes.Clone(memory[im.From:im.To])
}

var zeroPage [pageSize]byte

// page is what the image has at the address of a page.
func (im *image) page(at uint64) []byte {
	if at >= im.From && at < im.To {
		return im.contents[at-im.From : at-im.From+pageSize]
	}
	return zeroPage[:]
}

// changes returns which pages of a memory differ from its image, for those
// pages that are in the image's file or behind it.
func (im *image) changes(memory []byte) []span {
	var spans []span
	for at := uint64(0); at+pageSize <= im.Size; at += pageSize {
		if string(memory[at:at+pageSize]) == string(im.page(at)) {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1].To == at {
			spans[n-1].To += pageSize
		} else {
			spans = append(spans, span{at, at + pageSize})
		}
	}
	return spans
}

// An image in the cache is this header, a checksum of the rest, numbers, the
// spans, and the contents.
const imageMagic = "spool python image 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the form of an image that the cache holds.
func (im *image) encode(contents []byte) []byte {
	b := append([]byte(imageMagic), 0, 0, 0, 0)
	for _, v := range []uint64{im.Size, im.From, im.To, uint64(len(im.Hot))} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, s := range im.Hot {
		b = binary.LittleEndian.AppendUint64(b, s.From)
		b = binary.LittleEndian.AppendUint64(b, s.To)
	}
	b = append(b, contents...)
	rest := b[len(imageMagic):]
	binary.LittleEndian.PutUint32(rest, crc32.Checksum(rest[4:], castagnoli))
	return b
}

// decodeImage is the inverse of encode. It trusts nothing.
func decodeImage(b []byte) (*image, error) {
	bad := fmt.Errorf("the image of the interpreter is damaged")
	if len(b) < len(imageMagic)+4+32 || string(b[:len(imageMagic)]) != imageMagic {
		return nil, bad
	}
	b = b[len(imageMagic):]
	if binary.LittleEndian.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return nil, bad
	}
	b = b[4:]
	word := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
	im := &image{Size: word(0), From: word(1), To: word(2)}
	hot := word(3)
	if hot > 1<<16 || uint64(len(b)) < 32+16*hot {
		return nil, bad
	}
	aligned := (im.Size|im.From|im.To)%pageSize == 0
	if !aligned || im.From > im.To || im.To > im.Size || im.Size > maxMemory || uint64(len(b)) != 32+16*hot+im.To-im.From {
		return nil, bad
	}
	for n := range int(hot) {
		s := span{word(4 + 2*n), word(5 + 2*n)}
		if s.From > s.To || s.To > im.Size || (s.From|s.To)%pageSize != 0 {
			return nil, bad
		}
		im.Hot = append(im.Hot, s)
	}
	var err error
	im.file, err = share("spool-python-image", b[32+16*hot:])
	if err != nil {
		return nil, err
	}
	if err := im.open(); err != nil {
		return nil, errors.Join(err, im.Close())
	}
	return im, nil
}
