package lab

import (
	"fmt"
	"os"
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
		"e2fsprogs":    "mkfs.ext4",
		"dnsmasq-base": "dnsmasq",
		"apache2-bin":  "apache2", "lua-socket": "/usr/share/lua/5.3/socket.lua",
		"uwsgi-core": "uwsgi", "uwsgi-plugin-python3": "uwsgi_python3", "tomcat10-common": "/usr/share/tomcat10/bin/catalina.sh",
		"openjdk-17-jdk-headless": "javac",
		"python3-pymysql":         "/usr/lib/python3/dist-packages/pymysql/__init__.py",
	}[pkg]
	switch {
	case pkg == "php-fpm":
		found, _ := filepath.Glob("/usr/sbin/php-fpm*")
		return len(found) > 0
	case pkg == "php-mysql":
		found, _ := filepath.Glob("/usr/lib/php/*/mysqli.so")
		return len(found) > 0
	case pkg == "postgresql":
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		return len(found) > 0
	case strings.HasPrefix(program, "/"):
		_, err := os.Stat(program)
		return err == nil
	case program == "":
		program = pkg
	}
	_, err := exec.LookPath(program)
	return err == nil
}
