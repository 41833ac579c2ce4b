package rootfs

import (
	"errors"
	"io/fs"
)

// Plain is the kernel's answer without the path, for a message that names the
// path itself.
func Plain(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// Clip keeps foreign text from filling a message: at most 128 bytes of it.
func Clip(s string) string {
	if len(s) > 128 {
		return s[:128] + "…"
	}
	return s
}
