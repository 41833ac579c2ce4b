package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/printable"
)

// recordStatusSchema names the form of record --status --json.
const recordStatusSchema = "slowray.shipping/1"

// showStatus tells how far what a recorder sends is, of the one that records into the
// directory now or did last. It asks nobody: the recorder leaves it next to what waits.
func (c *recordCmd) showStatus(s *streams) error {
	r, err := ship.ReadReport(c.Dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%s: nothing was recorded there", c.Dir)
		}
		return fmt.Errorf("record --status: %w", stateHint(err))
	}
	stale := r.Stale(time.Now())
	if c.JSON {
		err = printable.WriteJSONLine(s.out, struct {
			Schema  string `json:"schema"`
			Running bool   `json:"running"`
			ship.Report
		}{recordStatusSchema, !stale, r})
	} else {
		err = writeStatus(s.out, &r, time.Now())
	}
	if err != nil {
		return err
	}
	for i := range r.Targets {
		if t := &r.Targets[i]; stale && t.Bytes > 0 || t.Error != "" || t.Behind >= behindIsWorse {
			return exit(exitFindings)
		}
	}
	return nil
}

// writeStatus writes a Report for people.
func writeStatus(out io.Writer, r *ship.Report, now time.Time) error {
	if r.Stale(now) {
		fmt.Fprintf(out, "nothing records there now; this is of %s\n", figure.Moment(r.At))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "target\tbehind\twaiting\ton disk\tsent\tgiven up\t")
	for i := range r.Targets {
		t := &r.Targets[i]
		behind := figure.Seconds(t.Behind.Round(time.Second).Seconds())
		if t.History {
			behind = "–"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable.Text(t.Title), behind,
			figure.Count(t.Records), figure.Bytes(t.Bytes), figure.Count(t.Sent), figure.Count(t.GaveUp), targetState(t, now))
	}
	return w.Flush()
}

// targetState is how a target is, in words.
func targetState(t *ship.Status, now time.Time) string {
	state := "well"
	switch {
	case t.Error != "":
		state = "fails: " + printable.Text(t.Error)
	case t.LastError != "":
		state = fmt.Sprintf("well; %s ago: %s", figure.Seconds(now.Sub(t.LastAt).Round(time.Second).Seconds()), printable.Text(t.LastError))
	}
	if t.Refused > 0 {
		state += fmt.Sprintf("; left out %s items of what it took", figure.Count(t.Refused))
	}
	return state
}
