package kube

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Image is a static program that becomes an image with nothing else in it.
type Image struct {
	Name string
	File string // of the program; it is /NAME in the image
	// Tar is an image that exists already, in Docker's or OCI's form, instead.
	Tar string
}

// imageName is the reference of an image.
func imageName(name string) string { return "localhost/" + name + ":1" }

// importImages makes the images and gives them to containerd.
func (k *keeper) importImages(ctx context.Context) error {
	for _, i := range k.Options.Images {
		file := i.Tar
		if file == "" {
			file = k.path("images", i.Name+".tar")
			if err := i.write(file); err != nil {
				return fmt.Errorf("image %s: %w", i.Name, err)
			}
		}
		cmd := exec.CommandContext(ctx, "ctr", "--address", criSocket, "--namespace", "k8s.io", "images", "import", "--snapshotter", "native", file)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("image %s: %w: %s", i.Name, err, bytes.TrimSpace(out))
		}
		if i.Tar == "" {
			os.Remove(file) // containerd has it
		}
	}
	return nil
}

// write writes the image as docker save does: a layer, its configuration, and a manifest.
func (i Image) write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + i.Name}, "Env": []string{"PATH=/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": sum(config) + ".json", "RepoTags": []string{imageName(i.Name)}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, part := range []struct {
		name string
		data []byte
	}{{"layer.tar", layer}, {sum(config) + ".json", config}, {"manifest.json", manifest}} {
		if err := entry(w, part.name, 0o644, part.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

func (i Image) layer() ([]byte, error) {
	program, err := os.ReadFile(i.File)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := entry(w, i.Name, 0o755, program); err != nil {
		return nil, err
	}
	// What a pod gets mounted.
	for _, dir := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return layer.Bytes(), err
}

func entry(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(data))
	return err
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// shopImages builds the shop's programs into dir.
func shopImages(ctx context.Context, dir string) ([]Image, error) {
	file := filepath.Join(dir, "shop")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", file, "github.com/slowray/slowray/lab/kube/shop")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("kube: build the shop: %w: %s", err, out)
	}
	var images []Image
	for _, name := range []string{"pause", "cart", "stock", "client"} {
		images = append(images, Image{Name: name, File: file})
	}
	return images, nil
}
