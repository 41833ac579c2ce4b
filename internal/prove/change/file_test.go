package change

import (
	"fmt"
	"os"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func TestFile(t *testing.T) {
	needRoot(t)
	const file = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap"
	read := func() string {
		b, _ := os.ReadFile(file)
		return string(b)
	}
	if read() == "" {
		t.Skip("SKIPPED: this kernel has no " + file)
	}
	n := atoi(t, read())
	c := &cause.Change{Kind: cause.ChangeFile, Path: file, Value: fmt.Sprint(n + 1)}
	was := cycle(t, c, read, func() error {
		if atoi(t, read()) != n+1 {
			return fmt.Errorf("%s", read())
		}
		return nil
	})
	d, _ := For(c.Kind)
	defer func() { must(t, d.Undo(c, was)) }()
	must(t, d.Apply(c, was))
	must(t, os.WriteFile(file, []byte(fmt.Sprint(n+2)), 0o644))
	check(t, d, c, was, "changed by another", false, fmt.Sprint(n+2))

	for path, words := range map[string]string{
		"/sys/power/state":                                    "never written",
		"/etc/passwd":                                         "never written",
		"/sys/block/../../etc/queue/x":                        "never written",
		"/sys/block/none/queue/scheduler":                     "no such file",
		"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size":  "not permitted",
		"/sys/kernel/mm/transparent_hugepage/khugepaged/none": "no such file",
	} {
		refuses(t, &cause.Change{Kind: cause.ChangeFile, Path: path, Value: "1"}, words)
	}
	refuses(t, &cause.Change{Kind: cause.ChangeFile, Path: "/sys/kernel/mm/transparent_hugepage/enabled", Value: "sometimes"}, "offers")
	if got := selected("[none] mq-deadline kyber\n") + selected("none [kyber]\n") + selected("75000\n"); got != "nonekyber75000" {
		t.Errorf("selected: %s", got)
	}
}
