package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// NSSStall: names of hosts and users are looked up through a daemon, over a
// unix socket (nsswitch.conf(5)), and that does not answer.
const NSSStall ID = "nss-stall"

var nssStall = Cause{
	ID:            NSSStall,
	Title:         "The name service daemon (nscd, sssd) is slow",
	Layer:         LayerCall,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{DNSTimeout, DNSSlow},
	Folds:         true,
	Check:         checkNSSStall,
}

// nameSockets are where name service daemons listen.
var nameSockets = []string{"/nscd/socket", "/lib/sss/pipes/", "/run/systemd/resolve/", "/run/systemd/userdb/", "/winbindd/pipe", "/run/nslcd/socket", "/avahi-daemon/socket"}

func isNameSocket(object string) bool {
	return slices.ContainsFunc(nameSockets, func(name string) bool { return strings.Contains(object, name) })
}

func checkNSSStall(v *View) Result {
	return v.judgeRoots(NSSStall, "no thread that answers requests was held up by a name service daemon", func(r *root, f *Finding) {
		c, h := r.example(), r.blamed()
		f.Evidence = append(f.Evidence, Evidence{Fact: "asked at", Value: objectOf(h), Source: "sock_diag, unix"})
		f.Fix.Text = "Find the daemon that listens there, and restart it; or take it out of nsswitch.conf."
		if r.at < len(c.Hops)-1 {
			daemon := &c.Hops[r.at+1]
			f.Title = fmt.Sprintf("Requests wait for the name service daemon %s", daemon.Process.Comm)
			f.Fix.Text = fmt.Sprintf("%s does not answer: it %s. Fix or restart it, or take it out of nsswitch.conf.", who(daemon), ownerText(c, r.at+1))
			f.Fix.Commands = []shell.Command{lookAtWaits(daemon.Process.PID)}
		}
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("grep -E 'hosts|passwd|group' /proc/%s/root/etc/nsswitch.conf", h.Process.PID))
	})
}
