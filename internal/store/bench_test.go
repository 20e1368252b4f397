package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := openStore(b, b.TempDir(), Options{})
			j := create(b, s, "r")
			e := output(1, make([]byte, size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := j.Append(&e); err != nil {
					b.Fatal(err)
				}
				e.Seq++
				if e.Seq%50_000 == 0 { // free the disk space
					b.StopTimer()
					if err := s.Remove("r"); err != nil {
						b.Fatal(err)
					}
					j.Close()
					j, e.Seq = create(b, s, "r"), 1
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkReplay(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := openStore(b, b.TempDir(), Options{})
			j := create(b, s, "r")
			total := 128 << 20
			if size < 1000 {
				total = 16 << 20
			}
			e := output(1, make([]byte, size))
			for ; int(e.Seq)*size <= total; e.Seq++ {
				if err := j.Append(&e); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(e.Seq-1) * int64(size))
			b.ReportAllocs()
			var page []spool.Event
			for b.Loop() {
				r, err := s.Open("r")
				if err != nil {
					b.Fatal(err)
				}
				after := spool.Seq(0)
				for {
					if page, err = r.Read(page[:0], after, 256<<10); err != nil {
						b.Fatal(err)
					}
					if len(page) == 0 {
						break
					}
					after = page[len(page)-1].Seq
				}
				if after != e.Seq-1 {
					b.Fatalf("replayed %d events", after)
				}
			}
		})
	}
}

func BenchmarkList1000(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	for i := range 1000 {
		finish(b, s, spool.RunID(fmt.Sprintf("run-%04d", i)), epoch.Add(time.Duration(i)), epoch, 20_000)
	}
	for b.Loop() {
		n := 0
		for _, err := range s.List() {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 1000 {
			b.Fatalf("%d runs", n)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	for i := 0; b.Loop(); i++ {
		j, err := s.Create(testInfo(spool.RunID(fmt.Sprint("r", i))))
		if err != nil {
			b.Fatal(err)
		}
		if err := j.Discard(); err != nil {
			b.Fatal(err)
		}
	}
}
