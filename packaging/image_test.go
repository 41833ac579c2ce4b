package packaging_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imageName is the file of the image.
func imageName(version string) string { return "slowray-" + version + "-image.tar" }

// TestImage reads the image as a runtime does: from index.json down, by digest.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	version, path := releasedVersion, filepath.Join(released, imageName(releasedVersion))
	if released == "" {
		version = "1.2.3-rc.1+x"
		pack := func() string {
			return run(t, []string{"VERSION=" + version, "SOURCE_DATE_EPOCH=1795340000"}, "./package", "image", stands(t), t.TempDir())
		}
		path = pack()
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := os.ReadFile(pack()); err != nil || !bytes.Equal(first, second) {
			t.Errorf("made twice it differs: %v", err)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blobs := untar(t, bytes.NewReader(file))
	read := func(name string, into any) {
		t.Helper()
		if err := json.Unmarshal(blobs[name].data, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	at := func(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }
	type index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
			Platform    struct{ OS, Architecture string }
		}
	}
	var top, all index
	read("index.json", &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("index.json names %d images", len(top.Manifests))
	}
	tag := strings.ReplaceAll(version, "+", "-")
	if got, want := top.Manifests[0].Annotations["io.containerd.image.name"], "localhost/slowray:"+tag; got != want {
		t.Errorf("it is called %s, want %s", got, want)
	}
	read(at(top.Manifests[0].Digest), &all)
	var platforms []string
	for _, m := range all.Manifests {
		platforms = append(platforms, m.Platform.OS+"/"+m.Platform.Architecture)
		var manifest struct {
			Config struct{ Digest string }
			Layers []struct{ Digest, MediaType string }
		}
		read(at(m.Digest), &manifest)
		var config struct {
			OS, Architecture string
			Config           struct {
				Entrypoint []string
				User       string
				Labels     map[string]string
			}
		}
		read(at(manifest.Config.Digest), &config)
		if config.OS != "linux" || config.Architecture != m.Platform.Architecture || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/slowray"}) ||
			config.Config.Labels["org.opencontainers.image.version"] != tag || len(config.Config.Labels["org.opencontainers.image.revision"]) != 40 {
			t.Errorf("the configuration for %s is %+v", m.Platform.Architecture, config)
		}
		if len(manifest.Layers) != 1 {
			t.Fatalf("%d layers", len(manifest.Layers))
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(blobs[at(manifest.Layers[0].Digest)].data))
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for name, f := range untar(t, unpacked) {
			if f.mode&0o022 != 0 && name != "tmp/" {
				t.Errorf("others may write %s", name)
			}
			if !strings.HasSuffix(name, "/") {
				files = append(files, fmt.Sprintf("%o %s", f.mode, name))
			}
		}
		slices.Sort(files)
		if want := []string{"644 usr/share/doc/slowray/LICENSE", "755 usr/bin/slowray"}; !slices.Equal(files, want) {
			t.Errorf("in it are %q, want %q", files, want)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("it is for %v, want %v", platforms, want)
	}
}

type tarFile struct {
	data []byte
	mode int64
}

func untar(t *testing.T, r io.Reader) map[string]tarFile {
	t.Helper()
	files := map[string]tarFile{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s is not root's", h.Name)
		}
		files[h.Name] = tarFile{data, h.Mode}
	}
}
