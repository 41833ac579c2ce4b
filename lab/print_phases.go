package lab

import (
	"fmt"
	"text/tabwriter"
	"time"
)

// phases prints the table of an incident with phases: on the left what the
// clients and the links counted, on the right what slowray says.
func (p *printer) phases(r Result) {
	p.printf("\n")
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "phase\treq/s\tlatency\tlost\ttotal RT\tserver RT\tnetwork\tretrans\tdatabase call\tloss\t")
	looked := false
	for _, ph := range r.Phases {
		looked = looked || ph.Served != nil
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\t\n", ph.Name, ph.Rate, millis(ph.Latency), ph.lost(), ph.found())
	}
	w.Flush()
	p.printf("\nreq/s and latency as the clients counted them, lost as the links counted it (packets);\n" +
		"the rest is slowray's: total and its parts of a request served, mean.\n")
	for _, reason := range r.Reasons {
		p.printf("%s %s\n", p.paint(false, "MISMATCH"), reason)
	}
	p.verdict(r, !looked && r.OK)
}

func (r PhaseResult) lost() string {
	text := ""
	for _, d := range []struct{ wire, short string }{{"client→server", "→server"}, {"server→client", "→client"}, {"server→backend", "→database"}} {
		if w := r.Wires[d.wire]; w.Lost > 0 {
			text += fmt.Sprintf("%d %.1f ‰ %s ", w.Lost, w.permille(), d.short)
		}
	}
	if text == "" {
		return "-"
	}
	return text[:len(text)-1]
}

func (r PhaseResult) found() string {
	if r.Served == nil {
		return "\t\t\t\t\t"
	}
	total, database, loss := millis(r.Served.Total()), "", fmt.Sprintf("%.1f ‰", r.Served.LossPermille)
	if r.Database != nil {
		database = millis(r.Database.Total())
		loss += fmt.Sprintf(", database %.1f ‰", r.Database.LossPermille)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", total, millis(r.Served.Part("server")), millis(r.Served.Part("network")),
		millis(r.Served.Part("retrans")), database, loss)
}

// millis is a duration in milliseconds, as incident E has it.
func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
