package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/database"
)

// What is asked, in one go: INFO, SLOWLOG, and settings as they are now, which a
// command line or CONFIG SET may have made other than the configuration file's.
var (
	settings  = []string{"slowlog-log-slower-than", "appendfsync", "save", "io-threads"}
	questions = "INFO\r\n" + askSlow + "CONFIG GET " + strings.Join(settings, "\r\nCONFIG GET ") + "\r\n"
	answers   = 2 + len(settings)
)

const (
	askSlow = "SLOWLOG GET 128\r\n"
	// patience is how long a server may take to answer.
	patience   = 300 * time.Millisecond
	maxAnswers = 4 << 20
)

// status is what a server told at one moment.
type status struct {
	figures    map[string]float64 // of INFO
	texts      map[string]string  // of INFO
	settings   map[string]string  // of CONFIG GET
	slowerThan int64              // µs; -1 = nothing is logged
	slow       []slowCommand
	lastID     int64 // of the latest entry of SLOWLOG, -1 when there is none
	refused    string
}

// ask asks the server once. An error says why nothing is known; a server that
// refuses the connection or needs a password is reported in refused.
func ask(budget *budget.Budget, dial database.Dial) (*status, error) {
	if dial == nil {
		return nil, errors.New("it was not asked")
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(patience, budget.TimeLeft()))
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	b, err := database.Ask(ctx, conn, questions, maxAnswers, func(b []byte) bool {
		list, err := parseReplies(budget, b, answers)
		return !errors.Is(err, errIncomplete) || len(list) == 1 && list[0].kind == '-' && closing(list[0].text)
	})
	if err != nil {
		return nil, err
	}
	list, err := parseReplies(budget, b, answers)
	if over := budget.Err(); over != nil {
		return nil, over
	}
	if errors.Is(err, errProtocol) || len(list) == 0 {
		return nil, errProtocol
	}
	s := &status{lastID: -1, slowerThan: -2, settings: map[string]string{}}
	for i, r := range list {
		if r.kind == '-' {
			if s.refused == "" && i == 0 {
				s.refused = r.text
			}
			continue
		}
		switch i {
		case 0:
			s.info(r.text)
		case 1:
			s.slowlog(r.list)
		default:
			if len(r.list) == 2 { // empty where it knows no such setting
				s.settings[settings[i-2]] = r.list[1].text
			}
		}
	}
	if n, err := strconv.ParseInt(s.settings["slowlog-log-slower-than"], 10, 64); err == nil {
		s.slowerThan = n
	}
	return s, nil
}

// closing says that a server says no more after this.
func closing(refusal string) bool {
	return strings.Contains(refusal, "max number of clients") || strings.HasPrefix(refusal, "DENIED")
}

// info reads "name:value" lines. Figures of a line with parts, as of a
// database's keys, are left out.
func (s *status) info(text string) {
	s.figures, s.texts = map[string]float64{}, map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || len(s.texts) >= 2000 || strings.HasPrefix(name, "#") {
			continue
		}
		s.texts[name] = value
		if n, err := database.Figure(value); err == nil {
			s.figures[name] = n
		}
	}
}

// slowlog reads the entries: id, second, microseconds, arguments, client, name.
func (s *status) slowlog(list []reply) {
	for _, e := range list {
		if len(e.list) < 4 {
			continue
		}
		id, err1 := strconv.ParseInt(e.list[0].text, 10, 64)
		second, err2 := strconv.ParseInt(e.list[1].text, 10, 64)
		micros, err3 := strconv.ParseInt(e.list[2].text, 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			continue
		}
		c := slowCommand{id: id, second: second, tookNS: micros * 1000, command: command(e.list[3].list)}
		if len(e.list) > 4 {
			c.client = e.list[4].text
		}
		s.lastID = max(s.lastID, id)
		s.slow = append(s.slow, c)
	}
}
