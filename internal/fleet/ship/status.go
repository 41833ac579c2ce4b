package ship

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/safefile"
)

// Status is how far a target is.
type Status struct {
	History   bool          // it is of what was recorded before the target was given: Behind is 0
	Title     string        // for people: its URL without a password
	Behind    time.Duration // age of the oldest record that was not sent
	Records   uint64        // that wait; those in logs that were not yet read are estimated
	Bytes     int64         // that wait
	Sent      uint64        // records taken since the start
	GaveUp    uint64        // records given up, ever
	Refused   uint64        // items that the target left out of what it took, since the start: see fleet.Refuser
	Failures  uint64        // attempts that failed since the start
	Error     string        // why nothing goes on, "" when the last attempts were well
	LastError string        // of the last attempt that failed since the start, on one line
	LastAt    time.Time     // when that was
}

// statusJSON is a Status as JSON has names.
type statusJSON struct {
	History   bool       `json:"history,omitempty"`
	URL       string     `json:"url"`
	Sent      uint64     `json:"sent"`
	Waiting   uint64     `json:"waiting"` // records, about
	Bytes     int64      `json:"waiting_bytes"`
	Behind    float64    `json:"behind_seconds"`
	GaveUp    uint64     `json:"gave_up"`
	Refused   uint64     `json:"refused"`
	Failures  uint64     `json:"failures"`
	Error     string     `json:"error,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	LastAt    *time.Time `json:"last_error_at,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Status) MarshalJSON() ([]byte, error) {
	x := statusJSON{History: s.History, URL: s.Title, Sent: s.Sent, Waiting: s.Records, Bytes: s.Bytes, Behind: s.Behind.Seconds(), GaveUp: s.GaveUp, Refused: s.Refused, Failures: s.Failures, Error: s.Error, LastError: s.LastError}
	if !s.LastAt.IsZero() {
		at := s.LastAt.UTC().Truncate(time.Millisecond)
		x.LastAt = &at
	}
	return json.Marshal(x)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Status) UnmarshalJSON(text []byte) error {
	var x statusJSON
	if err := json.Unmarshal(text, &x); err != nil {
		return err
	}
	*s = Status{History: x.History, Title: x.URL, Sent: x.Sent, Records: x.Waiting, Bytes: x.Bytes, Behind: time.Duration(min(max(x.Behind, 0), mostBehind.Seconds()) * float64(time.Second)), GaveUp: x.GaveUp, Refused: x.Refused, Failures: x.Failures, Error: x.Error, LastError: x.LastError}
	if x.LastAt != nil {
		s.LastAt = *x.LastAt
	}
	return nil
}

// Report is what a Shipper leaves for others to read, next to its targets' directories:
// how far they are, and when that was.
type Report struct {
	At      time.Time `json:"at"`
	Ended   bool      `json:"ended"` // it was asked to end, and did
	Targets []Status  `json:"targets"`
}

const (
	reportName = "status.json"
	// reportEvery is how often a Report is written.
	reportEvery = 5 * time.Second
	// mostBehind bounds what a Report may tell.
	mostBehind = 100 * 365 * 24 * time.Hour
	// mostReport bounds a Report that is read, bytes, mostTargets how many targets are in it.
	mostReport, mostTargets = 1 << 20, 1000
)

// ErrNothingShipped says that no target was ever given for a history.
var ErrNothingShipped = errors.New("nothing of it is sent anywhere (--to)")

// ReadReport reads what the Shipper of a history left last.
func ReadReport(dir string) (r Report, err error) {
	path := filepath.Join(dir, shipDir, reportName)
	history, err := safefile.OpenRoot(dir)
	if err != nil {
		return r, err
	}
	defer history.Close()
	f, err := safefile.OpenRegular(history, filepath.Join(shipDir, reportName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, fmt.Errorf("%s: %w", dir, ErrNothingShipped)
	case errors.Is(err, safefile.ErrNotRegular):
		return r, fmt.Errorf("%s: %w", path, errNoReport)
	case err != nil:
		return r, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostReport+1))
	if err != nil {
		return r, err
	}
	if r, err = parseReport(text, time.Now()); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// errNoReport is of a file that no Shipper left.
var errNoReport = errors.New("is no report of a recorder")

// parseReport reads what leave wrote.
func parseReport(text []byte, now time.Time) (r Report, err error) {
	if len(text) > mostReport {
		return r, errNoReport
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.At.IsZero() || r.At.After(now.Add(time.Hour)) || len(r.Targets) > mostTargets {
		return r, errNoReport
	}
	return r, nil
}

// Stale says whether a Report is so old that whoever wrote it is not there any more.
func (r *Report) Stale(now time.Time) bool {
	return r.Ended || now.Sub(r.At) > 4*reportEvery
}

// report leaves a Report now and then, until ctx ends.
func (s *Shipper) report(ctx context.Context) {
	for {
		s.leave(false)
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportEvery):
		}
	}
}

// leave leaves a Report. It appears whole or not at all; where it cannot be written,
// who reads it sees how old it is.
func (s *Shipper) leave(ended bool) {
	text, err := json.Marshal(Report{At: time.Now().UTC().Truncate(time.Millisecond), Ended: ended, Targets: s.Status()})
	if err != nil {
		return
	}
	const unfinished = ".new-" + reportName
	_ = s.dir.in(func(d *safefile.Dir) error { // without a sync, for it is written all the time
		_ = d.Remove(unfinished)
		return cmp.Or(d.WriteFile(unfinished, append(text, '\n'), 0o600), d.Rename(unfinished, reportName))
	})
}

// Status tells how far each target is.
func (s *Shipper) Status() []Status {
	var list []Status
	for _, d := range s.to {
		x := Status{Title: d.Title, History: d.past}
		d.reporter.tell(&x)
		if r, ok := d.Target.(fleet.Refuser); ok {
			x.Refused, _ = r.Refused()
		}
		files := waiting(d.dir)
		for _, st := range d.streams {
			st.addTo(&x, files)
		}
		switch {
		case d.past:
			x.Behind = 0
		case x.Bytes > 0:
			// Where nothing was ever sent no record was read, and its age is not known.
			x.Behind = max(x.Behind, d.reporter.failingFor())
		}
		list = append(list, x)
	}
	if s.past != nil {
		list = append(list, s.past.Status()...)
	}
	return list
}
