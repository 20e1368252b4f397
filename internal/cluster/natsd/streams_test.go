package natsd

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool/internal/cluster"
)

// streamsOf returns the names of the streams of a store.
func streamsOf(f *Facts) []string {
	var names []string
	for _, s := range f.Status().Streams {
		names = append(names, s.Name)
	}
	return names
}

// TestOlderStore checks that a store whose streams an older version made keeps them, also
// if that version had made only one of them, or one was lost.
func TestOlderStore(t *testing.T) {
	made := map[string][]string{
		"SPOOL_META": {"spool.v1.meta.*"}, "SPOOL_NODES": {"spool.v1.node.*"}, "SPOOL_RUNS": {"spool.v1.run.*", "spool.v1.name.*"}, "SPOOL_QUEUE": {"spool.v1.queue.*"},
	}
	all := []string{"SPOOL_META", "SPOOL_NODES", "SPOOL_RUNS", "SPOOL_QUEUE"}
	for _, tt := range []struct {
		name          string
		exist, expect []string
	}{
		{"all", all, all},
		{"the first", all[:1], all},
		{"without the first", all[1:], all},
		{"runs alone", all[2:3], all},
		{"none", nil, []string{"SPOOL_NODES", "SPOOL_RUNS"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Start(ServerOptions{Name: "test", Dir: t.TempDir(), Client: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			nc, err := nats.Connect("", nats.InProcessServer(s.s))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range tt.exist {
				c := jetstream.StreamConfig{Name: name, Subjects: made[name], MaxMsgsPerSubject: 1, AllowMsgTTL: name == "SPOOL_RUNS" || name == "SPOOL_QUEUE"}
				if name != "SPOOL_RUNS" {
					kind := made[name][0][:len(made[name][0])-1]
					c.RePublish = &jetstream.RePublish{Source: kind + "*", Destination: "spool.v1.saw." + kind[len("spool.v1."):] + "{{wildcard(1)}}"}
				}
				if _, err := js.CreateStream(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			f, err := Connect(Options{Server: s, Name: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkKinds(t, f)
			if got := streamsOf(f); !slices.Equal(got, tt.expect) {
				t.Errorf("the store has the streams %v, want %v", got, tt.expect)
			}
		})
	}
}

// checkKinds writes and reads a fact of each kind, and watches those that are told.
func checkKinds(t *testing.T, f *Facts) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, kind := range []string{"meta", "node", "run", "name", "queue"} {
		told := make(chan cluster.Fact, 1)
		stop, err := f.Watch(kind+".", func(fact cluster.Fact) { told <- fact })
		if err != nil {
			t.Fatal(err)
		}
		want := cluster.Fact{Key: kind + ".one", Data: []byte(kind)}
		if want.Rev, err = f.Put(ctx, cluster.Fact{Key: want.Key, Data: want.Data}, 0, 0); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Get(ctx, want.Key); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("read %+v, %v, want %+v", got, err, want)
		}
		var all []cluster.Fact
		for fact, err := range f.All(ctx, kind+".") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fact)
		}
		if fmt.Sprint(all) != fmt.Sprint([]cluster.Fact{want}) {
			t.Errorf("all are %+v, want %+v", all, want)
		}
		if last, err := f.Last(ctx, kind+"."); err != nil || last < want.Rev {
			t.Errorf("the last revision is %d, %v, after %d", last, err, want.Rev)
		}
		if kind != "run" && kind != "name" {
			select {
			case got := <-told:
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("was told %+v, want %+v", got, want)
				}
			case <-ctx.Done():
				t.Fatalf("was not told of %s", want.Key)
			}
		}
		stop()
	}
}
