package lab

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/slowray/slowray/lab/incident"
)

// missing says which packages an incident needs that are not installed.
func missing(i incident.Incident) error {
	var packages []string
	for _, p := range i.Needs() {
		if !installed(p) {
			packages = append(packages, p)
		}
	}
	if len(packages) > 0 {
		return fmt.Errorf("lab: %s: not installed (apt-get install %[1]s)", strings.Join(packages, " "))
	}
	return nil
}

func installed(pkg string) bool {
	program := map[string]string{
		"iproute2": "ip", "nftables": "nft", "mariadb-server": "mariadbd", "docker.io": "dockerd", "python3": "/usr/bin/python3",
		"e2fsprogs": "mkfs.ext4",
	}[pkg]
	switch {
	case pkg == "php-fpm":
		found, _ := filepath.Glob("/usr/sbin/php-fpm*")
		return len(found) > 0
	case program == "":
		program = pkg
	}
	_, err := exec.LookPath(program)
	return err == nil
}
