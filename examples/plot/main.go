// Command plot draws a figure with matplotlib in a persistent Python
// interpreter and saves it as a PNG file. The second cell uses what the first
// one left behind.
//
//	go run ./plot -python .venv/bin/python figure.png
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

const prepare = `
import matplotlib.pyplot as plt
x = range(100)
y = [n * n for n in x]
print("prepared", len(y), "points")
`

const plot = `
plt.plot(x, y)
plt.show()
`

func main() {
	local.ChildMain()
	interpreter := flag.String("python", "", "Python with matplotlib (default: the one of this directory or of PATH)")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: plot [-python FILE] FIGURE.png")
	}
	if err := draw(context.Background(), *interpreter, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func draw(ctx context.Context, interpreter, file string) error {
	backend, err := local.Open("", local.Options{})
	if err != nil {
		return err
	}
	defer backend.Close()

	kernel, err := spool.Start(ctx, backend, python.KernelConfig{Interpreter: interpreter}.Spec())
	if err != nil {
		return err
	}
	defer kernel.Stop(ctx)

	for _, code := range []string{prepare, plot} {
		images, err := cell(ctx, kernel, code)
		if err != nil {
			return err
		}
		for _, image := range images {
			if image.MIME != "image/png" {
				continue
			}
			if err := save(ctx, kernel, image, file); err != nil {
				return err
			}
			fmt.Printf("saved %s, %d bytes\n", file, image.Size())
		}
	}
	return nil
}

// cell runs a cell, prints its text and returns its images.
func cell(ctx context.Context, kernel *spool.Run, code string) ([]render.Value, error) {
	turn, err := kernel.Exec(ctx, "", spool.Cell{Code: code})
	if err != nil {
		return nil, err
	}
	var images []render.Value
	renderer := render.Renderer{Blobs: kernel}
	for e, err := range turn.Events(ctx) {
		if err != nil {
			return nil, err
		}
		out, err := renderer.Event(ctx, &e)
		if err != nil {
			return nil, err
		}
		if e.Kind == spool.KindOutput {
			fmt.Print(out.Text)
		} else if out.Text != "" {
			fmt.Println(out.Text)
		}
		images = append(images, out.Images...)
	}
	done, err := turn.Wait(ctx)
	if err == nil && done.Outcome != spool.TurnOK {
		err = fmt.Errorf("the cell ended with %s: %s", done.Outcome, done.Error)
	}
	return images, err
}

// save writes an image, which may be a blob beside the log, to a file.
func save(ctx context.Context, kernel *spool.Run, image render.Value, file string) error {
	in, err := image.Open(ctx, kernel)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
