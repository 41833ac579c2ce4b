package alert

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Config is the file of rules (docs/alerts.md).
type Config struct {
	// For is how long harm has to last before an alert is sent.
	For Duration `json:"for"`
	// ResolveAfter is how long harm has to be away before it is over.
	ResolveAfter Duration `json:"resolve_after"`
	// Critical is from where on an incident is critical; below it is a warning.
	Critical Level `json:"critical"`
	// Silent are hours in which nothing begins: what is still there afterwards is sent then.
	Silent    []Silence  `json:"silent"`
	Routes    []Route    `json:"routes"` // the first that matches; without one everything goes to all receivers
	Receivers []Receiver `json:"receivers"`
}

// Level is an amount of harm.
type Level struct {
	Share       float64 `json:"share"`                   // of the requests of one service, 0 to 1
	LostSeconds float64 `json:"lost_seconds_per_minute"` // that clients waited in vain
}

// Silence is hours of some days, in local time.
type Silence struct {
	Days []string `json:"days"` // "mon" … "sun"; every day where left out
	From string   `json:"from"` // "22:00"
	To   string   `json:"to"`   // "06:00": of the next day where it is before From
	Even bool     `json:"even_critical"`
}

// Route chooses receivers. A pattern is that of path.Match; what is left out matches all.
type Route struct {
	Cause     string   `json:"cause"`
	Service   string   `json:"service"` // "nginx:8080"
	Severity  Severity `json:"severity"`
	Host      string   `json:"host"`      // of a fleet: any of the hosts
	Component string   `json:"component"` // of a fleet: "dependency 10.0.0.7:3306"
	To        []string `json:"to"`
}

// Receiver is one of its kinds.
type Receiver struct {
	Name         string        `json:"name"`
	Alertmanager *Endpoint     `json:"alertmanager"`
	Webhook      *Endpoint     `json:"webhook"`
	Slack        *Endpoint     `json:"slack"`
	PagerDuty    *PagerDuty    `json:"pagerduty"`
	Command      *CommandLine  `json:"command"`
	Timeout      Duration      `json:"timeout"`
	patience     time.Duration // Timeout, or the usual
}

// Endpoint is where HTTP requests go.
type Endpoint struct {
	URL     string `json:"url"`
	URLFile string `json:"url_file"` // where the address is a secret
	// SecretFile holds the key that a webhook's messages are signed with.
	SecretFile string            `json:"secret_file"`
	Headers    map[string]string `json:"headers"`

	url    string
	secret []byte
}

// PagerDuty is an integration of Events API v2.
type PagerDuty struct {
	RoutingKeyFile string `json:"routing_key_file"`
	URL            string `json:"url"` // of another region

	key, url string
}

// CommandLine is a program that gets the message on its standard input.
type CommandLine []string

// Duration is written as 30s or 5m.
type Duration time.Duration

// wrongDuration stands for a text that is none, until check names the field that it is of.
const wrongDuration Duration = -1

// UnmarshalJSON reads it.
func (d *Duration) UnmarshalJSON(b []byte) error {
	v, err := time.ParseDuration(strings.Trim(string(b), `"`))
	if *d = Duration(v); err != nil || v < 0 {
		*d = wrongDuration
	}
	return nil
}

const (
	defaultFor     = 30 * time.Second
	defaultResolve = 3 * time.Minute
	defaultTimeout = 10 * time.Second
	pagerDutyURL   = "https://events.pagerduty.com/v2/enqueue"
	maxConfig      = 256 << 10
	maxSecret      = 4 << 10
	mostReceivers  = 32
)

// Load reads a file of rules. It may hold addresses of programs that root runs and
// secrets: nobody else may be able to change it, or the directories that it is in.
func Load(name string) (*Config, error) {
	text, err := trusted(name, maxConfig)
	if err != nil {
		return nil, err
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i := range c.Receivers {
		if err := c.Receivers[i].secrets(); err != nil {
			return nil, fmt.Errorf("%s: receiver %s: %w", name, c.Receivers[i].Name, err)
		}
	}
	return c, nil
}

// trusted reads a file that only root and who runs this can change.
func trusted(name string, most int64) ([]byte, error) {
	if !filepath.IsAbs(name) {
		abs, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		name = abs
	}
	f, err := openTrusted(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: is longer than %d bytes", name, most)
	}
	return text, err
}

func parse(text []byte) (*Config, error) {
	c := &Config{For: Duration(defaultFor), ResolveAfter: Duration(defaultResolve), Critical: Level{Share: 0.2, LostSeconds: 600}}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, oneLine(err)
	}
	return c, c.check()
}

// oneLine keeps what a person needs of a parser's error.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, prefix := range []string{"error unmarshaling JSON: ", "error converting YAML to JSON: ", "while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return errors.New(text)
}

func (c *Config) check() error {
	for name, d := range map[string]Duration{"for": c.For, "resolve_after": c.ResolveAfter} {
		if d == wrongDuration {
			return fmt.Errorf("%s: give a duration as 30s or 5m", name)
		}
	}
	if len(c.Receivers) == 0 || len(c.Receivers) > mostReceivers {
		return fmt.Errorf("receivers: there are %d: give 1 to %d", len(c.Receivers), mostReceivers)
	}
	if c.Critical.Share < 0 || c.Critical.Share > 1 || c.Critical.LostSeconds < 0 {
		return errors.New("critical: share is 0 to 1, lost_seconds_per_minute is not negative")
	}
	var names []string
	for i := range c.Receivers {
		r := &c.Receivers[i]
		if r.Name == "" || slices.Contains(names, r.Name) {
			return fmt.Errorf("receiver %d: needs a name of its own", i+1)
		}
		names = append(names, r.Name)
		if err := r.check(); err != nil {
			return fmt.Errorf("receiver %s: %w", r.Name, err)
		}
	}
	for i, r := range c.Routes {
		for _, pattern := range []string{r.Cause, r.Service, r.Host, r.Component} {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("route %d: %q is no pattern", i+1, pattern)
			}
		}
		if r.Severity != "" && r.Severity != Warning && r.Severity != Critical {
			return fmt.Errorf("route %d: severity %q: must be %s or %s", i+1, r.Severity, Warning, Critical)
		}
		for _, to := range r.To {
			if !slices.Contains(names, to) {
				return fmt.Errorf("route %d: there is no receiver %q", i+1, to)
			}
		}
	}
	for i, s := range c.Silent {
		if _, _, err := s.hours(); err != nil {
			return fmt.Errorf("silent %d: %w", i+1, err)
		}
		for _, d := range s.Days {
			if !slices.Contains(weekdays, d) {
				return fmt.Errorf("silent %d: %q is no day: mon, tue, wed, thu, fri, sat or sun", i+1, d)
			}
		}
	}
	return nil
}

func (r *Receiver) check() error {
	kinds := 0
	for _, set := range []bool{r.Alertmanager != nil, r.Webhook != nil, r.Slack != nil, r.PagerDuty != nil, r.Command != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return errors.New("give one of alertmanager, webhook, slack, pagerduty, command")
	}
	if r.Timeout == wrongDuration {
		return errors.New("timeout: give a duration as 30s or 5m")
	}
	if r.patience = time.Duration(r.Timeout); r.patience == 0 {
		r.patience = defaultTimeout
	}
	if e := r.endpoint(); e != nil {
		if (e.URL == "") == (e.URLFile == "") {
			return errors.New("give url or url_file")
		}
		return checkURL(e.URL)
	}
	if p := r.PagerDuty; p != nil {
		if p.RoutingKeyFile == "" {
			return errors.New("give routing_key_file")
		}
		return checkURL(p.URL)
	}
	if len(*r.Command) == 0 || !filepath.IsAbs((*r.Command)[0]) {
		return errors.New("command: give the full path of a program, and its arguments")
	}
	return nil
}

// endpoint is where HTTP requests go; nil where none do, or to PagerDuty.
func (r *Receiver) endpoint() *Endpoint {
	switch {
	case r.Alertmanager != nil:
		return r.Alertmanager
	case r.Webhook != nil:
		return r.Webhook
	}
	return r.Slack
}

func checkURL(text string) error {
	if text == "" {
		return nil // in a file, or the usual one
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("url: must be http://… or https://…") // it may be a secret
	}
	return nil
}

// secrets reads what is in files of their own.
func (r *Receiver) secrets() error {
	read := func(name string) (string, error) {
		text, err := trusted(name, maxSecret)
		return strings.TrimSpace(string(text)), err
	}
	if e := r.endpoint(); e != nil {
		e.url = e.URL
		if e.URLFile != "" {
			text, err := read(e.URLFile)
			if err == nil && text == "" {
				err = fmt.Errorf("%s: is empty", e.URLFile)
			}
			if err == nil {
				err = checkURL(text)
			}
			if err != nil {
				return err
			}
			e.url = text
		}
		if e.SecretFile != "" {
			text, err := read(e.SecretFile)
			if err == nil && text == "" {
				err = fmt.Errorf("%s: is empty", e.SecretFile)
			}
			if err != nil {
				return err
			}
			e.secret = []byte(text)
		}
	}
	if p := r.PagerDuty; p != nil {
		text, err := read(p.RoutingKeyFile)
		if err == nil && text == "" {
			err = fmt.Errorf("%s: is empty", p.RoutingKeyFile)
		}
		if err != nil {
			return err
		}
		if p.key, p.url = text, p.URL; p.url == "" {
			p.url = pagerDutyURL
		}
	}
	return nil
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// hours are its bounds, in minutes of the day. Where to is not later than from, it is of the
// next day.
func (s *Silence) hours() (from, to int, err error) {
	minute := func(text string) (int, error) {
		if text == "24:00" {
			return 24 * 60, nil
		}
		t, err := time.Parse("15:04", text)
		if err != nil {
			return 0, fmt.Errorf("%q is no time: give 22:00", text)
		}
		return t.Hour()*60 + t.Minute(), nil
	}
	if from, err = minute(s.From); err != nil {
		return 0, 0, err
	}
	to, err = minute(s.To)
	return from, to, err
}

// silent says whether nothing is to begin now.
func (c *Config) silent(now time.Time, severity Severity) bool {
	minute := now.Hour()*60 + now.Minute()
	for i := range c.Silent {
		s := &c.Silent[i]
		from, to, err := s.hours()
		if err != nil || severity == Critical && !s.Even {
			continue
		}
		on := func(day time.Weekday) bool {
			return len(s.Days) == 0 || slices.Contains(s.Days, weekdays[day%7])
		}
		today, yesterday := now.Weekday(), now.Weekday()+6
		switch {
		case from < to && minute >= from && minute < to && on(today):
			return true
		case from >= to && minute >= from && on(today):
			return true
		case from >= to && minute < to && on(yesterday):
			return true
		}
	}
	return false
}

// to are the receivers of an incident.
func (c *Config) to(i *Incident) (names []string) {
	match := func(pattern, text string) bool {
		ok, err := path.Match(pattern, text)
		return pattern == "" || err == nil && ok
	}
	for _, r := range c.Routes {
		services := len(i.Services) == 0 && r.Service == ""
		for _, s := range i.Services {
			services = services || match(r.Service, s.Name)
		}
		hosts := r.Host == "" || slices.ContainsFunc(i.Hosts, func(host string) bool { return match(r.Host, host) })
		if match(r.Cause, i.Cause) && services && hosts && match(r.Component, i.Component) && (r.Severity == "" || r.Severity == i.Severity) {
			return r.To
		}
	}
	if len(c.Routes) > 0 {
		return nil
	}
	for i := range c.Receivers {
		names = append(names, c.Receivers[i].Name)
	}
	return names
}
