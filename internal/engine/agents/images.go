package agents

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// imageTypes are the images that the models behind every agent know.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// checkImages says what is wrong with the images of a prompt. A limit of zero is the
// default.
func checkImages(images []spool.PromptImage, limit int64) error {
	if len(images) > MaxImages {
		return fmt.Errorf("%w: a prompt with %d images, and it may have %d", spool.ErrInvalid, len(images), MaxImages)
	}
	var size int64
	for i, image := range images {
		switch {
		case !slices.Contains(imageTypes, image.MIME):
			return fmt.Errorf("%w: image %d of the prompt is of type %.40q: agents are shown PNG, JPEG, GIF and WebP", spool.ErrInvalid, i+1, image.MIME)
		case len(image.Bytes) == 0:
			return fmt.Errorf("%w: image %d of the prompt has no bytes", spool.ErrInvalid, i+1)
		case http.DetectContentType(image.Bytes) != image.MIME:
			return fmt.Errorf("%w: image %d of the prompt is no %s", spool.ErrInvalid, i+1, image.MIME)
		}
		size += int64(len(image.Bytes))
	}
	if most := max(0, cmp.Or(limit, agent.DefaultImageBytes)); size > most {
		return fmt.Errorf("%w: the images of the prompt have %d bytes, and it may have %d: show smaller ones, or raise image_bytes of the agent", spool.ErrInvalid, size, most)
	}
	return nil
}

// takesImages says why the agent cannot be shown images, if so. Agents of the Agent
// Client Protocol say it themselves, once they run.
func (s *session) takesImages() error {
	switch {
	case !s.agent.Images:
		return fmt.Errorf("%w: %s cannot be shown images", spool.ErrUnsupported, s.agent.Name)
	case !s.duplex:
		return fmt.Errorf("%w: %s cannot be shown images in exec mode: use duplex mode", spool.ErrUnsupported, s.agent.Name)
	}
	return nil
}
