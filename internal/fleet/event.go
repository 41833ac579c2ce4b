package fleet

import (
	"context"
	"time"
)

// Event is that something abnormal began, became clearer or ended, as slowray fleet
// watch saw it.
type Event struct {
	ID       string // of the incident: the same from its onset to its end
	At       time.Time
	Kind     string // "onset", "update", "end"
	Text     string
	Document []byte // all of it, as JSON (schema/fleetevent.schema.json)
}

// EventStore is what an Archive may be besides: it keeps events. The same event may be
// added twice, by two who watch.
type EventStore interface {
	AddEvents(ctx context.Context, events []Event) error
}
