package observe

import "regexp"

// What a Loss says of what is missing on purpose.
const (
	// LossOldChanges is of changes of the host that are older than those listed. Nothing
	// that was measured is missing by it.
	LossOldChanges = "changes of the last days that were left out, the oldest"
	// LossSampled is of requests that are in every count and sum.
	LossSampled = "requests counted without a record of their own, to stay within the CPU budget"
	// LossEstimated is of connections of which others stand for.
	LossEstimated = "requests of connections that were left out, to stay within the CPU budget: their counts and sums are estimates"
	// LossFrames is of lengths that ask for nothing: nobody waited for an answer.
	LossFrames = "frames of HTTP/2 under TLS that ask for nothing, by their length: taken for no request"
	// LossUntaken is of what the kernel tries to deliver for minutes after both ends are gone.
	LossUntaken = "answers that were never taken, of processes that had ended: nobody waited for them"
	// LossHeaders and LossBlocks are of what labels and traces are read from.
	LossHeaders = "requests of HTTP/1.1 whose headers are longer than what is kept of them: a trace that they carry was not seen"
	LossBlocks  = "header blocks of HTTP/2 that were not seen whole: requests may lack their label and trace"
	// LossContexts is of where processes say that they publish the spans of their threads.
	LossContexts = "thread contexts that could not be read: requests may lack their trace"
)

// Loss counts readings that were dropped or skipped to stay within bounds.
type Loss struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
	Of    int64  `json:"of,omitempty"` // of so many, with those that were lost; 0 where that is not known
}

// Small says that so few are missing that no figure is another one for it: 1 in 1,000.
func (l *Loss) Small() bool { return l.Of > 0 && l.Count*1000 <= l.Of }

// unforeseen is what losses say that nobody chose.
var unforeseen = regexp.MustCompile(`ring was full|buffer (was full|had no room)|overwritten|kept from|no room|room ran out|memory ran out|disk was too slow|could not be read|passed over`)

// Label says what became of them: sampling and a bound lose nothing that was to be kept.
func (l *Loss) Label() string {
	switch {
	case l.What == LossSampled, l.What == LossEstimated:
		return "Sampled"
	case unforeseen.MatchString(l.What):
		return "Lost events"
	}
	return "Left out"
}
