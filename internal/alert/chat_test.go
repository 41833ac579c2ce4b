package alert

import (
	"strings"
	"testing"
)

// TestChatMarkup: a process cannot notify a room, lead to another site, or write in bold by its
// name; commands can be copied as they are.
func TestChatMarkup(t *testing.T) {
	const link = "http://127.0.0.1:7788/#/?from=1"
	for name, want := range map[string]string{
		"@all":             "@\u200ball",
		"[x](http://evil)": "[x]\u200b(http:\u200b//evil)",
		"*_":               "\u2217\u02cd",
		"<!channel>":       "&lt;!channel&gt;",
		"php_fpm":          "php_fpm",
	} {
		m := &Message{Kind: Begin, Host: "h", Link: link, Incident: Incident{Title: name + ": all fail", Severity: Warning,
			Services: []Service{{Name: name, Text: "slow"}}, Commands: []string{"ls /tmp/*_ # " + name}}}
		text := slackText(m)
		if n := strings.Count(text, want); n < 3 {
			t.Errorf("%q: %d times %q in %q", name, n, want, text)
		}
		if !strings.HasSuffix(text, "\n"+link) || !strings.Contains(text, "run: ls /tmp/*_ ") {
			t.Errorf("%q: link or command changed: %q", name, text)
		}
		if strings.Contains(text, "@all") || strings.Contains(text, "](") {
			t.Errorf("%q: %q", name, text)
		}
	}
}
