package alert

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
)

// Schema identifies the form of a Message (schema/alert.schema.json).
const Schema = "slowray.alert/1"

// Severity is how bad an incident is.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Kind is what a message says of its incident.
type Kind string

// The kinds.
const (
	Begin  Kind = "begin"
	Update Kind = "update" // its cause is known now, or it became critical
	End    Kind = "end"
	Test   Kind = "test"
)

// Service is one that suffers.
type Service struct {
	Name  string  `json:"name"`                     // "nginx:8080"
	Share float64 `json:"share,omitempty"`          // of its requests, 0 to 1
	Lost  float64 `json:"lost_s_per_min,omitempty"` // that its clients waited in vain
	Text  string  `json:"text,omitempty"`           // how it suffers
}

// Message is what receivers get.
type Message struct {
	Schema   string    `json:"schema"`
	Delivery string    `json:"delivery"` // of this message: one that comes twice is one
	Kind     Kind      `json:"kind"`
	Host     string    `json:"host"`
	At       time.Time `json:"at"`
	Incident
	Link string `json:"link,omitempty"` // the page at that moment
}

// Incident is harm from its beginning to its end.
type Incident struct {
	ID       string     `json:"incident"`
	Severity Severity   `json:"severity"`
	Began    time.Time  `json:"began"`
	Ended    *time.Time `json:"ended"` // null while it lasts
	Title    string     `json:"title"`
	// Cause is empty while it is not known.
	Cause      string    `json:"cause,omitempty"`
	Confidence float64   `json:"confidence,omitempty"` // 0 to 1
	Impact     string    `json:"impact,omitempty"`
	Services   []Service `json:"services,omitempty"`  // most harmed first
	Explained  float64   `json:"explained,omitempty"` // of the time that was lost on this host, 0 to 1
	RuledOut   int       `json:"causes_ruled_out,omitempty"`
	NotChecked int       `json:"causes_not_checked,omitempty"`
	// Signs are causes that were ruled out though there was a sign of them, and why: "ID: …".
	Signs    []string `json:"ruled_out,omitempty"`
	Fix      string   `json:"fix,omitempty"`
	Commands []string `json:"commands,omitempty"`
	Prove    string   `json:"prove,omitempty"`
	// Of a fleet: what those that suffer have in common, the hosts that they are on (the
	// first mostHosts of HostCount), and commands by which to go on.
	Component string   `json:"component,omitempty"`
	Hosts     []string `json:"hosts,omitempty"`
	HostCount int      `json:"host_count,omitempty"`
	Next      []string `json:"next,omitempty"`
	// Labels are what was known of it at its begin, and stays as it was: receivers know an
	// alert by its labels.
	Labels map[string]string `json:"labels,omitempty"`
}

// headline says all in a line, whatever the names in it are.
func (m *Message) headline() string { return printable.Text(m.summary()) }

func (m *Message) summary() string {
	names := make([]string, 0, 3)
	for i := range m.Services {
		if i == 2 {
			names = append(names, fmt.Sprintf("and %d more", len(m.Services)-i))
			break
		}
		names = append(names, m.Services[i].Name)
	}
	who := strings.Join(names, ", ")
	if who != "" {
		who = ": " + who
	}
	word := strings.ToUpper(string(m.Severity))
	switch m.Kind {
	case End:
		lasted := ""
		if m.Ended != nil {
			lasted = " after " + figure.Seconds(m.Ended.Sub(m.Began).Round(time.Second).Seconds())
		}
		return fmt.Sprintf("OVER%s  %s%s on %s", lasted, m.Title, who, m.where())
	case Test:
		return fmt.Sprintf("TEST  %s on %s", m.Title, m.Host)
	case Begin, Update:
	}
	return fmt.Sprintf("%s  %s%s on %s", word, m.Title, who, m.where())
}

// where is the host, or how many hosts of a fleet.
func (m *Message) where() string {
	switch {
	case m.HostCount == 1 && len(m.Hosts) == 1:
		return m.Hosts[0] + " of " + m.Host
	case m.HostCount > 0:
		return figure.Count(m.HostCount) + " hosts of " + m.Host
	}
	return m.Host
}

// labelsOf are the labels of a fleet's incident: its component and its hosts.
func labelsOf(i *Incident) map[string]string {
	if i.Component == "" {
		return nil
	}
	const most = 8
	hosts := strings.Join(i.Hosts[:min(len(i.Hosts), most)], ",")
	if more := i.HostCount - most; more > 0 {
		hosts += fmt.Sprintf(" and %d more", more)
	}
	return map[string]string{"component": printable.Text(i.Component), "hosts": printable.Text(hosts)}
}

// details are the lines below the headline.
func (m *Message) details() []string {
	var lines []string
	// A name with a line feed must not look like a line of slowray's own: fix: …
	add := func(format string, args ...any) { lines = append(lines, printable.Text(fmt.Sprintf(format, args...))) }
	if m.Impact != "" {
		add("%s", m.Impact)
	}
	for i := range m.Services[:min(len(m.Services), 3)] {
		if s := &m.Services[i]; s.Text != "" && s.Text != m.Impact {
			add("%s: %s", s.Name, s.Text)
		}
	}
	if m.Cause != "" {
		add("cause: %s, confidence %.2f; %d causes ruled out, %d not checked", m.Cause, m.Confidence, m.RuledOut, m.NotChecked)
	}
	if m.Kind != End {
		if m.Fix != "" {
			add("fix: %s", m.Fix)
		}
		for _, c := range m.Commands { // some change something, some show where to
			add("run: %s", c)
		}
		for _, c := range m.Next {
			add("next: %s", c)
		}
	}
	if len(m.Hosts) > 1 {
		add("hosts: %s", strings.Join(m.Hosts, ", "))
	}
	if m.Link != "" {
		add("%s", m.Link)
	}
	return lines
}

// JSON is the message as receivers get it.
func (m *Message) JSON() ([]byte, error) { return json.Marshal(m) }
