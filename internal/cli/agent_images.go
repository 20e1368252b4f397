package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// readImages reads the images of a prompt. What they may be, the run decides.
func readImages(files []string) ([]spool.PromptImage, error) {
	var images []spool.PromptImage
	for _, name := range files {
		b, err := readImage(name)
		if err != nil {
			return nil, fmt.Errorf("read the image: %w", err)
		}
		images = append(images, spool.PromptImage{MIME: http.DetectContentType(b), Bytes: b})
	}
	return images, nil
}

func readImage(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	b, err := io.ReadAll(io.LimitReader(f, agent.MaxImageBytes+1))
	if err == nil && len(b) > agent.MaxImageBytes {
		err = usageErrorf("%s has more than %d bytes, and a prompt holds no more", name, agent.MaxImageBytes)
	}
	return b, err
}
