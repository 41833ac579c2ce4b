package host

import "strings"

// containerPrefixes is what container engines put before the id in the name of
// a systemd scope, or behind a colon when systemd's driver is misconfigured
// ("slice:cri-containerd:ID").
var containerPrefixes = []string{"docker", "cri-containerd", "containerd", "crio", "libpod", "nerdctl"}

// containerIDLength is how much of a container's id is shown, as docker ps does.
const containerIDLength = 12

// ContainerOf is the id of the innermost container that a cgroup path names,
// shortened to 12 characters; the whole name for LXC; empty when there is none.
func ContainerOf(cgroupPath string) string {
	parts := strings.Split(cgroupPath, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		parent := ""
		if i > 0 {
			parent = parts[i-1]
		}
		if id := containerID(parent, strings.TrimSuffix(parts[i], ".scope")); id != "" {
			return id
		}
	}
	return ""
}

// containerID is the container a path component names, given the one above it.
func containerID(parent, name string) string {
	if lxc, ok := strings.CutPrefix(name, "lxc.payload."); ok {
		return lxc
	}
	if (parent == "lxc" || parent == "lxc.payload") && name != "" {
		return name
	}
	i := strings.LastIndexAny(name, "-:")
	prefix, id := name[:max(i, 0)], name[i+1:]
	if strings.Contains(prefix, "conmon") { // the monitor next to a container
		return ""
	}
	if isHex(id) && (len(id) == 64 || (len(id) >= containerIDLength && namesEngine(parent, prefix))) {
		return id[:containerIDLength]
	}
	return ""
}

func namesEngine(parent, prefix string) bool {
	for _, p := range containerPrefixes {
		if prefix == p || strings.HasSuffix(prefix, ":"+p) || (prefix == "" && parent == p) {
			return true
		}
	}
	return false
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// UnitOf is the innermost systemd service or scope of a cgroup path, as
// "php8.2-fpm.service"; empty when there is none.
func UnitOf(cgroupPath string) string {
	parts := strings.Split(cgroupPath, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if strings.HasSuffix(parts[i], ".service") || strings.HasSuffix(parts[i], ".scope") {
			return parts[i]
		}
	}
	return ""
}
