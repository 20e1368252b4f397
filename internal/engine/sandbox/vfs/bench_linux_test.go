package vfs

import "testing"

// BenchmarkStat is one stat as a guest's process asks for it.
func BenchmarkStat(b *testing.B) {
	dir, err := OpenDir(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	tree := NewTree(NewMemory(nil))
	if err := tree.Mount("/mnt", dir); err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	for _, path := range []string{"/memory/f", "/mnt/d/f"} {
		if err := tree.MkdirAll(path[:len(path)-2]); err != nil {
			b.Fatal(err)
		}
		if err := tree.WriteFile(path, []byte("x"), 0o644); err != nil {
			b.Fatal(err)
		}
		b.Run(path, func(b *testing.B) {
			server := NewServer(tree, 1)
			request := appendStr([]byte{OpStat, 1}, path)
			var answer []byte
			b.ReportAllocs()
			for b.Loop() {
				if answer, err = server.Call(answer[:0], request); err != nil {
					b.Fatal(err)
				}
			}
			if le.Uint16(answer) != 0 {
				b.Fatalf("errno %d", le.Uint16(answer))
			}
		})
	}
}
