package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) blobCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "blob [flags] [RUN] DIGEST",
		Short: "Print a large value of a run, such as an image",
		Long: `Blob prints a large value that events refer to by its digest: sha256: and 64 hex
digits, or a beginning of these digits if RUN is given. "spool inspect RUN" lists
the blobs of a run.`,
		Example: `  spool blob plots sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 > plot.png
  spool blob plots 9f86 > plot.png`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return a.completeBlob(cmd, args[0], prefix)
			}
			return a.completeRun(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.blob(cmd.Context(), b, args)
			})
		},
	}
}

func (a *app) blob(ctx context.Context, b spool.Backend, args []string) error {
	digest := spool.Digest(args[len(args)-1])
	if !strings.HasPrefix(string(digest), "sha256:") {
		digest = "sha256:" + digest
	}
	var content io.ReadCloser
	var err error
	if len(args) == 2 {
		content, err = openBlob(ctx, b, args[0], digest)
	} else {
		content, err = findBlob(ctx, b, digest)
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(a.stdout, content); err != nil {
		return errors.Join(err, content.Close())
	}
	return content.Close()
}

// digestSize is the length of a whole digest.
const digestSize = len("sha256:") + 64

// openBlob opens a blob of a run by its digest, or a unique beginning of it.
func openBlob(ctx context.Context, b spool.Backend, name string, digest spool.Digest) (io.ReadCloser, error) {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return nil, err
	}
	if len(digest) >= digestSize {
		return run.Blob(ctx, digest)
	}
	info, err := run.Info(ctx)
	if err != nil {
		return nil, err
	}
	found, err := inspectLog(ctx, run, 0, info.Last)
	if err != nil {
		return nil, err
	}
	var match []spool.Digest
	for _, blob := range found.Blobs {
		if strings.HasPrefix(string(blob.Digest), string(digest)) {
			match = append(match, blob.Digest)
		}
	}
	switch len(match) {
	case 0:
		return nil, &hintedError{fmt.Errorf("run %s has no blob %s", name, digest), fmt.Sprintf(`"spool inspect %s" lists its blobs`, name)}
	case 1:
		return run.Blob(ctx, match[0])
	}
	return nil, fmt.Errorf("%s is the beginning of several digests, such as %s and %s: give more of it", digest, match[0], match[1])
}

// findBlob opens a blob that any run has. The runs of a backend share their
// blobs, so the first run that can be asked has it, or none.
func findBlob(ctx context.Context, b spool.Backend, digest spool.Digest) (io.ReadCloser, error) {
	if len(digest) < digestSize {
		return nil, usageErrorf("%s is not a whole digest: give all 64 digits, or the run", digest)
	}
	for info, err := range b.List(ctx, spool.Filter{}) {
		if err != nil {
			if ctx.Err() != nil || isLost(err) {
				return nil, err
			}
			continue
		}
		content, err := b.Blob(ctx, info.ID, digest)
		if errors.Is(err, spool.ErrNotFound) {
			continue
		}
		return content, err
	}
	return nil, &hintedError{fmt.Errorf("no run has blob %s", digest), `"spool inspect RUN" lists the blobs of a run`}
}

// completeBlob completes the digest of a blob of a run.
func (a *app) completeBlob(cmd *cobra.Command, name, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeIn)
	defer cancel()
	var offers []string
	err := with(a.open, ctx, func(b spool.Backend) error {
		run, info, err := findInfo(ctx, b, name)
		if err != nil {
			return err
		}
		found, err := inspectLog(ctx, run, 0, info.Last)
		for _, blob := range found.Blobs {
			for _, word := range []string{string(blob.Digest), strings.TrimPrefix(string(blob.Digest), "sha256:")} {
				if strings.HasPrefix(word, prefix) {
					offers = append(offers, word+"\t"+plain(blob.MIME)+" "+formatBytes(blob.Size))
					break
				}
			}
		}
		return err
	})
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
