package observe

import "strings"

// UsersOwn says whether a user made a control group: below the manager of his own that
// systemd delegates to him (user@1000.service) he names them as he likes, also by the id of
// somebody else's container. No runtime of Kubernetes makes any there.
func UsersOwn(cgroup string) bool {
	for part := range strings.SplitSeq(cgroup, "/") {
		if strings.HasPrefix(part, "user@") && strings.HasSuffix(part, ".service") {
			return true
		}
	}
	return false
}
