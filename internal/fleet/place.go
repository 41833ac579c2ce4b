package fleet

import "strings"

// CommonGroup is the path of the control group that two are both in: itself where they
// are the same.
func CommonGroup(a, b string) string {
	if a == b {
		return a
	}
	end := 0
	for i := 0; ; i++ {
		endA, endB := i == len(a), i == len(b)
		if (endA || a[i] == '/') && (endB || b[i] == '/') {
			end = i
		}
		if endA || endB || a[i] != b[i] {
			break
		}
	}
	if end == 0 && strings.HasPrefix(a, "/") && strings.HasPrefix(b, "/") {
		return "/"
	}
	return a[:end]
}
