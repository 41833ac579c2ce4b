//go:build ignore

// generate writes numbers.txt from the constants of golang.org/x/sys/unix.
package main

import (
	"bytes"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var archs = []string{"amd64", "arm64", "loong64", "riscv64"}

var constant = regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)$`)

func main() {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		log.Fatal(err)
	}
	numbers := map[string]map[string]string{} // by name, then by architecture
	for _, arch := range archs {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range constant.FindAllSubmatch(text, -1) {
			name := strings.ToLower(string(m[1]))
			if numbers[name] == nil {
				numbers[name] = map[string]string{}
			}
			numbers[name][arch] = string(m[2])
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "name %s\n", strings.Join(archs, " "))
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		out.WriteString(name)
		for _, arch := range archs {
			nr := numbers[name][arch]
			if nr == "" {
				nr = "-"
			}
			out.WriteString(" " + nr)
		}
		out.WriteByte('\n')
	}
	if err := os.WriteFile("numbers.txt", out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
