package server

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// programs are services in the languages that people write them in: what a
// thread of C or Python waits for looks different from what one of Go does.
//
//go:embed programs
var programs embed.FS

// python is Debian's. The first one on PATH may be another, without a library.
const python = "/usr/bin/python3"

// program writes one of the programs into the sandbox's directory.
func (s *starter) program(name string) (string, error) {
	text, err := programs.ReadFile("programs/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.box.Dir, name)
	return path, os.WriteFile(path, text, 0o644)
}

// compiled gives the service in C. It is compiled where it runs, with symbols
// and frame pointers, as Debian's own packages for debugging are.
func (s *starter) compiled() (string, error) {
	source, err := s.program("booking.c")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(s.box.Dir, "booking-engine")
	_, err = s.box.Server.Output(s.ctx, "gcc", "-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", exe, source)
	if err != nil {
		return "", fmt.Errorf("booking.c: %w", err)
	}
	return exe, nil
}
