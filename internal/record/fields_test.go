package record_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// codec is one encoding of a type: there and back.
type codec[T any] struct {
	name      string
	roundTrip func(T) (T, error)
	// without are the fields that the encoding does not hold, by design.
	without []string
}

var eventCodecs = []codec[spool.Event]{
	{name: "JSON", roundTrip: throughJSON[spool.Event]},
	{name: "record", roundTrip: func(e spool.Event) (spool.Event, error) {
		b, err := record.Append(nil, &e)
		if err != nil {
			return spool.Event{}, err
		}
		got, _, err := record.Decode(b)
		return got, err
	}, without: []string{"Run"}},
	{name: "update", roundTrip: func(e spool.Event) (spool.Event, error) {
		n, err := throughUpdate(record.Update{Info: spool.Info{ID: e.Run}, Events: []spool.Event{e}})
		if err != nil || len(n.Events) != 1 {
			return spool.Event{}, fmt.Errorf("%d events: %w", len(n.Events), err)
		}
		return n.Events[0], nil
	}},
	{name: "update as JSON", roundTrip: func(e spool.Event) (spool.Event, error) {
		n, err := throughUpdateJSON(record.Update{Events: []spool.Event{e}})
		if err != nil || len(n.Events) != 1 {
			return spool.Event{}, fmt.Errorf("%d events: %w", len(n.Events), err)
		}
		return n.Events[0], nil
	}},
}

var infoCodecs = []codec[spool.Info]{
	{name: "JSON", roundTrip: throughJSON[spool.Info]},
	{name: "JSON made by hand", roundTrip: func(i spool.Info) (spool.Info, error) {
		var got spool.Info
		return got, json.Unmarshal(i.AppendJSON(nil), &got)
	}},
	{name: "binary", roundTrip: func(i spool.Info) (spool.Info, error) {
		return record.DecodeInfo(record.AppendInfo(nil, &i))
	}},
	{name: "description", roundTrip: func(i spool.Info) (spool.Info, error) {
		b, err := record.AppendDescription(nil, record.Between, 7, time.Unix(1, 0), &i)
		if err != nil {
			return spool.Info{}, err
		}
		e, _, err := record.Decode(b)
		if err != nil {
			return spool.Info{}, err
		}
		return record.DecodeDescription(e.Data, i.ID)
	}},
	{name: "update", roundTrip: func(i spool.Info) (spool.Info, error) {
		n, err := throughUpdate(record.Update{Info: i})
		if err != nil {
			return spool.Info{}, err
		}
		start := i
		start.State, start.Ended, start.Outcome, start.Last, start.Bytes = "", time.Time{}, nil, 0, 0
		start.Title, start.TurnOutcome, start.Ledger = "", "", nil
		start.Size, start.FirstSize = spool.Size{}, spool.Size{}
		start.Turn, start.Asks = 0, nil
		n.Complete(start)
		return n.Info, nil
	}},
	{name: "whole update", roundTrip: func(i spool.Info) (spool.Info, error) {
		n, err := throughWhole(record.Update{Info: i})
		return n.Info, err
	}},
	{name: "update as JSON", roundTrip: func(i spool.Info) (spool.Info, error) {
		n, err := throughUpdateJSON(record.Update{Info: i})
		return n.Info, err
	}},
}

var specCodecs = []codec[spool.Spec]{
	{name: "JSON", roundTrip: throughJSON[spool.Spec]},
	{name: "start", roundTrip: func(s spool.Spec) (spool.Spec, error) {
		start, err := throughStart(record.Start{Spec: s})
		return start.Spec, err
	}},
}

// The values of the other requests have a JSON form only.
var (
	limitsCodecs  = []codec[spool.Limits]{{name: "JSON", roundTrip: throughJSON[spool.Limits]}}
	controlCodecs = []codec[spool.Control]{{name: "JSON", roundTrip: throughJSON[spool.Control]}}
	filterCodecs  = []codec[spool.Filter]{{name: "JSON", roundTrip: throughJSON[spool.Filter]}}
	inputCodecs   = []codec[spool.Input]{{name: "JSON", roundTrip: throughJSON[spool.Input], without: []string{"Seq"}}}
)

var startCodecs = []codec[record.Start]{{name: "start", roundTrip: throughStart}}

var updateCodecs = []codec[record.Update]{
	{name: "JSON", roundTrip: throughUpdateJSON},
	{name: "binary", roundTrip: func(n record.Update) (record.Update, error) {
		for i := range n.Events {
			n.Events[i].Run = n.Info.ID
		}
		start := n.Info
		n, err := throughUpdate(n)
		if err == nil {
			n.Complete(start)
			n.Events[0].Run = filled[record.Update](nil).Events[0].Run
		}
		return n, err
	}},
	{name: "whole", roundTrip: func(n record.Update) (record.Update, error) {
		n, err := throughWhole(n)
		if err == nil {
			n.Events[0].Run = filled[record.Update](nil).Events[0].Run
		}
		return n, err
	}},
}

// throughWhole takes an update through the form with the whole description.
func throughWhole(n record.Update) (record.Update, error) {
	b, err := record.AppendWhole(nil, &n)
	if err != nil {
		return record.Update{}, err
	}
	facts, rest, err := record.CutWhole(b)
	if err != nil {
		return record.Update{}, err
	}
	info, err := record.DecodeInfo(facts)
	if err != nil {
		return record.Update{}, err
	}
	got, err := record.DecodeUpdate(rest)
	if err != nil {
		return record.Update{}, err
	}
	got.Complete(info)
	return *got, nil
}

func throughJSON[T any](v T) (T, error) {
	var got T
	b, err := json.Marshal(v)
	if err != nil {
		return got, err
	}
	return got, json.Unmarshal(b, &got)
}

func throughStart(s record.Start) (record.Start, error) {
	b, err := record.AppendStart(nil, &s)
	if err != nil {
		return record.Start{}, err
	}
	return record.DecodeStart(b)
}

func throughUpdate(n record.Update) (record.Update, error) {
	b, err := record.AppendUpdate(nil, &n)
	if err != nil {
		return record.Update{}, err
	}
	got, err := record.DecodeUpdate(b)
	if err != nil {
		return record.Update{}, err
	}
	return *got, nil
}

func throughUpdateJSON(n record.Update) (record.Update, error) {
	var got record.Update
	return got, json.Unmarshal(n.AppendJSON(nil), &got)
}

// TestEveryFieldIsEncoded fills every field and takes the value through each
// encoding. A new field that one of them forgets fails here.
func TestEveryFieldIsEncoded(t *testing.T) {
	t.Run("Event", func(t *testing.T) { testCodecs(t, eventCodecs) })
	t.Run("Info", func(t *testing.T) { testCodecs(t, infoCodecs) })
	t.Run("Spec", func(t *testing.T) { testCodecs(t, specCodecs) })
	t.Run("Start", func(t *testing.T) { testCodecs(t, startCodecs) })
	t.Run("Update", func(t *testing.T) { testCodecs(t, updateCodecs) })
	t.Run("Limits", func(t *testing.T) { testCodecs(t, limitsCodecs) })
	t.Run("Control", func(t *testing.T) { testCodecs(t, controlCodecs) })
	t.Run("Filter", func(t *testing.T) { testCodecs(t, filterCodecs) })
	t.Run("Input", func(t *testing.T) { testCodecs(t, inputCodecs) })
}

func testCodecs[T any](t *testing.T, codecs []codec[T]) {
	for _, c := range codecs {
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFormsMadeByHandUseTheTags checks that the JSON form of a type with a
// method for it has the names that the tags of its fields say.
func TestFormsMadeByHandUseTheTags(t *testing.T) {
	testTags[spool.Info](t)
	testTags[spool.Limits](t)
	testTags[spool.Control](t)
	testTags[record.Update](t)
}

func testTags[T any](t *testing.T) {
	v := filled[T](nil)
	b, err := json.Marshal(&v)
	if appender, ok := any(&v).(interface{ AppendJSON([]byte) []byte }); ok {
		b = appender.AppendJSON(nil)
	}
	var got map[string]json.RawMessage
	if err = errors.Join(err, json.Unmarshal(b, &got)); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]bool)
	for field := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		want[name] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("%v: %s", reflect.TypeFor[T](), diff)
	}
}

// TestForgottenFieldIsFound checks the check: a codec that loses any one field
// fails it.
func TestForgottenFieldIsFound(t *testing.T) {
	testForgotten[spool.Event](t)
	testForgotten[spool.Info](t)
	testForgotten[spool.Spec](t)
	testForgotten[record.Start](t)
	testForgotten[record.Update](t)
}

func testForgotten[T any](t *testing.T) {
	var paths []string
	filled[T](&paths)
	if len(paths) < reflect.TypeFor[T]().NumField() {
		t.Fatalf("%v has more fields than were filled: %q", reflect.TypeFor[T](), paths)
	}
	if err := (codec[T]{name: "faithful", roundTrip: func(v T) (T, error) { return v, nil }}).check(); err != nil {
		t.Error(err)
	}
	for _, path := range paths {
		lossy := codec[T]{name: "lossy", roundTrip: func(T) (T, error) {
			v := filled[T](nil)
			clearField(reflect.ValueOf(&v).Elem(), "", path)
			return v, nil
		}}
		if lossy.check() == nil {
			t.Errorf("%v: losing %s is not noticed", reflect.TypeFor[T](), path)
		}
		lossy.without = []string{path}
		if err := lossy.check(); err != nil {
			t.Errorf("%v: %s is declared as left out: %v", reflect.TypeFor[T](), path, err)
		}
	}
}

// check takes a value with every field filled through the codec.
func (c codec[T]) check() error {
	want := filled[T](nil)
	got, err := c.roundTrip(filled[T](nil))
	if err != nil {
		return err
	}
	for _, path := range c.without {
		if !clearField(reflect.ValueOf(&want).Elem(), "", path) {
			return fmt.Errorf("no field %s", path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

// filled returns a value in which every field is set, each to a value of its
// own, and adds the paths of the fields to paths if it is not nil.
func filled[T any](paths *[]string) T {
	var v T
	f := filler{paths: paths}
	f.fill(reflect.ValueOf(&v).Elem(), "")
	return v
}

type filler struct {
	n     int64
	paths *[]string
}

// values are for types that not every value is valid of.
var values = map[reflect.Type]any{
	reflect.TypeFor[spool.Kind]():      spool.KindOutput,
	reflect.TypeFor[spool.Stream]():    spool.PTY,
	reflect.TypeFor[json.RawMessage](): json.RawMessage(`{"a":[1,"x"]}`),
	reflect.TypeFor[time.Time]():       time.Date(2026, 11, 15, 1, 2, 3, 456789, time.UTC),
}

func (f *filler) fill(v reflect.Value, path string) {
	f.n++
	if value, ok := values[v.Type()]; ok {
		v.Set(reflect.ValueOf(value))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(f.n * int64(time.Millisecond)) // the unit of the JSON form
			return
		}
		v.SetInt(f.n)
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		v.SetUint(uint64(f.n))
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), path)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path)
		f.fill(value, path)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for field, fv := range v.Fields() {
			at := join(path, field.Name)
			if f.paths != nil {
				*f.paths = append(*f.paths, at)
			}
			f.fill(fv, at)
		}
	default:
		panic(fmt.Sprintf("%s: cannot fill %v", path, v.Type()))
	}
}

// clearField sets the field at a path to zero, in every element where there are
// several, and reports whether there was one.
func clearField(v reflect.Value, at, path string) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && clearField(v.Elem(), at, path)
	case reflect.Slice:
		return v.Len() > 0 && v.Index(0).Kind() == reflect.Struct && clearField(v.Index(0), at, path)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return false
		}
		for field, fv := range v.Fields() {
			if name := join(at, field.Name); name == path {
				fv.SetZero()
				return true
			} else if clearField(fv, name, path) {
				return true
			}
		}
	}
	return false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
