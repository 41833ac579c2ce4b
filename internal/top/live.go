package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/slowray/slowray/internal/sense/request"
)

// redraws per second at most: enough for keys, and each one is a wake-up even
// when nothing changed.
const redraws = 15

// Live shows the endpoints on the terminal until it is quit or ctx is done.
func Live(ctx context.Context, stream *request.Stream, opt Options, in io.Reader, out io.Writer) error {
	opt.Every = max(opt.Every, minEvery)
	m := newModel(opt)
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(),
		tea.WithFPS(redraws),
		tea.WithWindowSize(m.width, m.height), // until the terminal tells its own
	}
	if opt.NoColor {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	program := tea.NewProgram(m, options...)

	// The sampler ends before Live returns: the stream is closed then.
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan error, 1)
	go func() {
		err := newSampler(stream, opt, time.Now()).run(sampling, opt.Every, func(s Snapshot) { program.Send(snapshotMsg(s)) })
		if err != nil {
			program.Quit()
		}
		sampled <- err
	}()
	_, err := program.Run()
	stop()
	if failed := <-sampled; failed != nil {
		return failed
	}
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil // ended from outside, as by Ctrl-C
	}
	return err
}
