package language

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func newChinese(t *testing.T) *Language {
	t.Helper()
	l, err := New("zh")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestText(t *testing.T) {
	l := newChinese(t)
	for _, c := range []struct{ english, want string }{
		{"The accept queue overflows", "全连接队列溢出"},
		{"20 of 40 accept() calls failed", "40 次 accept() 中 20 次失败"},
		// A place that is a sentence itself.
		{"a request on :8000 takes 224 ms on average, 220 ms of it waiting for accept()", ":8000 上的请求平均耗时 224 ms，其中 220 ms 在等 accept()"},
		// Several sentences, of which one has a place that could take all that follows.
		{"Let app run on more CPUs than 0. A cpuset (/x) keeps it there: taskset does not help. Set it on the host, not in the container.",
			"允许 app 使用 CPU 0 以外的更多 CPU。它被 cpuset（/x）限定：taskset 没有用。在宿主机上设置，不是在容器里。"},
		{"nginx :80  p99 5 s, 3.0 % errors, 3 hang since 12:00:01; and 2 more services", "nginx :80  p99 5 s，3.0 % 错误，3 个挂起，自 12:00:01 起；另有 2 个服务"},
		{"3 requests of nginx :80 had no answer after 1 s: do they hang? slowray requests --port 80", "nginx :80 有 3 个请求 1 s 后仍无应答：是否挂起？slowray requests --port 80"},
		{"12:00:01 to 12:05:01, in 3 of 30 windows; the figures are of the one at 12:01:01, the share of all", "12:00:01 至 12:05:01，30 个窗口中的 3 个；数字取自 12:01:01 的窗口，占比为全部窗口"},
		{"5 of 7 causes could not be checked (run as root): not permitted, …", "7 个原因中有 5 个无法检查（请用 root 运行）：权限不足，…"},
		// English that it does not have is not mixed with Chinese.
		{"the longest of them runs, and it waits for the disk", "the longest of them runs, and it waits for the disk"},
		// What the catalogue does not have stays as it is, names too.
		{"SELECT a, b FROM c", "SELECT a, b FROM c"},
		{"  ", "  "},
		{"", ""},
	} {
		if got := l.Text(c.english); got != c.want {
			t.Errorf("%q:\n got %q\nwant %q", c.english, got, c.want)
		}
	}
}

func TestSprintf(t *testing.T) {
	l := newChinese(t)
	if got, want := l.Sprintf("%s of %s: %s", "40 %", "slow time", "The accept queue overflows"), "占慢请求时间 40 %：全连接队列溢出"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := l.Sprintf("no such format %d %%", 3), "no such format 3 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var english *Language
	if got, want := english.Sprintf("%d of %s", 3, "requests"), "3 of requests"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"a place is missing":  "{1} of {2}\n\t{1}\n",
		"a place too many":    "{1} of them\n\t{1} {2}\n",
		"a place twice":       "{1} of them\n\t{1} {1}\n",
		"places in a row":     "{1}{2} of them\n\t{1} {2}\n",
		"no translation":      "one\ntwo\n\tzwei\n",
		"none at the end":     "one\n",
		"the same twice":      "one\n\teins\none\n\tein\n",
		"nothing to say":      "\teins\n",
		"a place out of turn": "{2} of {1}\n\t{1} {2}\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestOfEnvironment(t *testing.T) {
	for _, c := range []struct {
		set  map[string]string
		want string
	}{
		{nil, "en"},
		{map[string]string{"LANG": "zh_CN.UTF-8"}, "zh"},
		{map[string]string{"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"},
		{map[string]string{"LANG": "de_DE.UTF-8"}, "en"},
		{map[string]string{"LANG": "zhx"}, "en"},
	} {
		if got := OfEnvironment(func(name string) string { return c.set[name] }); got != c.want {
			t.Errorf("%v: %s, want %s", c.set, got, c.want)
		}
	}
}

// TestHostileText: names come from other hosts; text made of nothing but what separates
// sentences must not take long.
func TestHostileText(t *testing.T) {
	l := newChinese(t)
	for _, unit := range []string{", ", "a of b, ", "x in network namespace ", "; : ", "Let . ", "{1}"} {
		begin := time.Now()
		l.Text(strings.Repeat(unit, 10000))
		l.Text(strings.Repeat(unit, longest/len(unit)))
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("%q: %s", unit, d)
		}
	}
}

// TestEachSentence: with names in its places each sentence of the catalogue is read as itself,
// not as another one.
func TestEachSentence(t *testing.T) {
	l := newChinese(t)
	for i := range l.sentences {
		s := &l.sentences[i]
		names := make([]string, len(s.literals)-1)
		for j := range names {
			names[j] = "Name" + strconv.Itoa(j+1)
		}
		text := s.literals[0]
		for j, name := range names {
			text += name + s.literals[j+1]
		}
		if got, want := l.Text(text), s.fill(names); got != want && !s.weak {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}
