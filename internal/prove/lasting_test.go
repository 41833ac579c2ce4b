package prove

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

func TestLasting(t *testing.T) {
	tests := []struct {
		change cause.Change
		want   string
	}{
		{cause.Change{Kind: cause.ChangeSysctl, Name: "net.netfilter.nf_conntrack_max", Value: "262144"}, "echo 'net.netfilter.nf_conntrack_max = 262144' >> /etc/sysctl.d/90-slowray.conf"},
		{cause.Change{Kind: cause.ChangeSysctl, Name: "net.core.somaxconn", Value: "4096", NetNS: 7}, "--sysctl net.core.somaxconn=4096"},
		{cause.Change{Kind: cause.ChangeBacklog, Addr: "::1", Port: 80, Value: "4096"}, "[::1]:80"},
		{cause.Change{Kind: cause.ChangeRlimit, Name: "nofile", Value: "65536", PID: 9}, "LimitNOFILE=65536"},
		{cause.Change{Kind: cause.ChangeConfig, Name: "worker_connections", Value: "2048", Path: "/etc/nginx/nginx.conf"}, "in /etc/nginx/nginx.conf already"},
		{cause.Change{Kind: cause.ChangeRule, Text: "a rule", Rule: &cause.Rule{Text: "-j DROP"}}, "-j DROP"},
		{cause.Change{Kind: cause.ChangeRule, Text: "a rule"}, "a rule"},
		{cause.Change{Kind: "new", Text: "as it says"}, "as it says"},
	}
	for _, tt := range tests {
		if got := Lasting([]cause.Change{tt.change}); len(got) != 1 || !strings.Contains(got[0].String(), tt.want) {
			t.Errorf("%+v: %q, want %q in it", tt.change, got, tt.want)
		}
	}
}

// TestEveryKind tells of each kind that is declared, and of no kind only its text.
func TestEveryKind(t *testing.T) {
	for _, kind := range []cause.ChangeKind{
		cause.ChangeSysctl, cause.ChangeBacklog, cause.ChangeSocketOption, cause.ChangeRlimit, cause.ChangePipeSize, cause.ChangeCgroup,
		cause.ChangeQdisc, cause.ChangeMTU, cause.ChangeAffinity, cause.ChangeNice, cause.ChangeContinue, cause.ChangeFile,
		cause.ChangeConfig, cause.ChangeSetting,
	} {
		if got := Lasting([]cause.Change{{Kind: kind, Text: "just the text"}}); got[0].String() == "# just the text" || strings.Contains(got[0].String(), "%!") {
			t.Errorf("%s: %q", kind, got[0])
		}
	}
}
