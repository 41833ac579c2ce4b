package alert

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/printable"
)

// errRefused is wrapped by an error that a further attempt would meet again.
var errRefused = errors.New("refused")

// client follows no redirect: a message goes where the rules say, and nowhere else.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// send delivers a message. What wraps errRefused is of no use to try again.
func (r *Receiver) send(ctx context.Context, m *Message) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	switch {
	case r.Alertmanager != nil:
		return r.Alertmanager.post(ctx, "/api/v2/alerts", alertmanagerBody(m, time.Now()), nil)
	case r.Webhook != nil:
		return r.Webhook.post(ctx, "", m, m)
	case r.Slack != nil:
		return r.Slack.post(ctx, "", map[string]string{"text": slackText(m)}, nil)
	case r.PagerDuty != nil:
		body := r.PagerDuty.body(m)
		return (&Endpoint{url: r.PagerDuty.url}).post(ctx, "", body, nil)
	}
	return r.Command.run(ctx, m)
}

// post sends JSON. Where signed is given and there is a secret the body is signed.
func (e *Endpoint) post(ctx context.Context, path string, body any, signed *Message) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	to := e.url
	if path != "" && !strings.HasSuffix(to, path) {
		to = strings.TrimSuffix(to, "/") + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(text))
	if err != nil {
		return errors.New("the address is none") // it may be a secret
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "slowray")
	for k, v := range e.Headers {
		req.Header.Set(k, v)
	}
	if signed != nil {
		req.Header.Set("Slowray-Delivery", signed.Delivery)
		if len(e.secret) > 0 {
			req.Header.Set("Slowray-Signature", Sign(e.secret, time.Now(), text))
		}
	}
	w, err := client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the address, which may be a secret
		}
		return err
	}
	defer w.Body.Close()
	const most = 4 << 10
	said, _ := io.ReadAll(io.LimitReader(w.Body, most)) // only for the error
	if w.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("status %d: %s", w.StatusCode, strings.Join(strings.Fields(clip(string(said), 200)), " "))
	switch {
	case w.StatusCode/100 == 4 && w.StatusCode != http.StatusRequestTimeout && w.StatusCode != http.StatusTooManyRequests &&
		w.StatusCode != http.StatusUnauthorized && w.StatusCode != http.StatusForbidden && w.StatusCode != http.StatusNotFound:
		// Of the last three a person may make good without a restart.
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// Sign is the header Slowray-Signature: the time in s since 1970, and the HMAC-SHA256 of
// that, a dot and the body. Who checks it refuses old times.
func Sign(secret []byte, now time.Time, body []byte) string {
	t := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

const (
	// refreshEvery is how often Alertmanager hears that an alert goes on; refreshFor is
	// after how long without it takes it for over: should slowray die.
	refreshEvery = time.Minute
	refreshFor   = 5 * time.Minute
)

// alertmanagerBody is an alert of API v2. Its labels are the same from the beginning to the
// end, whatever becomes known meanwhile: by them it is one. One that waited for long goes on
// from now, when it is sent, or Alertmanager would take it for over.
func alertmanagerBody(m *Message, now time.Time) any {
	labels := map[string]string{"alertname": "slowray", "incident": m.ID, "instance": m.Host}
	maps.Copy(labels, m.Labels)
	if m.Kind == Test {
		labels["alertname"] = "slowray-test"
	}
	annotations := map[string]string{"summary": m.headline(), "description": strings.Join(m.details(), "\n"), "severity": string(m.Severity)}
	if m.Cause != "" {
		annotations["cause"] = m.Cause
	}
	if len(m.Hosts) > 0 {
		annotations["hosts"] = strings.Join(m.Hosts, ", ")
	}
	alert := map[string]any{"labels": labels, "annotations": annotations, "startsAt": m.Began.Format(time.RFC3339Nano)}
	if m.Kind == End {
		alert["endsAt"] = m.At.Format(time.RFC3339Nano)
	} else {
		alert["endsAt"] = now.Add(refreshFor).UTC().Format(time.RFC3339Nano)
	}
	if m.Link != "" {
		alert["generatorURL"] = m.Link
	}
	return []any{alert}
}

// slackText is the message for chat rooms: in Slack's mrkdwn three characters are special, in
// Mattermost and Rocket.Chat Markdown is. Names come from whoever names a process.
func slackText(m *Message) string {
	lines := append([]string{m.headline()}, m.details()...)
	for i, line := range lines {
		if line == printable.Text(m.Link) {
			continue
		}
		// Commands are copied: there only what notifies people or leads elsewhere is broken.
		lines[i] = breakLinks.Replace(line)
		if !strings.HasPrefix(line, "run: ") && !strings.HasPrefix(line, "next: ") {
			lines[i] = breakEmphasis(lines[i])
		}
	}
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	return escape.Replace(strings.Join(lines, "\n"))
}

// breakLinks has a zero-width space in mentions and links.
var breakLinks = strings.NewReplacer("@", "@\u200b", "](", "]\u200b(", "][", "]\u200b[", "://", ":\u200b//")

// breakEmphasis gives what makes emphasis or code the look of it. An underscore within a word,
// as in names of settings, makes none.
func breakEmphasis(line string) string {
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' }
	runes := []rune(line)
	for i, r := range runes {
		switch {
		case r == '*':
			runes[i] = '\u2217'
		case r == '`':
			runes[i] = '\u02cb'
		case r == '~':
			runes[i] = '\u223c'
		case r == '_' && (i == 0 || i+1 == len(runes) || !word(runes[i-1]) || !word(runes[i+1])):
			runes[i] = '\u02cd'
		}
	}
	return string(runes)
}

// body is an event of Events API v2. The incident is its dedup_key.
func (p *PagerDuty) body(m *Message) any {
	const mostSummary = 1024 // characters, of the API
	event := map[string]any{"routing_key": p.key, "dedup_key": "slowray-" + m.ID, "event_action": "trigger"}
	if m.Kind == End {
		event["event_action"] = "resolve"
		return event
	}
	payload := map[string]any{
		"summary": clip(m.headline(), mostSummary-8), "source": m.Host, "severity": m.Severity, "timestamp": m.Began.Format(time.RFC3339Nano),
		"class": m.Cause, "custom_details": m,
	}
	if len(m.Services) > 0 {
		payload["component"] = m.Services[0].Name
	}
	event["payload"] = payload
	if m.Link != "" {
		event["links"] = []any{map[string]string{"href": m.Link, "text": "slowray at that moment"}}
	}
	return event
}

// run hands the message to a program that only root and who runs this can change.
func (c *CommandLine) run(ctx context.Context, m *Message) error {
	name := (*c)[0]
	program, err := openTrusted(name)
	if err != nil {
		return err
	}
	defer program.Close()
	text, err := m.JSON()
	if err != nil {
		return err
	}
	said := budget.Prefix{Most: 4 << 10}
	child := exec.CommandContext(ctx, "/proc/self/fd/3", (*c)[1:]...) // what was checked is run, whatever has the name by now
	child.Args[0] = name
	child.ExtraFiles = []*os.File{program}
	child.Stdin, child.Stderr = bytes.NewReader(text), &said
	child.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"SLOWRAY_KIND=" + string(m.Kind), "SLOWRAY_INCIDENT=" + m.ID, "SLOWRAY_DELIVERY=" + m.Delivery, "SLOWRAY_SEVERITY=" + string(m.Severity), "SLOWRAY_TEXT=" + m.headline()}
	// What it has started ends with it when it takes too long.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
	child.WaitDelay = time.Second
	err = child.Run()
	if errors.Is(err, exec.ErrWaitDelay) && child.ProcessState.Success() && ctx.Err() == nil {
		err = nil // something that it left behind holds its output: to send again would leave more
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(clip(string(said.Text), 200)), " "))
	}
	return nil
}
