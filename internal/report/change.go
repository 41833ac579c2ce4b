package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

const (
	packageGap    = 10 * time.Minute // between changes of packages that are listed together
	shownPackages = 3
)

// changes lists what was changed on the host lately.
func (p *printer) changes(r *diagnose.Report) {
	if len(r.Changes) == 0 {
		return
	}
	from := "before the end of this window"
	for i := range r.Changes {
		if r.Changes[i].RelativeTo == "onset" {
			from = "before the first slow request of this window"
		}
	}
	p.line("%s %s", p.paint(bold, p.say("Recent changes")), p.paint(dim, "("+p.say("%s; no verdict", from)+")"))
	for i := 0; i < len(r.Changes); {
		text, next := changeText(r.Changes, i)
		p.wrapped("  "+printable.Pad(p.text(beforeText(&r.Changes[i])), 16), 18, p.text(printable.Text(text)))
		i = next
	}
	p.line("")
}

// changeText describes the change at i, and where the next one is that is not described
// with it.
func changeText(list []diagnose.Change, i int) (string, int) {
	c := &list[i]
	next := i + 1
	switch {
	case c.Kind == observe.ChangePackage:
		names := []string{c.What}
		for ; next < len(list) && list[next].Kind == observe.ChangePackage && c.At != nil && list[next].At != nil && list[next-1].At.Sub(*list[next].At) < packageGap; next++ {
			names = append(names, list[next].What)
		}
		text := "packages: " + strings.Join(names[:min(len(names), shownPackages)], ", ")
		if more := len(names) - shownPackages; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text, next
	case c.Kind == observe.ChangeSetting:
		names := []string{c.What}
		for ; next < len(list) && list[next].Kind == observe.ChangeSetting; next++ {
			names = append(names, list[next].What)
		}
		return "settings of the kernel that are not its own: " + strings.Join(names, ", "), next
	}
	text := c.What
	if c.Path != "" {
		text = c.Path + " " + text
	}
	if c.PID != 0 {
		text = fmt.Sprintf("%s (pid %d): %s", c.Comm, c.PID, text)
	}
	return text, next
}

// beforeText is how long before, in the unit that people would use.
func beforeText(c *diagnose.Change) string {
	if c.Before == nil {
		return "no date"
	}
	d, after := time.Duration(*c.Before*float64(time.Second)), ""
	if d < 0 {
		d, after = -d, " after"
	}
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s%s", d.Seconds(), after)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min%s", d.Minutes(), after)
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h%s", d.Hours(), after)
	}
	return fmt.Sprintf("%.0f days%s", d.Hours()/24, after)
}
