package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// reconnecting shows on a terminal for how long the server has been lost. The
// text is in one place and is erased when the attempts are over.
type reconnecting struct {
	terminal *os.File // nil shows nothing

	mu      sync.Mutex
	display *display      // the screen of a run, if one is shown
	stop    chan struct{} // ends the text; nil without one
	stopped chan struct{} // closed when it is erased
}

// set begins or ends the text. It is [client.Options.OnReconnect].
func (r *reconnecting) set(trying bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		close(r.stop)
		<-r.stopped
		r.stop = nil
	}
	if trying && r.terminal != nil {
		r.stop, r.stopped = make(chan struct{}), make(chan struct{})
		go r.count(r.display, r.stop, r.stopped)
	}
}

// attach says which screen of a run the terminal shows; nil is none.
func (r *reconnecting) attach(d *display) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.display = d
}

// count shows the seconds until it is stopped. The first second shows nothing:
// most servers are back by then.
func (r *reconnecting) count(d *display, stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for seconds := 0; ; {
		select {
		case <-ticker.C:
			seconds++
			r.write(d, fmt.Sprintf("spool: reconnecting… %d s", seconds))
			continue
		case <-stop:
		}
		if seconds > 0 {
			r.write(d, "")
			if d != nil {
				d.refresh()
			}
		}
		return
	}
}

// write shows text in the line of the cursor, or in the last row if the terminal
// shows the screen of a run. A terminal that is gone is noticed by the next write
// of output.
func (r *reconnecting) write(d *display, text string) {
	if d != nil {
		fmt.Fprintf(r.terminal, "\x1b7\x1b[999;1H\x1b[m\x1b[K%s\x1b8", text)
	} else {
		fmt.Fprintf(r.terminal, "\r\x1b[K%s", text)
	}
}

// lostError says that the server was lost during a run.
type lostError struct{ reason string }

func (e *lostError) Error() string { return lostText(e.reason) }

// lostText is one sentence about a lost server: the cause and the next step.
func lostText(reason string) string {
	if _, last, ok := strings.Cut(reason, "reconnecting: "); ok {
		reason = last
	}
	cause := strings.TrimSpace(reason[strings.LastIndex(reason, ": ")+1:])
	if cause == "EOF" {
		cause = "it closed the connection"
	}
	return fmt.Sprintf("lost the server: %s; what ran there may still be running, try again when the server is back", cause)
}
