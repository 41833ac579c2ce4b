package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// opcache gives what php-fpm is reported about the files that it keeps compiled.
func (v values) opcache() []string {
	freq := map[string]string{"never": "-1", "often": "2", "always": "0"}[v.Revalidate]
	if freq == "" {
		return nil
	}
	validate := "1"
	if freq == "-1" {
		validate, freq = "0", "2"
	}
	return []string{
		"-d", "opcache.enable=1", "-d", "opcache.validate_timestamps=" + validate, "-d", "opcache.revalidate_freq=" + freq,
		"-d", "opcache.file_update_protection=0", // the files are new
		"-d", "opcache.max_accelerated_files=20000",
	}
}

// includes writes the files that a page consists of, in directories as deep as
// those of a framework.
func (v values) includes() error {
	if v.Includes == 0 {
		return nil
	}
	const together = 50 // files of one bundle
	var list strings.Builder
	list.WriteString("<?php return [\n")
	for n := range v.Includes {
		path := filepath.Join(v.Dir, fmt.Sprintf("www/vendor/airline-%d/booking-bundle/src/Component/Model/Offer%d.php", n/together, n))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "<?php\nreturn %d;\n", n), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&list, "%q,\n", path)
	}
	list.WriteString("];\n")
	return os.WriteFile(filepath.Join(v.Dir, "www/vendor/files.php"), []byte(list.String()), 0o644)
}
